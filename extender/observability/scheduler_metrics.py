"""The counts of the scheduler's verbs, in the families of `Metrics`."""

from collections.abc import Mapping
from typing import Final

from extender.kubelet.verdict import Certainty
from extender.observability.metrics import Metrics
from extender.scheduling.judgement import Trouble


class SchedulerMetrics:
    """`JudgeMetrics` and `FilterMetrics` of `extender.scheduling`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics: Final = metrics

    def replayed(self, count: int) -> None:
        """Count classes that were judged by replay."""
        self._metrics.judgements.labels("replayed").inc(count)

    def changing(self, nodes: int) -> None:
        """Show how many nodes wait for their projection."""
        self._metrics.changing_nodes.set(nodes)

    def projected_late(self, steps: int, *, is_left_out: bool) -> None:
        """Count a projection that took *steps*, or reached the limit (*is_left_out*)."""
        self._metrics.late_projections.labels("left_out" if is_left_out else "finished").inc()
        self._metrics.late_steps.inc(steps)

    def not_judged(self, trouble: Trouble) -> None:
        """Count a class that could not be judged."""
        self._metrics.unjudged.labels(trouble.value).inc()

    def filtered(self, counts: Mapping[tuple[str, Certainty], int]) -> None:
        """Count the candidates of a filter call by result and certainty."""
        for (result, certainty), count in counts.items():
            self._metrics.candidate_series[result, certainty.value].inc(count)
