"""Demands for alignment through the scheduler's protocol: recorded requests with annotations, and the bind gate."""

import copy
import http.client
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.samples.nodes import SampleNode, Workload
from tests.contract.live import Client, cluster, kubeconfig
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.k8s.access import ANONYMOUS
from tests.recordings import of_verb
from tests.reports import DUAL, pod_of, report_of, sample
from tests.waiting import until

Json = dict[str, Any]
KEY = "numa-extender.io/alignment"
FILLERS = [(f, r) for f, r in of_verb("filter") if r["body"]["Pod"]["metadata"]["name"] == "filler-0"]
BURSTABLE = [(f, r) for f, r in of_verb("filter") if r["body"]["Pod"]["metadata"]["name"] == "burstable-1"]
URGENT = [(f, r) for f, r in of_verb("preempt") if r["body"]["Pod"]["metadata"]["name"] == "urgent-1"]
LARGE = replace(DUAL, cores_per_numa=16)
"""2 NUMA nodes of 32 CPUs. The recorded pods filler-N want 24."""
SPLIT = "the pod demands one NUMA node and would be split on the node"


@pytest.fixture
def connection() -> Iterator[http.client.HTTPConnection]:
    with (
        serving(make_service(Settings(port=0))) as url,
        closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection,
    ):
        yield connection


def _best_effort(name: str, *taken: int, policy: str = "best-effort") -> SampleNode:
    """A node that admits whatever the totals allow; pods hold *taken* CPUs, and the first of three left."""
    sizes = dict.fromkeys(taken)
    workloads = [
        Workload(
            name=f"w{cpus}",
            copies=taken.count(cpus),
            gone=[0] if taken.count(cpus) > 2 else [],
            resources={"cpu": cpus, "memory": "1Gi"},
        )
        for cpus in sizes
    ]
    return sample(name, hardware=LARGE, workloads=workloads, topologyManagerPolicy=policy, memoryManagerPolicy="None")


@pytest.mark.parametrize(("form", "recorded"), FILLERS)
@pytest.mark.parametrize("policy", ["best-effort", "none"])
def test_a_recorded_pod_that_demands_one_numa_node_is_kept_from_nodes_that_would_split_it(
    connection: http.client.HTTPConnection, form: str, recorded: Json, policy: str
) -> None:
    names = _candidates(recorded)
    first = _best_effort(names[0], 10, 10, 10, 10, policy=policy)
    second = _best_effort(names[1], 2, policy=policy)
    for node in (first, second):
        _call(connection, "PUT", f"/v1/nodes/{node.name}/report", report_of(node))

    plain = _send(connection, recorded)
    reply = _send(connection, _demanding(recorded, "single-numa-node"))

    assert not plain["FailedAndUnresolvableNodes"]
    assert reply["Error"] == ""
    assert _passed(reply, form) == [names[1]]
    refused = reply["FailedAndUnresolvableNodes"]
    assert refused[names[0]] == SPLIT
    assert all("not known where" in refused[name] for name in names[2:])


@pytest.mark.parametrize(("form", "recorded"), FILLERS + BURSTABLE)
def test_a_value_that_is_not_understood_keeps_the_pod_pending_and_is_named(
    connection: http.client.HTTPConnection, form: str, recorded: Json
) -> None:
    names = _candidates(recorded)
    _call(connection, "PUT", f"/v1/nodes/{names[0]}/report", report_of(_best_effort(names[0])))

    reply = _send(connection, _demanding(recorded, "single-numa"))

    assert reply["Error"] == ""
    assert _passed(reply, form) == []
    (reason,) = set(reply["FailedAndUnresolvableNodes"].values())
    assert reply["FailedAndUnresolvableNodes"].keys() == set(names)
    assert reason == (
        f"the pod's demand for alignment is not understood: annotation {KEY} has the unknown value 'single-numa'; "
        "use single-numa-node, same-socket, preferred, none"
    )
    metrics = _call(connection, "GET", "/metrics").decode()
    assert 'result="the pod\'s demand for alignment is not understood"' in metrics
    assert "single-numa'" not in metrics, "what a person wrote makes no series"


@pytest.mark.parametrize(("_form", "recorded"), URGENT)
def test_preempt_adds_the_victims_that_the_demand_needs(
    connection: http.client.HTTPConnection, _form: str, recorded: Json
) -> None:
    """The victim that the scheduler proposes for worker-a makes room on one NUMA node, on worker-b on none."""
    expected = recorded["response"]["NodeNameToMetaVictims"]
    filler = expected["worker-a"]["Pods"][0]["UID"]
    for name, uid in (("worker-a", filler), ("worker-b", "another-pod")):
        node = _best_effort(name, 19, 19)
        body = orjson.dumps(report_of(node)).replace(node.pods[0]["metadata"]["uid"].encode(), uid.encode())
        _call(connection, "PUT", f"/v1/nodes/{name}/report", orjson.loads(body))

    plain = _send(connection, recorded)
    reply = _send(connection, _demanding(recorded, "single-numa-node"))

    assert plain["NodeNameToMetaVictims"].keys() == expected.keys()
    assert reply == {"NodeNameToMetaVictims": {"worker-a": expected["worker-a"]}}


