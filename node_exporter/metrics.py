"""The exporter's own metrics, in a registry of their own."""

from collections import Counter as Tally
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

from node_exporter.certificates import expiry
from node_exporter.report import NodeReport


class ExporterMetrics:
    """One attribute for each metric. Names and help texts are the documentation."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        build = Info("numa_exporter_build", "The version that runs", registry=self.registry)
        build.info({"version": version("numa-extender")})
        self.messages = Counter(
            "numa_exporter_messages", "Messages sent, by kind (report, heartbeat) and outcome", ("kind", "outcome"),
            registry=self.registry,
        )  # fmt: skip
        self.bytes_sent = Counter(
            "numa_exporter_sent_bytes",
            "Bytes of message bodies sent, after compression",
            ("kind",),
            registry=self.registry,
        )
        self.look_seconds = Histogram(
            "numa_exporter_look_seconds", "Time to observe the node and build a report",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5), registry=self.registry,
        )  # fmt: skip
        self.look_failures = Counter(
            "numa_exporter_look_failures", "Observations that ended in an unexpected error", registry=self.registry
        )
        self.problems = Gauge(
            "numa_exporter_problems", "Problems in the last report, by source and severity", ("source", "severity"),
            registry=self.registry,
        )  # fmt: skip
        self.last_contact = Gauge(
            "numa_exporter_last_contact_timestamp_seconds", "When the extender last accepted a message",
            registry=self.registry,
        )  # fmt: skip
        self.sequence = Gauge(
            "numa_exporter_report_sequence",
            "Sequence of the last report that the extender accepted",
            registry=self.registry,
        )

        self.certificate_expiry = Gauge(
            "numa_exporter_certificate_expiry_timestamp_seconds",
            "Expiry of the certificate, Unix time, by file: client, extender_ca, kubelet, kubelet_ca; 0 if unreadable",
            ("certificate",), registry=self.registry,
        )  # fmt: skip

    def watch_certificates(self, files: Mapping[str, Path | None]) -> None:
        """Show the expiry of these PEM files, by name. They are read at each scrape."""
        for name, path in files.items():
            if path is not None:
                self.certificate_expiry.labels(name).set_function(partial(expiry, path))

    def count_problems(self, report: NodeReport) -> None:
        """Set the problem gauges to the problems of this report, and clear the others."""
        self.problems.clear()
        for (source, severity), count in Tally((p.source, p.severity) for p in report.problems).items():
            self.problems.labels(source, severity).set(count)
