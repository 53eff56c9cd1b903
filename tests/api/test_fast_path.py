"""The short way to kube-scheduler's verbs: inside of the gate, and the very endpoints that are documented."""

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient

from extender.api.scheduler import BIND, FILTER, PRIORITIZE
from extender.api.service import Service
from extender.app import make_app
from tests.reports import args_of, pod_of


def test_every_path_with_a_short_way_is_documented_and_answers_nothing_but_post(
    client: TestClient,
) -> None:
    documented = client.get("/openapi.json").json()["paths"]

    for path in (FILTER, PRIORITIZE, BIND):
        assert set(documented[path]) == {"post"}
        assert client.get(path).status_code == 405


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
def test_the_gate_stands_before_the_short_way(service: Service, verb: str) -> None:
    with TestClient(make_app(service), client=("192.0.2.1", 50_000)) as stranger:
        reply = stranger.post(f"/scheduler/{verb}", json=args_of(pod_of(1), "n"))

    assert reply.status_code == 401
    assert len(service.records.decisions) == 0


@pytest.mark.parametrize(("path", "status"), [(FILTER, 200), (PRIORITIZE, 422), (BIND, 200)])
def test_the_short_way_needs_none_of_the_documented_routes(service: Service, path: str, status: int) -> None:
    app = make_app(service)
    app.router.routes[:] = [route for route in app.router.routes if not isinstance(route, APIRoute)]
    with TestClient(app, client=("127.0.0.1", 50_000)) as client:
        assert client.post(path, json={}).status_code == status
