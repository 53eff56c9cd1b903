"""The world of these tests, with one full node in the pool `big`."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from tests.fakes.apiserver import FakeApiServer
from tests.features.autoscaling.scale_up_world import FULL, ScaleUpWorld
from tests.reports import sample
from tests.world.clock import Clock


@pytest.fixture(params=["on"])
def world(request: pytest.FixtureRequest) -> Iterator[ScaleUpWorld]:
    clock = Clock()
    service = make_service(Settings(autoscaling=request.param), clock)
    with FakeApiServer() as server, TestClient(make_app(service), client=("127.0.0.1", 1)) as client:
        made = ScaleUpWorld(server, client, service, clock)
        made.node(sample("old-a", workloads=FULL), "big")
        yield made
        made.kube.close()
