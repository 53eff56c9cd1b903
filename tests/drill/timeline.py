"""Virtual time: what happens when, in an order that only the seed decides."""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

TURNS = 12
"""Turns of the event loop after which every task that can go on has gone on: nothing here waits for real time."""


class Timeline:
    """The clock, the dice, and everything that is yet to happen."""

    def __init__(self, seed: int) -> None:
        self.now = 1000.0
        self.random = Random(seed)
        self._due: list[tuple[float, int, Callable[[], Awaitable[None] | None]]] = []
        self._count = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    def clock(self) -> float:
        return self.now

    def after(self, seconds: float, happen: Callable[[], Awaitable[None] | None]) -> None:
        """Let something happen then: a plain call, or a story that may wait for others."""
        self._count += 1
        heapq.heappush(self._due, (self.now + seconds, self._count, happen))

    def between(self, low: float, high: float) -> float:
        return self.random.uniform(low, high)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    async def step(self) -> bool:
        """Let the next thing happen; False if there is none."""
        if not self._due:
            return False
        at, _, happen = heapq.heappop(self._due)
        self.now = max(self.now, at)
        story = happen()
        if story is not None:
            task = asyncio.ensure_future(story)
            self._tasks.add(task)
        if self._tasks:
            for _ in range(TURNS):
                await asyncio.sleep(0)
            for task in [t for t in self._tasks if t.done()]:
                self._tasks.discard(task)
                if not task.cancelled():
                    task.result()
        return True

    async def sleep(self, seconds: float) -> None:
        """Wait, in virtual time."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.after(seconds, lambda: None if done.done() else done.set_result(None))
        await done
