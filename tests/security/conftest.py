"""One service over real TLS sockets for the whole module, and an API server that knows some tokens."""

from collections.abc import Iterator

import pytest

from extender.config.settings import Settings
from extender.identity import AccessScope
from extender.kube.authority import GRANTS
from tests.fakes.apiserver import FakeApiServer
from tests.security.running import EXPORTER, READER, Files, Running, make_files, running, token_status


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def api_server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as server:
        access = server.access
        access.reviews["exporter-a"] = token_status(EXPORTER, node="node-a")
        access.reviews["exporter-unbound"] = token_status(EXPORTER)
        access.reviews["exporter-elsewhere"] = token_status(EXPORTER, audience="vault", node="node-a")
        access.reviews["pod-on-node-a"] = token_status("system:serviceaccount:default:default", node="node-a")
        access.reviews["exporter-b"] = token_status(EXPORTER, node="node-b")
        for scope in AccessScope:
            access.reviews[f"only-{scope}"] = token_status(f"only-{scope}", node="node-a")
            access.permissions.add((f"only-{scope}", *GRANTS[scope]))
        access.reviews["admin"] = token_status("admin")
        access.permissions |= {("admin", *grant) for grant in GRANTS.values()}
        access.reviews["nothing"] = token_status("nobody-in-particular")
        access.permissions.add((EXPORTER, *GRANTS[AccessScope.REPORT]))
        access.reviews["reader"] = token_status(READER)
        access.permissions |= {(READER, *GRANTS[AccessScope.READ]), (READER, *GRANTS[AccessScope.METRICS])}
        yield server


@pytest.fixture(scope="module")
def extender(files: Files, api_server: FakeApiServer) -> Iterator[Running]:
    settings = Settings(
        port=0, drain_seconds=0, refused_rate=1e6, loopback_scopes=frozenset({AccessScope.SCHEDULE}), **files.settings
    )
    with running(settings, api_server) as service:
        yield service