def test_bind_checks_the_demand_again(tmp_path: Path) -> None:
    """Filter saw a free NUMA node; a pod that was bound meanwhile has taken it."""
    with cluster(tmp_path, "node-a") as (server, _service, client):
        client.report(report_of(_best_effort("node-a", 20)))
        demanding, other = pod_of(16, name="demanding"), pod_of(22, name="other")
        demanding["metadata"]["annotations"] = {KEY: "single-numa-node"}
        for pod in (demanding, other):
            server.pods.create(pod)
            assert client.filter(pod, "node-a")["NodeNames"] == ["node-a"]

        assert client.bind(other, "node-a") == ""
        refused = client.bind(demanding, "node-a")

        assert "demands one NUMA node" in refused
        assert client.filter(demanding, "node-a")["FailedAndUnresolvableNodes"]["node-a"] == SPLIT
        plain = pod_of(16, name="plain")
        server.pods.create(plain)
        client.filter(plain, "node-a")
        assert client.bind(plain, "node-a") == "", "a pod without a demand may be split"


def _demanding(recorded: Json, value: str) -> Json:
    changed = copy.deepcopy(recorded)
    changed["body"]["Pod"]["metadata"].setdefault("annotations", {})[KEY] = value
    return changed


def _candidates(recorded: Json) -> list[str]:
    body = recorded["body"]
    return body["NodeNames"] or [item["metadata"]["name"] for item in body["Nodes"]["items"]]


def _passed(reply: Json, form: str) -> list[str]:
    return reply["NodeNames"] if form == "node-names" else [i["metadata"]["name"] for i in reply["Nodes"]["items"]]


def _send(connection: http.client.HTTPConnection, recorded: Json) -> Any:  # noqa: ANN401 - JSON
    """Send a recorded request with the headers that the scheduler sent."""
    headers = {k: v for k, v in recorded["headers"].items() if k not in ("Host", "Content-Length")}
    connection.request(recorded["method"], recorded["path"], orjson.dumps(recorded["body"]), headers)
    return _reply(connection)


def _call(connection: http.client.HTTPConnection, method: str, path: str, document: object = None) -> Any:  # noqa: ANN401
    connection.request(method, path, orjson.dumps(document))
    return _reply(connection)


def _reply(connection: http.client.HTTPConnection) -> Any:  # noqa: ANN401 - JSON, or text
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, body
    return orjson.loads(body) if body[:1] in b"[{" else body


def test_a_pod_that_was_placed_against_its_demand_is_shown_and_counted(tmp_path: Path) -> None:
    """Another scheduler's pod arrives at the kubelet first: the demanding pod gets CPUs of both NUMA nodes."""
    with cluster(tmp_path, "node-a") as (server, _service, client):
        client.report(report_of(_best_effort("node-a")))
        pod = pod_of(22, name="w22-0")
        pod["metadata"]["annotations"] = {KEY: "single-numa-node"}
        happened = sample(
            "node-a",
            hardware=LARGE,
            topologyManagerPolicy="best-effort",
            memoryManagerPolicy="None",
            workloads=[
                Workload(name="w19", copies=2, resources={"cpu": 19, "memory": "1Gi"}),
                Workload(name="w22", resources={"cpu": 22, "memory": "1Gi"}),
            ],
        )
        pod["metadata"]["uid"] = happened.pods[-1]["metadata"]["uid"]
        server.pods.create(pod)
        client.filter(pod, "node-a")
        assert client.bind(pod, "node-a") == ""

        client.report(report_of(happened, sequence=2))

        demands = client.call("GET", "/v1/audit")[1]["demands"]
        assert (demands["met"], demands["broken"], demands["not_known"]) == (0, 1, 0)
        (shown,) = demands["recent"]
        assert (shown["pod_name"], shown["broken"], shown["demand"]) == ("w22-0", "numa-nodes", "single-numa-node")
        assert shown["reported"].startswith("app: CPUs ")
        assert b'numa_extender_demands_total{result="broken"} 1.0' in client.call("GET", "/metrics")[1]
        assert server.pods.get("w22-0") is not None, "nothing is deleted"


