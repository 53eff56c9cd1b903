"""The counts of the scheduler's verbs, in the families of `Metrics`."""

from collections.abc import Mapping
from typing import Final

from extender.observability.metrics import Metrics
from extender.replay.verdict import Certainty
from extender.scheduling.background import Ending
from extender.scheduling.judgement import Trouble


class SchedulerMetrics:
    """`JudgeMetrics`, `FilterMetrics` and `PreemptMetrics` of `extender.scheduling`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics: Final = metrics

    def replayed(self, count: int) -> None:
        """See `JudgeMetrics`."""
        self._metrics.judgements.labels("replayed").inc(count)

    def in_background(self, shapes: int, classes: int) -> None:
        """See `BackgroundMetrics`."""
        self._metrics.background_shapes.set(shapes)
        self._metrics.background_classes.set(classes)

    def background_worked(self, seconds: float) -> None:
        """See `BackgroundMetrics`."""
        self._metrics.background_seconds.inc(seconds)

    def background_ended(self, ending: Ending) -> None:
        """See `BackgroundMetrics`."""
        self._metrics.background_endings.labels(ending.value).inc()

    def not_judged(self, trouble: Trouble) -> None:
        """See `JudgeMetrics`."""
        self._metrics.unjudged.labels(trouble.value).inc()

    def filtered(self, counts: Mapping[tuple[str, Certainty], int]) -> None:
        """See `FilterMetrics`."""
        for (result, certainty), count in counts.items():
            self._metrics.candidate_series[result, certainty.value].inc(count)

    def preempted(self, results: Mapping[str, int]) -> None:
        """See `PreemptMetrics`."""
        for result, count in results.items():
            self._metrics.preemptions.labels(result).inc(count)
