"""Preempt requests of a real kube-scheduler, over the real server, in both forms."""

import http.client
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.samples.nodes import SampleNode, Workload
from tests.recordings import of_verb
from tests.reports import DUAL, report_of, sample

PREEMPTS = of_verb("preempt")
URGENT = [(form, request) for form, request in PREEMPTS if request["body"]["Pod"]["metadata"]["name"] == "urgent-1"]
LARGE = replace(DUAL, cores_per_numa=16)
"""2 NUMA nodes of 32 CPUs: one pod of 24 CPUs on each fills the machine."""


@pytest.fixture
def connection() -> Iterator[http.client.HTTPConnection]:
    url_of = serving(make_service(Settings(port=0)))
    with url_of as url, closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:
        yield connection


def test_both_forms_were_recorded() -> None:
    assert {form for form, _ in PREEMPTS} == {form for form, _ in URGENT} == {"node-names", "full-nodes"}


@pytest.mark.parametrize(("_form", "request_"), PREEMPTS)
def test_nodes_that_nothing_is_known_of_keep_their_victims(
    connection: http.client.HTTPConnection, _form: str, request_: dict[str, Any]
) -> None:
    assert _send(connection, request_) == request_["response"]


@pytest.mark.parametrize(("_form", "request_"), URGENT)
def test_a_node_is_dropped_where_the_victims_would_die_for_nothing(
    connection: http.client.HTTPConnection, _form: str, request_: dict[str, Any]
) -> None:
    """worker-a: the victim holds the NUMA node that is wanted. worker-b: it holds nothing. worker-c-bad: not known."""
    expected = request_["response"]["NodeNameToMetaVictims"]
    filler = expected["worker-a"]["Pods"][0]["UID"]
    two = [Workload(name="w", copies=2, resources={"cpu": 24, "memory": "1Gi"})]
    for name, uid in (("worker-a", filler), ("worker-b", "another-pod")):
        _report(connection, sample(name, hardware=LARGE, workloads=two), uid)

    reply = _send(connection, request_)

    assert reply == {"NodeNameToMetaVictims": {name: expected[name] for name in ("worker-a", "worker-c-bad")}}


def _report(connection: http.client.HTTPConnection, node: SampleNode, uid: str) -> None:
    """Report the node, its first pod under another UID."""
    body = orjson.dumps(report_of(node)).replace(node.pods[0]["metadata"]["uid"].encode(), uid.encode())
    connection.request("PUT", f"/v1/nodes/{node.name}/report", body)
    response = connection.getresponse()
    assert response.status == 200, response.read()
    response.read()


def _send(connection: http.client.HTTPConnection, recorded: dict[str, Any]) -> Any:  # noqa: ANN401 - JSON
    headers = {k: v for k, v in recorded["headers"].items() if k not in ("Host", "Content-Length")}
    connection.request(recorded["method"], recorded["path"], orjson.dumps(recorded["body"]), headers)
    response = connection.getresponse()
    reply = response.read()
    assert response.status == 200, reply
    return orjson.loads(reply)
