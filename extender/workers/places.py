"""Assigns workers to questions: places for questions in progress, and a queue that is fair between callers.

Rules of this file
- One caller never holds the last place, unless there is only one place, so that another caller's question starts at
  once.
- A free place goes to the caller with the fewest questions in progress, and among those to the one served longest ago.
- A full queue refuses the new question, or the last question of the caller with the longest queue, if that is at least
  two longer than the new caller's.
"""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from extender.questions.asked import BusyError

RETRY_SECONDS: Final = 5


class WorkerSlots:
    """*places*: concurrent questions.

    *max_waiting*: length of the queue. *wait_seconds*: longest wait of a question.
    """

    def __init__(self, places: int, *, max_waiting: int, wait_seconds: float, changed: Callable[[], None]) -> None:
        """*changed* is called when `working` or `waiting` has changed."""
        self._places, self._max_waiting, self._wait_seconds = places, max_waiting, wait_seconds
        self._changed: Final = changed
        self._working: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """Callers with waiting questions, the one served longest ago first."""

    @property
    def working(self) -> int:
        """Number of questions in progress."""
        return self._working.total()

    @property
    def waiting(self) -> int:
        """Number of waiting questions."""
        return sum(map(len, self._queues.values()))

    @asynccontextmanager
    async def place(self, caller: str) -> AsyncIterator[None]:
        """Hold one place for a question of *caller*.

        Raises:
            BusyError: the queue is full, or no place became free in time.
        """
        if self._may_work(caller) and caller not in self._queues:
            self._working[caller] += 1
        else:
            await self._wait(caller)
        self._changed()
        try:
            yield
        finally:
            self._leave_place(caller)

    def _leave_place(self, caller: str) -> None:
        self._working[caller] -= 1
        if not self._working[caller]:
            del self._working[caller]
        self._serve()
        self._changed()

    def _may_work(self, caller: str) -> bool:
        most = max(1, self._places - 1)
        return self.working < self._places and self._working[caller] < most

    async def _wait(self, caller: str) -> None:
        self._make_room(caller)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(caller, deque()).append(turn)
        self._changed()
        try:
            async with asyncio.timeout(self._wait_seconds):  # wait_for of Python 3.11 can lose a cancellation
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done() and not turn.cancelled() and turn.exception() is None:  # it got its place at the same moment
                self._leave_place(caller)
            if isinstance(error, asyncio.CancelledError):
                raise
            reason = f"no worker was free for the question within {self._wait_seconds:g} s"
            raise BusyError(reason, RETRY_SECONDS, refused=False) from None
        finally:
            self._leave(caller, turn)

    def _make_room(self, caller: str) -> None:
        if self.waiting < self._max_waiting:
            return
        longest = max(self._queues, key=lambda each: len(self._queues[each]), default=caller)
        own = len(self._queues.get(caller, ()))
        error = BusyError(f"{self._max_waiting} questions are already waiting", RETRY_SECONDS, refused=True)
        if len(self._queues.get(longest, ())) < own + 2:
            raise error
        last = self._queues[longest].pop()
        if not last.done():
            last.set_exception(error)

    def _leave(self, caller: str, turn: asyncio.Future[None]) -> None:
        queue = self._queues.get(caller)
        if queue is not None:
            if turn in queue:
                queue.remove(turn)
            if not queue:
                del self._queues[caller]
        self._changed()

    def _serve(self) -> None:
        """Assign free places to waiting questions."""
        while self.working < self._places:
            callers = [caller for caller in self._queues if self._queues[caller] and self._may_work(caller)]
            if not callers:
                return
            caller = min(callers, key=lambda each: self._working[each])
            turn = self._queues[caller].popleft()
            self._queues.move_to_end(caller)
            if not turn.done():
                self._working[caller] += 1
                turn.set_result(None)
