"""The server and clients that the tests here share. Real sockets on loopback; nothing is mocked."""

from collections.abc import Iterator

import pytest

from extender.kube.access import plain
from extender.kube.client import KubeClient
from tests.fakes.apiserver import FakeApiServer


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer(bookmark_seconds=0.1) as running:
        yield running


@pytest.fixture
def client(server: FakeApiServer) -> Iterator[KubeClient]:
    connected = KubeClient(plain(server.url), connect_seconds=2.0)
    yield connected
    connected.close()
