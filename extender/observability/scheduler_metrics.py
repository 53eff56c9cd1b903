"""The counts of the scheduler's verbs, in the families of `Metrics`."""

from collections.abc import Mapping
from typing import Final

from extender.kubelet.verdict import Certainty
from extender.observability.metrics import Metrics
from extender.scheduling.judgement import Trouble


class SchedulerMetrics:
    """`JudgeMetrics`, `FilterMetrics` and `PreemptMetrics` of `extender.scheduling`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics: Final = metrics

    def replayed(self, count: int) -> None:
        """See `JudgeMetrics`."""
        self._metrics.judgements.labels("replayed").inc(count)

    def changing(self, nodes: int) -> None:
        """See `LateMetrics`."""
        self._metrics.changing_nodes.set(nodes)

    def projected_late(self, steps: int, *, is_left_out: bool) -> None:
        """See `LateMetrics`."""
        self._metrics.late_projections.labels("left_out" if is_left_out else "finished").inc()
        self._metrics.late_steps.inc(steps)

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
