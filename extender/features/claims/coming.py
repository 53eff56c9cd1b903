"""Pods that kube-scheduler may bind at any moment: filter offered them nodes, and no bind call has ended yet.

kube-scheduler decides pod by pod, but binds in the background, after it has written the claims. So the filter call of
the next pod comes before the bind call of the last one, which tells its node.

Rules of this file
- kube-scheduler tries no other pod while filter waits, and any tenant can create pods that are offered nodes and are
  never bound. So all waits together take at most a tenth of the time (`WAITS_PER_SECOND`).
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from extender.bounded import BoundedMap

MAX_COMING: Final = 64
MAX_OFFERED: Final = 64
"""Nodes of one pod. If it was offered more, it is not waited for."""
OLD_SECONDS: Final = 1.0
"""A pod that is not bound until then was given up, or waits for something else."""
WAITS_PER_SECOND: Final = 0.1
MOST_SECONDS: Final = 1.0
"""How many seconds of waiting a second allows, and how many can be saved up."""


class ComingPods:
    """The pods. *clock*: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._offered: BoundedMap[str, tuple[frozenset[str], float]] = BoundedMap(MAX_COMING)
        """The nodes of each pod by its UID, and when filter offered them."""
        self._changed = asyncio.Event()
        self._binds = False
        """Whether there was a bind call. If kube-scheduler binds pods itself, there is none to wait for."""
        self._saved_seconds, self._saved_at = MOST_SECONDS, clock()

    def passed(self, uid: str, nodes: Collection[str]) -> None:
        """Filter has offered these nodes to the pod."""
        self._offered.pop(uid, None)
        if self._binds and 0 < len(nodes) <= MAX_OFFERED:
            self._offered[uid] = frozenset(nodes), self._clock()

    def arrived(self, uid: str) -> None:
        """A bind call of the pod has ended."""
        self._offered.pop(uid, None)
        self._binds = True
        self._changed.set()

    async def wait(self, uid: str, names: Collection[str], avoided: Collection[str], seconds: float) -> bool:
        """Wait while other pods may come to each of *names* that is not *avoided*. Whether it did wait.

        *uid*: of the pod that waits. No call waits again for a pod that did not come in time.
        """
        started = self._clock()
        saved = min(MOST_SECONDS, self._saved_seconds + (started - self._saved_at) * WAITS_PER_SECOND)
        self._saved_seconds, self._saved_at = saved, started
        if not names or saved <= 0 or not self._may_come(uid, names, avoided):
            return False
        try:
            async with asyncio.timeout(min(seconds, saved)):
                while self._may_come(uid, names, avoided):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            for other in [other for other, (nodes, _) in self._offered.items() if not nodes.isdisjoint(names)]:
                del self._offered[other]
        self._saved_seconds -= self._clock() - started
        return True

    def _may_come(self, uid: str, names: Collection[str], avoided: Collection[str]) -> bool:
        """Whether each node is avoided, or another pod may come to it, and there is such a pod for one of *names*."""
        since = self._clock() - OLD_SECONDS
        offered = [nodes for other, (nodes, at) in self._offered.items() if other != uid and at >= since]
        coming = frozenset().union(*offered).intersection(names)
        return bool(coming) and all(name in avoided or name in coming for name in names)
