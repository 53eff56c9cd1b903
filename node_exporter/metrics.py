"""The exporter's own metrics, with the expiry of its certificates, and the server of /metrics, /livez and /readyz.

Certificates are verified by OpenSSL, not here. Their expiry is read here because Python's `ssl` decodes only
certificates of peers, and the exporter's image has no other library for it. Source of the layout: RFC 5280, 4.1
(Certificate, TBSCertificate, Validity).
"""

import base64
import re
import threading
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from node_exporter.files import MAX_CREDENTIAL_BYTES, read_file
from node_exporter.report import NodeReport

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]*)-----END CERTIFICATE-----")
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18


def expiry(path: Path) -> float:
    """Unix time of the earliest expiry in a PEM file. 0 if no certificate can be read."""
    try:
        blocks = _BLOCK.findall(read_file(path, MAX_CREDENTIAL_BYTES))
        return min((not_after(base64.b64decode(block)) for block in blocks), default=0.0)
    except (OSError, ValueError):  # binascii.Error is a ValueError
        return 0.0


def not_after(der: bytes) -> float:
    """Expiry of one certificate (DER), in Unix time.

    Raises:
        ValueError: it is not a certificate.
    """
    certificate = _content(der, 0, _SEQUENCE)
    fields = _content(certificate, 0, _SEQUENCE)
    position = _after(fields, 0) if fields[:1] == bytes([_VERSION]) else 0
    for _ in ("serialNumber", "signature", "issuer"):
        position = _after(fields, position)
    validity = _content(fields, position, _SEQUENCE)
    end = _after(validity, 0)
    is_short = validity[end : end + 1] == bytes([_UTC_TIME])
    text = _content(validity, end, _UTC_TIME if is_short else _GENERALIZED_TIME).decode("ascii")
    if is_short:
        text = ("20" if text < "50" else "19") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _content(data: bytes, position: int, tag: int) -> bytes:
    if data[position : position + 1] != bytes([tag]):
        raise ValueError(f"tag {tag:#x} expected")
    start, end = _bounds(data, position)
    return data[start:end]


def _after(data: bytes, position: int) -> int:
    return _bounds(data, position)[1]


def _bounds(data: bytes, position: int) -> tuple[int, int]:
    """Begin and end of the content of the element at *position*."""
    if position + 2 > len(data):
        raise ValueError("cut off")
    length, start = data[position + 1], position + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(data[start : start + size], "big"), start + size
    if start + length > len(data):
        raise ValueError("cut off")
    return start, start + length


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


Probe = Callable[[], str | None]
"""None if the probe succeeds, else the reason."""


class OpsServer:
    """Serves from its own threads until closed. Port 0: any free port."""

    def __init__(self, host: str, port: int, *, registry: CollectorRegistry, live: Probe, ready: Probe) -> None:
        handler = type("Handler", (_Handler,), {"registry": registry, "probes": {"/livez": live, "/readyz": ready}})
        self._server = ThreadingHTTPServer((host, port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="ops-server", daemon=True)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start serving."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    registry: ClassVar[CollectorRegistry]
    probes: ClassVar[dict[str, Probe]]
    timeout = 10

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(HTTPStatus.OK, generate_latest(self.registry), CONTENT_TYPE_LATEST)
        elif probe := type(self).probes.get(path):
            wrong = probe()
            status = HTTPStatus.SERVICE_UNAVAILABLE if wrong else HTTPStatus.OK
            self._answer(status, f"{wrong or 'ok'}\n".encode(), "text/plain; charset=utf-8")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"not found\n", "text/plain; charset=utf-8")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature of http.server
        """Requests of probes are not logged."""

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
