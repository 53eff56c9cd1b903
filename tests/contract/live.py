"""An extender connected with a fake API server over real sockets, and a client that speaks the scheduler's protocol."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import yaml

from extender.api.service import Service
from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from tests.fakes.apiserver import FakeApiServer
from tests.reports import args_of
from tests.waiting import PATIENCE_SECONDS, until
from tests.world.scheduler import binding_of

Json = dict[str, Any]


class Client:
    """One connection for each thread that uses it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._address = urlsplit(url).netloc
        self._local = threading.local()
        self._open: list[http.client.HTTPConnection] = []

    def close(self) -> None:
        for connection in self._open:
            connection.close()

    def call(self, method: str, path: str, document: object = None) -> tuple[int, Any]:
        """Status and parsed body."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = http.client.HTTPConnection(self._address, timeout=PATIENCE_SECONDS)
            self._open.append(connection)
        body = b"" if document is None else orjson.dumps(document)
        connection.request(method, path, body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        said = response.read()
        return response.status, orjson.loads(said) if said.startswith((b"{", b"[")) else said

    def filter(self, pod: Json, *names: str) -> Json:
        status, reply = self.call("POST", "/scheduler/filter", args_of(pod, *names))
        assert status == 200
        return dict(reply)

    def bind(self, pod: Json, node: str, **changed: str) -> str:
        """The error, empty if there is none."""
        status, reply = self.call("POST", "/scheduler/bind", binding_of(pod, node, **changed))
        assert status == 200
        assert reply.keys() == {"Error"}
        return str(reply["Error"])

    def report(self, document: Json) -> None:
        status, reply = self.call("PUT", f"/v1/nodes/{document['node_name']}/report", document)
        assert status == 200, reply


@contextmanager
def cluster(directory: Path, *nodes: str, **settings: Any) -> Iterator[tuple[FakeApiServer, Service, Client]]:
    """An API server with these nodes, and an extender that has synced with it; it answers questions in this process."""
    with FakeApiServer(bookmark_seconds=0.2) as server:
        for name in nodes:
            server.nodes.create({"metadata": {"name": name}})
        chosen = {"question_workers": 0, **settings}
        service = make_service(Settings(port=0, kubeconfig=kubeconfig(directory, server.url), **chosen))
        with serving(service) as url, closing(Client(url)) as client:
            until(lambda: client.call("GET", "/readyz")[0] == 200)
            yield server, service, client


def kubeconfig(directory: Path, url: str) -> Path:
    """A file that leads to an API server which asks nobody who they are."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path
