"""An extender with a clock of its own, spoken to without sockets."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings
from tests.world.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(clock: Clock) -> Service:
    return make_service(
        Settings(max_nodes=3, max_body_bytes=1 << 20, max_scheduler_body_bytes=1 << 20, question_workers=0), clock
    )


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        yield client
