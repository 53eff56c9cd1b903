"""What the verbs need of the outside: clocks, work off the event loop, and metrics."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from extender.kubelet.verdict import Certainty
from extender.scheduling.judgement import Trouble

T = TypeVar("T")


class Offload(Protocol):
    """Runs long work off the event loop."""

    def __call__(self, work: Callable[..., T], /, *args: Any) -> Awaitable[T]:
        """Run `work(*args)` elsewhere."""


class SchedulingMetrics(Protocol):
    """Everything that the verbs count."""

    def filtered(self, counts: Mapping[tuple[str, Certainty], int]) -> None:
        """How many candidates got each answer; see `filter.counts_of`."""

    def replayed(self, count: int) -> None:
        """This many classes were judged by replay."""

    def not_judged(self, trouble: Trouble) -> None:
        """A class could not be judged."""

    def changing(self, nodes: int) -> None:
        """This many nodes wait for their projection."""

    def projected_late(self, steps: int, *, is_left_out: bool) -> None:
        """A projection took *steps*, or reached the limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """`clock`: seconds of a monotonic clock, that of all deadlines; `sleep` waits for that many.

    `cpu_clock`: seconds of CPU time of the thread that calls it. `offload` runs work off the event loop.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    offload: Offload
    metrics: SchedulingMetrics
    cpu_clock: Callable[[], float] = lambda: 0.0
