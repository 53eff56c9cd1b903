"""What a real kube-scheduler sent is answered in the exact shape that it reads."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.samples.nodes import Workload
from tests.recordings import of_verb
from tests.reports import report_of, sample

GPU = "gpu-vendor.example/gpu"
FILTERS, PRIORITIZES = of_verb("filter"), of_verb("prioritize")


@pytest.fixture(scope="module")
def empty() -> Iterator[http.client.HTTPConnection]:
    """An extender that knows no node."""
    with serving(make_service(Settings(port=0))) as url, _connected(url) as connection:
        yield connection


@pytest.fixture(scope="module")
def informed() -> Iterator[http.client.HTTPConnection]:
    """An extender that knows two of the recorded nodes: one is empty, on the other nothing is free."""
    full = [Workload(name="all", copies=2, resources={"cpu": 14, "memory": "4Gi"})]
    nodes = [
        sample("worker-a", devices={GPU: [0, 1]}),
        sample("worker-b", devices={GPU: [0, 1]}, workloads=full),
    ]
    with serving(make_service(Settings(port=0))) as url, _connected(url) as connection:
        for node in nodes:
            assert _call(connection, "PUT", f"/v1/nodes/{node.name}/report", report_of(node))["problems"] == []
        yield connection


def test_there_are_recordings_of_both_forms() -> None:
    for requests in (FILTERS, PRIORITIZES):
        assert {form for form, _ in requests} == {"node-names", "full-nodes"}
    assert len(FILTERS) + len(PRIORITIZES) > 40


@pytest.mark.parametrize(("form", "request_"), FILTERS)
def test_unknown_nodes_pass_filter_in_order(
    empty: http.client.HTTPConnection, form: str, request_: dict[str, Any]
) -> None:
    reply = _send(empty, request_)

    _check_filter_shape(reply, form)
    assert _names(reply, form) == _asked(request_["body"])
    assert reply["FailedNodes"] == reply["FailedAndUnresolvableNodes"] == {}


@pytest.mark.parametrize(("form", "request_"), FILTERS)
def test_every_candidate_stands_in_exactly_one_list(
    informed: http.client.HTTPConnection, form: str, request_: dict[str, Any]
) -> None:
    reply = _send(informed, request_)

    _check_filter_shape(reply, form)
    passed, failed = _names(reply, form), reply["FailedAndUnresolvableNodes"]
    asked = _asked(request_["body"])
    assert passed == [name for name in asked if name not in failed]
    assert set(failed) <= set(asked)
    assert reply["FailedNodes"] == {}
    if form == "full-nodes":
        items = {item["metadata"]["name"]: item for item in request_["body"]["Nodes"]["items"]}
        assert reply["Nodes"]["items"] == [items[name] for name in passed]


def test_a_full_node_is_refused_for_a_pod_that_needs_its_cpus(informed: http.client.HTTPConnection) -> None:
    form, request_ = next(
        (f, r) for f, r in FILTERS if r["body"]["Pod"]["metadata"]["name"] == "guaranteed-1" and f == "node-names"
    )

    reply = _send(informed, request_)

    assert "worker-a" in _names(reply, form)
    assert "worker-b" in reply["FailedAndUnresolvableNodes"]


@pytest.mark.parametrize(("_form", "request_"), PRIORITIZES)
@pytest.mark.parametrize("server", ["empty", "informed"])
def test_prioritize_gives_each_candidate_an_int(
    request: pytest.FixtureRequest, server: str, _form: str, request_: dict[str, Any]
) -> None:
    reply = _send(request.getfixturevalue(server), request_)

    asked = _asked(request_["body"])
    assert sorted(entry["Host"] for entry in reply) == sorted(asked)  # kube-scheduler uses no order
    for entry in reply:
        assert entry.keys() == {"Host", "Score"}
        assert type(entry["Score"]) is int
        assert 0 <= entry["Score"] <= 10


def _connected(url: str) -> closing[http.client.HTTPConnection]:
    return closing(http.client.HTTPConnection(urlsplit(url).netloc))


def _send(connection: http.client.HTTPConnection, recorded: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    """Send a recorded request with the headers that the scheduler sent."""
    body = orjson.dumps(recorded["body"])
    headers = {k: v for k, v in recorded["headers"].items() if k not in ("Host", "Content-Length")}
    connection.request(recorded["method"], recorded["path"], body, headers)
    response = connection.getresponse()
    reply = response.read()
    assert response.status == 200
    return orjson.loads(reply)


def _call(connection: http.client.HTTPConnection, method: str, path: str, document: object) -> Any:  # noqa: ANN401 - JSON
    connection.request(method, path, orjson.dumps(document))
    response = connection.getresponse()
    reply = response.read()
    assert response.status == 200, reply
    return orjson.loads(reply)


def _asked(body: dict[str, Any]) -> list[str]:
    if body["NodeNames"] is not None:
        return list(body["NodeNames"])
    return [item["metadata"]["name"] for item in body["Nodes"]["items"]]


def _names(reply: dict[str, Any], form: str) -> list[str]:
    if form == "node-names":
        return list(reply["NodeNames"])
    return [item["metadata"]["name"] for item in reply["Nodes"]["items"]]


def _check_filter_shape(reply: dict[str, Any], form: str) -> None:
    """Both lists null would mean that no node fits; the one that was not asked for must be null."""
    assert reply.keys() == {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
    assert reply["Error"] == ""
    absent = "Nodes" if form == "node-names" else "NodeNames"
    assert reply[absent] is None
    for reason in reply["FailedAndUnresolvableNodes"].values():
        assert isinstance(reason, str)
        assert reason
