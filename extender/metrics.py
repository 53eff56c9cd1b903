"""All metric families of the service, in one registry of their own (nothing is registered on import)."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The families; label values come from closed sets, never from input."""

    def __init__(self) -> None:
        self.registry: Final = CollectorRegistry()
        self.verb_seconds: Final = Histogram(
            "numa_extender_verb_seconds",
            "Time from the first byte of a scheduler request to its reply.",
            ("verb", "outcome"),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.candidates: Final = Counter(
            "numa_extender_filter_candidates",
            "Candidate nodes of filter requests, by what became of them: `passed`, or the reason.",
            ("result",),
            registry=self.registry,
        )
        self.judgements: Final = Counter(
            "numa_extender_judgements",
            "Classes of nodes looked at: `remembered`, or `replayed` now.",
            ("source",),
            registry=self.registry,
        )
        self.reports: Final = Counter(
            "numa_extender_reports",
            "Messages of exporters: `report` or `heartbeat`, and `accepted`, `invalid`, `outdated`, `unknown`, `full`.",
            ("kind", "outcome"),
            registry=self.registry,
        )
        self.nodes: Final = Gauge(
            "numa_extender_nodes", "Nodes held, by certainty of their state.", ("certainty",), registry=self.registry
        )
        self.classes: Final = Gauge(
            "numa_extender_node_classes", "Different nodes, as far as verdicts go.", registry=self.registry
        )
        self.remembered: Final = Gauge(
            "numa_extender_remembered_judgements", "Judgements and pod shapes remembered.", registry=self.registry
        )

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)
