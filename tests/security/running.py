"""A service as it runs: real sockets, real TLS, a fake API server to ask about tokens."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import trustme
from fastapi import FastAPI

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.kube.access import plain
from extender.kube.client import KubeClient
from extender.runtime.server import make_authority, make_server
from extender.transport.server import Server
from tests.fakes.apiserver import FakeApiServer
from tests.waiting import PATIENCE_SECONDS, until

AUDIENCE = "numa-extender"
EXPORTER = "system:serviceaccount:numa-node-exporter:numa-node-exporter"
READER = "alice"


@dataclass
class Files:
    """The PEM files of one service, and the authorities that made them."""

    directory: Path
    server_ca: trustme.CA
    client_ca: trustme.CA

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "tls_cert_file": self.directory / "tls.crt",
            "tls_key_file": self.directory / "tls.key",
            "tls_client_ca_file": self.directory / "client-ca.crt",
            "tls_host": "127.0.0.1",
            "tls_port": 0,
        }

    def write_server(self, certificate: trustme.LeafCert) -> None:
        (self.directory / "tls.key").write_bytes(certificate.private_key_pem.bytes())
        chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        (self.directory / "tls.crt").write_bytes(chain)

    def write_client_ca(self, authority: trustme.CA) -> None:
        authority.cert_pem.write_to_path(self.directory / "client-ca.crt")

    def client(
        self,
        name: str | None = None,
        *,
        authority: trustme.CA | None = None,
        days: float = 1,
        trust: trustme.CA | None = None,
    ) -> ssl.SSLContext:
        """What a client is set up with; *name*: the common name in its certificate, None: it has none."""
        context = ssl.create_default_context()
        (trust or self.server_ca).configure_trust(context)
        if name is not None:
            ends = datetime.now(UTC) + timedelta(days=days)
            certificate = (authority or self.client_ca).issue_cert("client.example", common_name=name, not_after=ends)
            certificate.configure_cert(context)
        return context


def make_files(directory: Path) -> Files:
    files = Files(directory, trustme.CA(), trustme.CA())
    files.write_server(files.server_ca.issue_cert("127.0.0.1"))
    files.write_client_ca(files.client_ca)
    return files


@dataclass
class Running:
    """One service that answers. `plain` and `tls` are its URLs."""

    service: Service
    app: FastAPI
    server: Server
    plain: str
    tls: str

    def call(self, method: str, path: str, *, context: ssl.SSLContext | None = None, **request: Any) -> httpx.Response:
        """One request, over TLS if there is a context, each over a connection of its own."""
        base = self.plain if context is None else self.tls
        with httpx.Client(verify=context or False, trust_env=False, timeout=PATIENCE_SECONDS) as client:
            return client.request(method, base + path, **request)


@contextmanager
def running(settings: Settings, api_server: FakeApiServer | None = None, **changes: Any) -> Iterator[Running]:
    """Serve until the context ends; *changes* replace fields of the service."""
    service = replace(make_service(settings), **changes)
    with ExitStack() as stack:
        if api_server is not None:
            client = KubeClient(plain(api_server.url), connect_seconds=2.0)
            stack.callback(client.close)
            authority = make_authority(client, settings, service.metrics, service.clock)
            stack.callback(authority.close)
            service.authority.use(authority)
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        app = make_app(service)
        server = make_server(settings, app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive())
            assert thread.is_alive()
            port = listening.getsockname()[1]
            yield Running(service, app, server, f"http://127.0.0.1:{port}", f"https://127.0.0.1:{server.tls_port}")
        finally:
            server.should_exit = True
            thread.join(PATIENCE_SECONDS)


def token_status(username: str, *, audience: str = AUDIENCE, node: str | None = None, **extra: str) -> dict[str, Any]:
    """What TokenReview answers about a good token."""
    names = {f"authentication.kubernetes.io/{name.replace('_', '-')}": [value] for name, value in extra.items()}
    if node is not None:
        names["authentication.kubernetes.io/node-name"] = [node]
    return {
        "authenticated": True,
        "audiences": [audience],
        "user": {"username": username, "uid": username, "groups": ["system:authenticated"], "extra": names},
    }


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
