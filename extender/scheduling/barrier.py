"""Read your own writes, where kube-scheduler binds pods itself.

kube-scheduler decides pod by pod, but binds in the background. When it sends the filter call of the next pod, the last
pod may not be on its node yet, and its room seems free. So a filter call waits, for some milliseconds at most, until
the pod watch has shown the pods that earlier calls offered nodes for. Each of them is waited for once: a pod that finds
no node, or is bound late, costs one wait at most.
"""

import asyncio
from collections.abc import Callable
from typing import Final

_MAX_PENDING: Final = 64
_OFFER_SECONDS: Final = 2.0
"""A pod that was offered nodes and is not bound within this time is assumed unschedulable."""


class Barrier:
    """See the file's docstring. *seconds*: the longest wait of a call; 0: no call waits."""

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds: Final = seconds
        self._clock: Final = clock
        self._pending: dict[str, float] = {}
        self._changed = asyncio.Event()

    def offered(self, uid: str) -> None:
        """Nodes were offered for the pod: it may be bound at any moment."""
        if self._seconds and uid:
            self._pending[uid] = self._clock()
            if len(self._pending) > _MAX_PENDING:
                del self._pending[next(iter(self._pending))]

    def seen(self, uid: str) -> None:
        """The watch shows the pod on a node."""
        if self._pending.pop(uid, None) is not None:
            self._changed.set()

    async def wait(self, uid: str) -> None:
        """Wait for the pods that nodes were offered for before this one. None of them is waited for again."""
        self._pending.pop(uid, None)
        now = self._clock()
        awaited = {each for each, at in self._pending.items() if now - at <= _OFFER_SECONDS}
        self._pending = {each: self._pending[each] for each in awaited}
        if not awaited:
            return
        try:
            async with asyncio.timeout(self._seconds):
                while awaited & self._pending.keys():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            for each in awaited:
                self._pending.pop(each, None)
