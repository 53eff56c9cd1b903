"""The projections that the event loop does not wait for: those of nodes with many pods in flight, or large reports.

Rules of this file
- One projection at a time, in another thread. Each has a limit of its own (`cluster.steps`).
- Nodes take turns by the steps that they have cost: one that keeps changing delays itself, and not the others.
- The result counts only for the report and the pods that it was computed from. A node that has changed meanwhile stays
  changing, and gets its next turn.
"""

import asyncio
import contextlib
import logging
from contextvars import Context
from typing import Final

from extender.bounded import BoundedMap
from extender.cluster.steps import SEARCH_STEPS
from extender.cluster.store import NodeStore
from extender.scheduling.effects import Effects

LOG: Final = logging.getLogger(__name__)
_REMEMBERED: Final = 4096
"""The number of nodes whose steps are remembered."""


class LateProjections:
    """Computes what *cluster* leaves to it."""

    def __init__(self, cluster: NodeStore, effects: Effects) -> None:
        self._cluster, self._offload, self._metrics = cluster, effects.offload, effects.metrics
        self._wanted: dict[str, asyncio.Event] = {}
        """Changing nodes. The event is set when the node is no longer changing, or its projection was given up."""
        self._turns: BoundedMap[str, int] = BoundedMap(_REMEMBERED)
        """The steps up to which each node has had its share."""
        self._now = 0
        """A new node is counted as if it had used this many steps."""
        self._left_out: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        cluster.compute_elsewhere(self._want)

    def __len__(self) -> int:
        """Nodes that are changing."""
        return len(self._wanted)

    async def settled(self, name: str, seconds: float) -> bool:
        """Wait until the node is no longer changing, for at most *seconds*. Returns whether that is so."""
        if not self._cluster.is_changing(name):
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._cluster.is_changing(name):
                    event = self._wanted.get(name)
                    if event is None:
                        return False
                    await event.wait()
        return not self._cluster.is_changing(name)

    async def aclose(self) -> None:
        """End the work. A projection that has begun ends at its limit."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def _want(self, name: str) -> bool:
        """The node is changing. False outside an event loop: then nothing else waits."""
        if name not in self._wanted:
            try:
                loop = asyncio.get_running_loop()
            except RuntimeError:
                return False
            self._wanted[name] = asyncio.Event()
            self._metrics.changing(len(self._wanted))
            if self._task is None or self._task.done():
                self._task = loop.create_task(self._run(), name="late projections", context=Context())
        return True

    async def _run(self) -> None:
        while self._wanted:
            name = min(self._wanted, key=self._turn_of)
            try:
                is_done = await self._project(name)
            except Exception:  # a defect: the node stays uncertain until it changes
                LOG.exception("projection failed node=%s", name)
                is_done = True
            if is_done:
                self._wanted.pop(name).set()
                self._metrics.changing(len(self._wanted))

    def _turn_of(self, name: str) -> int:
        return max(self._now, self._turns.get(name, 0))

    async def _project(self, name: str) -> bool:
        """Compute the node's projection. Returns whether the node is no longer changing."""
        work = self._cluster.pods_of(name).projection.work()
        if work is None:
            return True
        late = await self._offload(work)
        self._now = self._turn_of(name)
        self._turns[name] = self._now + late.steps.work
        self._cluster.finish(name, late)
        self._note(name, late.steps.work, is_left_out=late.steps.spent > SEARCH_STEPS)
        return not self._cluster.is_changing(name)

    def _note(self, name: str, steps: int, *, is_left_out: bool) -> None:
        """Count the work, and say once which node is left out until less is in flight there."""
        self._metrics.projected_late(steps, is_left_out=is_left_out)
        if is_left_out and name not in self._left_out:
            LOG.warning("node left out: its pods in flight take too long to follow node=%s steps=%d", name, steps)
            if len(self._left_out) >= _REMEMBERED:
                self._left_out.clear()
            self._left_out.add(name)
        elif not is_left_out:
            self._left_out.discard(name)
