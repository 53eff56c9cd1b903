"""The bind gate, the watches and the audit against a fake API server: real sockets, nothing mocked."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from extender.api.service import Service
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode, Workload
from extender.scheduling.reasons import RefusalReason
from tests.contract.live import Client, cluster
from tests.fakes.apiserver import FakeApiServer
from tests.recordings import recorded
from tests.reports import pod_of, report_of, sample, with_init
from tests.waiting import until
from tests.world.kubelet import Kubelet

Json = dict[str, Any]
Live = tuple[FakeApiServer, Service, Client]
GPU = "gpu-vendor.example/gpu"


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with cluster(tmp_path, "node-a", "node-b") as running:
        yield running


def _run(node: SampleNode, server: FakeApiServer, service: Service, client: Client) -> None:
    """Its pods are known as running on it, and then it reports: in the other order they would be in doubt."""
    for pod in node.pods:
        server.pods.create({**pod, "spec": {**pod["spec"], "nodeName": node.name}})
    until(lambda: all(service.known.pods.get(pod["metadata"]["uid"]).bound_to == node.name for pod in node.pods))
    client.report(report_of(node))


def _create(server: FakeApiServer, name: str, cpu: int = 4, node: str = "") -> Json:
    """A pod in the API server, as the scheduler would send it."""
    pod = pod_of(cpu, name=name)
    if node:
        pod["spec"]["nodeName"] = node
    return server.pods.create(pod)


def _node_of(server: FakeApiServer, name: str) -> str:
    pod = server.pods.get(name)
    assert pod is not None
    return str(pod["spec"].get("nodeName", ""))


def _passed(client: Client, cpu: int, *names: str) -> list[str]:
    return list(client.filter(pod_of(cpu, name=f"probe-{cpu}"), *names)["NodeNames"])


def test_a_pod_is_bound_and_its_room_is_taken(live: Live) -> None:
    server, service, client = live
    client.report(report_of(sample("node-a")))
    pod = _create(server, "p", 14)
    assert client.filter(pod, "node-a")["NodeNames"] == ["node-a"]

    assert client.bind(pod, "node-a") == ""

    assert _node_of(server, "p") == "node-a"
    assert _passed(client, 16, "node-a") == ["node-a"]  # the other NUMA node
    second = _create(server, "second", 16)
    client.filter(second, "node-a")
    assert client.bind(second, "node-a") == ""
    assert _passed(client, 2, "node-a") == []
    assert service.known.nodes.pods_in_flight == 2


def test_the_filter_of_the_next_pod_may_come_before_the_bind_of_the_last(live: Live) -> None:
    """Both pods pass filter for the last slot; bind decides, and says so."""
    server, service, client = live
    full = [Workload(name="w", resources={"cpu": 16, "memory": "1Gi"})]
    node = sample("node-a", workloads=full)
    _run(node, server, service, client)
    first, second = _create(server, "first", 10), _create(server, "second", 10)
    assert client.filter(first, "node-a")["NodeNames"] == ["node-a"]
    assert client.filter(second, "node-a")["NodeNames"] == ["node-a"]

    assert client.bind(first, "node-a") == ""
    error = client.bind(second, "node-a")

    assert "NUMA alignment is not possible on the node now" in error
    assert _node_of(server, "second") == ""


def test_a_repeated_bind_is_answered_as_the_first(live: Live) -> None:
    server, service, client = live
    client.report(report_of(sample("node-a")))
    pod = _create(server, "p")
    client.filter(pod, "node-a", "node-b")
    assert [client.bind(pod, "node-a") for _ in range(3)] == ["", "", ""]

    assert "is on node node-a already" in client.bind(pod, "node-b")
    assert service.known.nodes.pods_in_flight == 1


def test_what_cannot_be_bound_changes_nothing(live: Live) -> None:
    server, service, client = live
    client.report(report_of(sample("node-a")))
    pod = _create(server, "p")
    assert "no filter call has described the pod" in client.bind(pod, "node-a")
    client.filter(pod, "node-a")

    assert "there is no node node-z" in client.bind(pod, "node-z")
    assert "is default/p" in client.bind(pod, "node-a", PodName="other")
    assert "PodUID" in client.bind(pod, "node-a", PodUID="")
    server.pods.delete("p")
    _create(server, "p")  # made anew under its name: another UID
    made_anew = server.pods.patch("p", {"metadata": {"labels": {"a": "b"}}})
    assert made_anew["metadata"]["uid"] != "" or pod
    assert service.known.nodes.pods_in_flight == 0


def test_a_pod_that_no_longer_exists_gives_its_room_back(live: Live) -> None:
    server, service, client = live
    client.report(report_of(sample("node-a")))
    pod = _create(server, "p", 16)
    client.filter(pod, "node-a")
    server.pods.delete("p")

    assert "there is no such pod" in client.bind(pod, "node-a")

    assert service.known.nodes.pods_in_flight == 0
    assert _passed(client, 16, "node-a") == ["node-a"]


def test_a_binding_of_which_nobody_knows_keeps_its_room_until_the_watch_tells(live: Live) -> None:
    server, service, client = live
    client.report(report_of(sample("node-a")))
    pod = _create(server, "p", 16)
    client.filter(pod, "node-a")
    server.faults.drop(500, "before", verb="create")
    server.faults.fail(500, 500, verb="get")

    assert client.bind(pod, "node-a") != ""
    server.faults.clear()

    assert service.known.nodes.pods_in_flight == 1
    assert _passed(client, 16, "node-a") == []
    assert client.bind(pod, "node-a") == ""
    assert _node_of(server, "p") == "node-a"
    assert service.known.nodes.pods_in_flight == 1


def test_pods_bound_by_others_are_charged_and_pods_that_leave_are_not(live: Live) -> None:
    server, service, client = live
    client.report(report_of(sample("node-a")))
    _create(server, "foreign", 16, node="node-a")
    until(lambda: _passed(client, 16, "node-a") == [])

    server.pods.delete("foreign")

    until(lambda: _passed(client, 16, "node-a") == ["node-a"])
    server.nodes.delete("node-a")
    until(lambda: service.known.nodes.get("node-a") is None)


def test_not_ready_and_no_answers_before_everything_is_listed(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a") as (_, service, client):
        service.known.link.trouble = "pods and nodes are not listed yet"
        assert "not listed yet" in client.filter(pod_of(name="p"), "node-a")["Error"]
        assert client.call("GET", "/readyz")[0] == 503
        until(lambda: client.call("GET", "/readyz")[0] == 200)


def test_without_an_api_server_there_is_no_bind_verb(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a") as (server, service, client):
        service.known.link.binder = None
        assert "leave `bindVerb` out" in client.bind(_create(server, "p"), "node-a")


def test_a_refusal_of_the_kubelet_stands_in_the_audit(live: Live) -> None:
    server, _, client = live
    client.report(report_of(sample("node-a")))
    for name in ("agreed", "refused"):
        pod = _create(server, name)
        client.filter(pod, "node-a")
        assert client.bind(pod, "node-a") == ""
    rejected = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no locality"}
    server.pods.patch("refused", {"status": rejected})

    until(lambda: bool(client.call("GET", "/v1/audit")[1]["recent"]))
    _, audit = client.call("GET", "/v1/audit")

    assert audit["nodes"] == [{"name": "node-a", "disagreements": 1, "results": 1, "distrusted": False}]
    assert audit["recent"][0]["kind"]["result"] == "false_admit"
    assert audit["counts"][0] | {"count": 1} == {
        "policy": "single-numa-node",
        "scope": "container",
        "version": "1.36",
        "certainty": "exact",
        "result": "false_admit",
        "count": 1,
    }
    assert audit["pods_in_flight"] == 1


@pytest.mark.parametrize("form", ["node-names"])
def test_recorded_traffic_is_answered_verb_by_verb(tmp_path: Path, form: str) -> None:
    """All that a real scheduler sent, in its order: filter calls overtake bind calls there."""
    nodes = sorted({n for r in recorded(form) for n in r["body"].get("NodeNames") or ()})
    with cluster(tmp_path, *nodes) as (server, service, client):
        for name in nodes:
            client.report(report_of(sample(name, devices={GPU: [0, 1]})))
        bound, overtaken = 0, 0
        waiting: set[str] = set()
        for request in recorded(form):
            verb, body = request["path"].rsplit("/", 1)[1], request["body"]
            if verb == "filter":
                metadata = body["Pod"]["metadata"]
                overtaken += bool(waiting - {metadata["uid"]})
                waiting.add(metadata["uid"])
                if server.pods.get(metadata["name"], metadata["namespace"]) is None:
                    server.pods.create(body["Pod"])
            status, reply = client.call("POST", f"/scheduler/{verb}", body)
            assert status == 200
            if verb == "bind":
                waiting.discard(body["PodUID"])
                bound += reply["Error"] == ""
        assert service.known.nodes.pods_in_flight <= bound
        if any(r["path"].endswith("/bind") for r in recorded(form)):
            assert bound
            assert overtaken


def test_200_pods_race_for_the_last_aligned_slot_of_20_nodes(tmp_path: Path) -> None:
    """Every node has one slot of 16 CPUs left: 20 pods get one, and the naive kubelets admit each."""
    names = [f"n{i}" for i in range(20)]
    full = [Workload(name="w", resources={"cpu": 14, "memory": "1Gi"})]
    nodes = {name: sample(name, workloads=full) for name in names}
    with cluster(tmp_path, *names, max_scheduler_calls=300) as (server, service, client):
        for node in nodes.values():
            client.report(report_of(node))
        pods = [_create(server, f"p{i}", 16) for i in range(200)]
        with ThreadPoolExecutor(16) as threads:
            offered = list(threads.map(lambda pod: client.filter(pod, *names)["NodeNames"], pods))
            assert all(each == names for each in offered)
            errors = list(threads.map(lambda i: client.bind(pods[i], names[i % 20]), range(200)))

        bound = [pod for pod, error in zip(pods, errors, strict=True) if not error]
        assert len(bound) == 20
        assert {_node_of(server, pod["metadata"]["name"]) for pod in bound} == set(names)
        assert service.known.nodes.pods_in_flight == 20
        assert {e.removesuffix("; the scheduler will try again") for e in errors if e} == {
            "numa-extender: NUMA alignment is not possible on the node now"
        }
        for pod in bound:
            assert Kubelet.of(nodes[_node_of(server, pod["metadata"]["name"])]).admit(pod)["admit"]


FULL: dict[str, str | int] = {"cpu": "2", "memory": "30Gi"}
"""Takes nearly all the memory of the first NUMA node."""


def _fragile() -> Json:
    """A pod that fits only where its init container finds no room on the first NUMA node, which has too few CPUs.

    The CPUs of the init container are taken over by the app, which so has to be on the same NUMA node.
    """
    return with_init(pod_of(16, name="fragile"), 2, "8Gi")


@pytest.mark.parametrize("outage", [False, True])
def test_a_pod_is_held_back_for_a_while_where_it_would_not_fit_if_another_one_has_ended(
    live: Live, *, outage: bool
) -> None:
    """We hear of an end some time after it; just after an outage long after it, so then caution has no end."""
    server, service, client = live
    node = sample("node-a", workloads=[Workload(name="w", resources=FULL)])
    _run(node, server, service, client)
    fragile, plain = server.pods.create(_fragile()), _create(server, "plain", 2)
    for pod in (fragile, plain):
        assert client.filter(pod, "node-a")["NodeNames"] == ["node-a"]

    error = client.bind(fragile, "node-a")
    assert "pods coming to or leaving the node decide" in error
    assert service.known.nodes.pods_in_flight == 0
    _, metrics = client.call("GET", "/metrics")
    assert b'numa_extender_binds_total{outcome="unsettled"} 1.0' in metrics
    assert client.bind(plain, "node-a") == ""
    server.pods.delete("plain")
    until(lambda: service.known.nodes.pods_in_flight == 0)

    waiting = _fragile()
    waiting["metadata"] |= {"name": "waiting", "uid": "uid-waiting"}
    waiting = server.pods.create(waiting)
    client.filter(waiting, "node-a")
    service.known.pods.defer_for_exits(
        waiting["metadata"]["uid"], "node-a", service.clock() - service.settings.hold_back_seconds
    )
    if outage:
        service.known.link.note_failure(service.clock() + 5.0)  # later than the progress of the watch, which works
    assert bool(client.bind(waiting, "node-a")) is outage
    assert _node_of(server, "waiting") == ("" if outage else "node-a")


def test_a_pod_that_was_held_back_from_a_node_is_offered_others_for_a_while(tmp_path: Path) -> None:
    large = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=16, threads=2, memory_gib=64, distances=(10, 21))
    with cluster(tmp_path, "node-a", "node-b") as (server, service, client):
        node = sample("node-a", workloads=[Workload(name="w", resources=FULL)])
        _run(node, server, service, client)
        client.report(report_of(sample("node-b", hardware=large)))
        fragile = server.pods.create(_fragile())
        before = client.filter(fragile, "node-a", "node-b")
        assert "coming to or leaving" in client.bind(fragile, "node-a")

        alone = client.filter(fragile, "node-a")
        both = client.filter(fragile, "node-a", "node-b")
        _, decision = client.call("GET", f"/v1/pods/{fragile['metadata']['uid']}/decision?node=node-a")
        other = _create(server, "other", 2)
        service.known.pods.defer_for_exits(
            other["metadata"]["uid"], "node-a", service.clock() - service.settings.hold_back_seconds
        )
        later = client.filter(other, "node-a", "node-b")

    assert before["NodeNames"] == later["NodeNames"] == ["node-a", "node-b"]
    assert alone["NodeNames"] == ["node-a"]
    assert both["NodeNames"] == ["node-b"]
    assert both["FailedAndUnresolvableNodes"] == {"node-a": RefusalReason.UNSETTLED.text}
    assert decision["node"]["passed"] is False
    assert (decision["calls"][0]["passed"], decision["calls"][0]["refused"]) == (1, 1)


def test_nothing_is_held_back_from_a_node_whose_verdicts_only_rank(live: Live) -> None:
    server, service, client = live
    node = sample("node-a", workloads=[Workload(name="w", resources=FULL)])
    _run(node, server, service, client)
    service.known.nodes.set_score_only("node-a", service.clock(), score_only=True)
    fragile = server.pods.create(_fragile())
    client.filter(fragile, "node-a")

    assert client.bind(fragile, "node-a") == ""


@pytest.mark.parametrize("older", ["fragile", "full"])
def test_a_pod_that_may_overtake_others_is_bound_only_if_all_of_them_still_fit(live: Live, older: str) -> None:
    """A kubelet that starts admits older pods first, whatever was bound first."""
    server, service, client = live
    client.report(report_of(sample("node-a")))
    full = pod_of(2, "30Gi", name="full")
    full["metadata"]["creationTimestamp"] = "2026-01-01T00:00:05Z"
    first = server.pods.create(full)
    pod = _fragile()
    pod["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:0{4 if older == 'fragile' else 6}Z"
    fragile = server.pods.create(pod)
    for each in (first, fragile):
        client.filter(each, "node-a")

    assert client.bind(first, "node-a") == ""
    assert client.filter(fragile, "node-a")["NodeNames"] == ["node-a"]
    service.known.pods.defer_for_exits(
        fragile["metadata"]["uid"], "node-a", service.clock() - service.settings.hold_back_seconds
    )
    error = client.bind(fragile, "node-a")

    if older == "fragile":
        assert "pods coming to or leaving the node decide" in error
        assert service.known.nodes.pods_in_flight == 1
    else:
        assert error == ""
        assert service.known.nodes.pods_in_flight == 2


def test_a_pod_that_nothing_aligns_is_bound_at_any_time(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", unknown_nodes="refuse") as (server, service, client):
        service.known.link.note_failure(service.clock() + 5.0)  # later than the progress of the watch, which works
        pod = pod_of(name="plain")
        pod["spec"]["containers"][0]["resources"] = {}
        pod["status"]["qosClass"] = "BestEffort"
        plain = server.pods.create(pod)
        client.filter(plain, "node-a")

        assert client.bind(plain, "node-a") == ""
