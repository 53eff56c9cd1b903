"""GET /metrics, /livez and /readyz on the node, for Prometheus and the kubelet's probes."""

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

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
