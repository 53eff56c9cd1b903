"""Judging that goes on after its call has ended, so that the next call for the pod shape finds it done.

Rules of this file
- One shape at a time, the oldest first, in slices of `SLICE_SECONDS`. No slice begins while calls wait for replays, and
  one that has begun ends as soon as a call does so.
- Bounded: `MAX_SHAPES` shapes wait, the oldest is dropped for a new one; `MAX_SHAPE_SECONDS` of replays for a shape.
- A shape that left the cache is dropped. A class that no node has any more is skipped.
- Everything but the replays runs on the event loop. `aclose` ends the work.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from extender.cluster.node_class import NodeClass
from extender.scheduling.cache import ShapeJudgements

SLICE_SECONDS: Final = 0.01
"""A call that comes meanwhile waits for the interpreter's lock no longer than this."""
MAX_SLICE_SECONDS: Final = 1.0
"""A class whose replay takes longer than a slice gets longer ones, up to this. It is then left out."""
MAX_SHAPES: Final = 8
MAX_SHAPE_SECONDS: Final = 60.0


class Ending(StrEnum):
    """How the background work on a shape ended. The values are labels of a metric."""

    FINISHED = "finished"
    EVICTED = "evicted"
    """The shape left the cache."""
    DISPLACED = "displaced"
    """Newer shapes took its place."""
    TIME = "time"
    """It took `MAX_SHAPE_SECONDS`."""


class BackgroundMetrics(Protocol):
    """Shows the progress."""

    def in_background(self, shapes: int, classes: int) -> None:
        """This many shapes and classes are left to judge."""

    def background_worked(self, seconds: float) -> None:
        """A slice has ended."""

    def background_ended(self, ending: Ending) -> None:
        """The work on a shape has ended."""


class JudgeSlice(Protocol):
    """Judges some of the classes of a shape, and stores the judgements."""

    def __call__(
        self, entry: ShapeJudgements, classes: Sequence[NodeClass], out_of_time: Callable[[], bool], /
    ) -> Awaitable[object]:
        """Return when all are judged, or *out_of_time* says so. Any thread may call *out_of_time*."""


@dataclass(slots=True)
class _Shape:
    """The work on one shape. `left`: classes, the next one first. `seconds`: of judging until now."""

    entry: ShapeJudgements
    left: list[NodeClass] = field(default_factory=list)
    seconds: float = 0.0
    slice_seconds: float = SLICE_SECONDS


class BackgroundJudging:
    """Shapes that are judged in the background. *is_held*: whether the cache still has a shape.

    *is_current*: whether a node has the class. *clock*: seconds of a monotonic clock.
    """

    def __init__(
        self,
        judge_slice: JudgeSlice,
        is_held: Callable[[ShapeJudgements], bool],
        is_current: Callable[[NodeClass], bool],
        *,
        metrics: BackgroundMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._judge_slice, self._is_held, self._is_current = judge_slice, is_held, is_current
        self._metrics, self._clock = metrics, clock
        self._shapes: OrderedDict[ShapeJudgements, _Shape] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._calls = 0
        """Calls that wait for replays."""
        self._quiet: asyncio.Event | None = None

    def __len__(self) -> int:
        """Shapes that are not finished."""
        return len(self._shapes)

    @contextlib.contextmanager
    def yielding(self) -> Iterator[None]:
        """While the context lasts, a call waits for replays, and the background work pauses."""
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1
            if not self._calls and self._quiet is not None:
                self._quiet.set()

    def go_on(self, entry: ShapeJudgements, classes: Iterable[NodeClass]) -> None:
        """Judge *classes* for the shape, in this order."""
        shape = self._shapes.setdefault(entry, _Shape(entry))
        shape.left = list(dict.fromkeys([*shape.left, *classes]))
        if len(self._shapes) > MAX_SHAPES:
            self._shapes.popitem(last=False)
            self._metrics.background_ended(Ending.DISPLACED)
        self._show()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="judging in the background")

    async def finished(self) -> None:
        """Return when there is nothing left to judge."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def aclose(self) -> None:
        """End the work. A replay that has begun ends at its next step."""
        task, self._task = self._task, None
        self._shapes.clear()
        self._show()
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        """Judge one shape after another, the oldest first, until none is left."""
        while self._shapes:
            await self._until_quiet()
            shape = next(iter(self._shapes.values()), None)
            if shape is None:
                return
            shape.left = [each for each in shape.entry.missing(shape.left) if self._is_current(each)]
            self._show()
            if (ending := self._ending(shape)) is None:
                await self._judge_some(shape)
            else:
                del self._shapes[shape.entry]
                self._metrics.background_ended(ending)
                self._show()

    async def _judge_some(self, shape: _Shape) -> None:
        """Judge classes of the shape for one slice. A class that takes longer than the longest slice is left out."""
        began, count = self._clock(), len(shape.left)

        def out_of_time() -> bool:
            return self._calls > 0 or shape.entry not in self._shapes or self._clock() > began + shape.slice_seconds

        await self._judge_slice(shape.entry, shape.left, out_of_time)
        seconds = max(self._clock() - began, SLICE_SECONDS / 10)
        shape.seconds += seconds
        self._metrics.background_worked(seconds)
        if len(shape.entry.missing(shape.left)) < count:
            shape.slice_seconds = SLICE_SECONDS
        elif seconds >= shape.slice_seconds:  # the first class takes longer than that
            shape.slice_seconds *= 2
            if shape.slice_seconds > MAX_SLICE_SECONDS:
                shape.left, shape.slice_seconds = shape.left[1:], SLICE_SECONDS

    def _ending(self, shape: _Shape) -> Ending | None:
        """How the work on the shape ends now; None if it goes on."""
        if not shape.left:
            return Ending.FINISHED
        if not self._is_held(shape.entry):
            return Ending.EVICTED
        return Ending.TIME if shape.seconds >= MAX_SHAPE_SECONDS else None

    async def _until_quiet(self) -> None:
        await asyncio.sleep(0)  # calls that have arrived come first
        while self._calls:
            self._quiet = asyncio.Event()
            await self._quiet.wait()

    def _show(self) -> None:
        self._metrics.in_background(len(self._shapes), sum(len(each.left) for each in self._shapes.values()))
