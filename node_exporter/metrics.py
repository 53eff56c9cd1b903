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
        self.messages = self._counter(
            "messages", "Messages sent, by kind (report, heartbeat) and outcome", "kind", "outcome"
        )
        self.bytes_sent = self._counter("sent_bytes", "Bytes of message bodies sent, after compression", "kind")
        self.look_seconds = Histogram(
            "numa_exporter_look_seconds", "Time to observe the node and build a report",
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5), registry=self.registry,
        )  # fmt: skip
        self.look_failures = self._counter("look_failures", "Observations that ended in an unexpected error")
        self.problems = self._gauge(
            "problems", "Problems in the last report, by source and severity", "source", "severity"
        )
        self.last_contact = self._gauge("last_contact_timestamp_seconds", "When the extender last accepted a message")
        self.sequence = self._gauge("report_sequence", "Sequence of the last report that the extender accepted")
        self.certificate_expiry = self._gauge(
            "certificate_expiry_timestamp_seconds",
            "Expiry of the certificate, Unix time, by file: client, extender_ca, kubelet, kubelet_ca; 0 if unreadable",
            "certificate",
        )

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

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"numa_exporter_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"numa_exporter_{name}", text, labels, registry=self.registry)
