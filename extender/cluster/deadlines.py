"""When time alone changes a node: it becomes stale, or a timeout of one of its pods is over.

All times are seconds of one monotonic clock.
"""

import heapq
from typing import Final


class Deadlines:
    """The deadlines of all nodes. *stale_after_seconds*: a node is stale if it was silent for longer."""

    def __init__(self, stale_after_seconds: float) -> None:
        self._stale_after: Final = stale_after_seconds
        self._heard_at: dict[str, float] = {}
        """The last message of each node that is not stale. The node that was silent for longest is the first."""
        self._due: list[tuple[float, str]] = []
        """Heap of timeouts."""

    def is_fresh(self, name: str) -> bool:
        """Whether the node is known and not stale, as of the last `expired`."""
        return name in self._heard_at

    def note_message(self, name: str, now: float) -> None:
        """The node has sent a message."""
        self._heard_at.pop(name, None)
        self._heard_at[name] = now

    def add_timeout(self, name: str, due: float) -> None:
        """A timeout changes the node at *due*."""
        heapq.heappush(self._due, (due, name))

    def forget(self, name: str) -> None:
        """The node no longer exists. `expired` may still return its name."""
        self._heard_at.pop(name, None)

    def expired(self, now: float) -> set[str]:
        """The nodes that have changed since the last call. Cost: one step for each deadline that has passed."""
        changed = set()
        while self._due and self._due[0][0] <= now:
            changed.add(heapq.heappop(self._due)[1])
        while self._heard_at:
            name, heard_at = next(iter(self._heard_at.items()))
            if now - heard_at <= self._stale_after:
                break
            del self._heard_at[name]
            changed.add(name)
        return changed
