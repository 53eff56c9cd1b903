"""Whether the service is shutting down and whether it leads. Read by /readyz and by the forwarding of calls. A leaf."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol


class LeaderCalls(Protocol):
    """Forwards calls to the leader, if that is another process."""

    def takes(self, path: str) -> bool:
        """Whether a call to *path* must be forwarded now."""

    async def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> bytes | None:
        """The leader's reply, within a limited time. None if there was none."""


def alone() -> bool:
    """Without a lease, every process is its own leader."""
    return True


@dataclass(slots=True)
class Lifecycle:
    """`draining`: a termination signal was received; requests are still served. `leads`: this process may write.

    `leader`: None if calls are not forwarded.
    """

    draining: bool = False
    leads: Callable[[], bool] = alone
    leader: LeaderCalls | None = None