def test_labels_of_a_namespace_are_the_default_for_its_pods(tmp_path: Path) -> None:
    node = _best_effort("node-a", 10, 10, 10, 10)
    pod, own, other = (pod_of(24, name=name) for name in ("pod", "own", "other"))
    own["metadata"]["annotations"] = {KEY: "none"}
    other["metadata"]["namespace"] = "other"
    with cluster(tmp_path, "node-a", namespace_demands="on") as (server, service, client):
        server.namespaces.create({"metadata": {"name": "default", "labels": {KEY: "single-numa-node"}}})
        server.namespaces.create({"metadata": {"name": "other", "labels": {"team": "a"}}})
        until(lambda: "default" in service.known.demands)
        client.report(report_of(node))

        refused = client.filter(pod, "node-a")["FailedAndUnresolvableNodes"]
        assert refused == {"node-a": SPLIT}
        assert client.call("POST", "/scheduler/prioritize", _request(pod))[1] == [{"Host": "node-a", "Score": 0}]
        (answer,) = client.call("POST", "/v1/what-if", {"pod": pod})[1]["nodes"]
        assert answer["why"] == SPLIT
        for free in (own, other):
            assert client.filter(free, "node-a")["NodeNames"] == ["node-a"]

        server.namespaces.patch("default", {"metadata": {"labels": {KEY: "strict"}}}, "")
        until(lambda: bool(service.known.demands["default"].fault))
        (reason,) = client.filter(pod, "node-a")["FailedAndUnresolvableNodes"].values()
        assert "the label of namespace default: numa-extender.io/alignment has the unknown value 'strict'" in reason

        server.namespaces.patch("default", {"metadata": {"labels": {KEY: None}}}, "")
        until(lambda: not service.known.demands)
        assert client.filter(pod, "node-a")["NodeNames"] == ["node-a"]


def test_filter_refuses_to_answer_before_namespaces_are_listed(tmp_path: Path) -> None:
    """Without the right to list them, no pod is placed as if it demanded nothing."""
    rights = {(verb, resource) for verb in ("list", "watch") for resource in ("pods", "nodes")}
    budgets = {(verb, "policy/poddisruptionbudgets") for verb in ("list", "watch")}
    missing = "namespaces are not listed yet"
    with FakeApiServer(bookmark_seconds=0.2) as server:
        server.access.grants = {ANONYMOUS: rights | budgets}
        service = make_service(Settings(port=0, kubeconfig=kubeconfig(tmp_path, server.url), namespace_demands="on"))
        with serving(service) as url, closing(Client(url)) as client:
            until(lambda: service.known.link.trouble == missing)
            assert client.filter(pod_of(2), "node-a")["Error"] == f"numa-extender: {missing}"
            assert client.call("GET", "/readyz")[0] == 503

            server.access.grants[ANONYMOUS] |= {("list", "namespaces"), ("watch", "namespaces")}

            until(lambda: not service.known.link.trouble)
            assert client.filter(pod_of(2), "node-a")["NodeNames"] == ["node-a"]


def _request(pod: Json) -> Json:
    return {"Pod": pod, "Nodes": None, "NodeNames": ["node-a"]}


def test_a_pod_says_which_resources_and_which_containers_must_be_aligned(tmp_path: Path) -> None:
    """20 CPUs are on two NUMA nodes of the node, whatever the rest is; the kubelet would admit the pod."""
    with cluster(tmp_path, "node-a") as (server, _service, client):
        client.report(report_of(sample("node-a", topologyManagerPolicy="none", memoryManagerPolicy="None")))

        def why(**annotations: str) -> str:
            pod = pod_of(20, name="p")
            container = pod["spec"]["containers"][0]
            limits = {"cpu": "2", "memory": "1Gi"}
            proxy = {**container, "name": "proxy", "resources": {"limits": limits, "requests": limits}}
            pod["spec"]["containers"] = [container, proxy]
            keys = {key.replace("_", "-").replace("--", "."): text for key, text in annotations.items()}
            pod["metadata"]["annotations"] = {f"numa-extender.io/{key}": text for key, text in keys.items()}
            reply = client.filter(pod, "node-a")
            return str({**reply["FailedNodes"], **reply["FailedAndUnresolvableNodes"]}.get("node-a", ""))

        assert why() == ""
        assert why(alignment_resources="cpu") == SPLIT
        assert "local memory" in why(alignment_resources="cpu,memory"), "nothing pins memory there"
        assert why(alignment_resources="devices", alignment__proxy="none") != ""
        assert why(alignment="single-numa-node", alignment__app="none") == ""
        assert why(alignment__proxy="single-numa-node") == ""
        assert why(alignment__app="single-numa-node") == SPLIT
        assert "names no container of the pod" in why(alignment__other="none")
        assert not server.pods.list()
