"""Lets a filter call see the pods of earlier calls, where kube-scheduler binds pods itself.

kube-scheduler decides pod by pod, but binds in the background. When it sends the filter call of the next pod, the last
pod may not be on its node yet, and its resources seem to be free. So a filter call waits, for some milliseconds at
most, until the pod watch has shown the pods that earlier calls offered nodes for. Each of them is waited for once: a
pod that finds no node, or is bound late, costs one wait at most.
"""

import asyncio
from collections.abc import Callable, Collection

from extender.cluster.pods import PodRegistry


class Barrier:
    """Lets a call wait until the last offered pod is bound. *seconds*: the longest wait of a call; 0: no call waits."""

    def __init__(self, seconds: float, pods: PodRegistry, clock: Callable[[], float]) -> None:
        self.seconds = seconds
        self._pods, self._clock = pods, clock
        self._changed = asyncio.Event()

    def seen(self) -> None:
        """The watch has shown pods on nodes."""
        self._changed.set()

    async def wait(self, awaited: Collection[str]) -> None:
        """Wait for pods that were offered nodes, by UID. No call waits for the same pod again."""
        if not self.seconds:
            return
        try:
            async with asyncio.timeout(self.seconds):
                while not self._pods.offered(self._clock()).isdisjoint(awaited):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self._pods.give_up_waiting(awaited, self._clock())
