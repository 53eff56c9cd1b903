"""A node whose kubelet has just refused a pod is not offered to the next pod of the same shape, for a while."""

from pathlib import Path
from typing import Any

from extender.api.service import Service
from extender.replay.pod import Pod
from extender.scheduling.records.refusals import MAX_KEPT, RecentRefusals
from extender.wire.pods import pod_from_json
from tests.contract.live import Client, cluster
from tests.fakes.apiserver import FakeApiServer
from tests.reports import pod_of, report_of, sample
from tests.waiting import until

Json = dict[str, Any]
REASON = "the node's kubelet has just refused a pod of this kind"
NODES = ("node-a", "node-b")


def _refused(server: FakeApiServer, client: Client, name: str) -> None:
    """The pod is bound to node-a; the kubelet refuses it, against the prediction."""
    pod = server.pods.create(pod_of(4, name=name))
    assert client.filter(pod, *NODES)["NodeNames"] == list(NODES)
    assert client.bind(pod, "node-a") == ""
    message = "Pod was rejected: Resources cannot be allocated with Topology locality"
    server.pods.patch(name, {"status": {"phase": "Failed", "reason": "TopologyAffinityError", "message": message}})


def test_the_node_is_left_out_for_pods_of_the_shape_and_the_audit_shows_it(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES, leave_out_seconds=600.0) as (server, service, client):
        for name in NODES:
            client.report(report_of(sample(name)))
        _refused(server, client, "first")
        until(lambda: bool(service.records.refusals.all(service.clock())))

        again = client.filter(pod_of(4, name="again"), *NODES)
        assert again["NodeNames"] == ["node-b"]
        assert again["FailedAndUnresolvableNodes"] == {"node-a": REASON}
        assert client.filter(pod_of(4, name="alone"), "node-a")["NodeNames"] == ["node-a"], "never the last node"
        assert client.filter(pod_of(6, name="other"), *NODES)["NodeNames"] == list(NODES)

        (left_out,) = client.call("GET", "/v1/audit")[1]["left_out"]
        assert (left_out["node_name"], left_out["pod_name"]) == ("node-a", "first")
        assert left_out["reason"] == "TopologyAffinityError"
        assert 0 < left_out["seconds_left"] <= 600
        assert b"numa_extender_left_out_nodes 1.0" in client.call("GET", "/metrics")[1]
        (decision, *_) = client.call("GET", "/v1/decisions?pod=again")[1]["decisions"]
        assert REASON in str(decision)


def test_with_the_setting_off_the_node_is_offered_again_at_once(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES, leave_out_seconds=0.0) as (server, service, client):
        for name in NODES:
            client.report(report_of(sample(name)))
        _refused(server, client, "first")
        until(lambda: service.audit.counts.total() > 0)

        assert client.filter(pod_of(4, name="again"), *NODES)["NodeNames"] == list(NODES)


def _pod(cpus: int) -> Pod:
    return pod_from_json(pod_of(cpus))


def test_a_refusal_counts_for_its_time_and_a_new_one_counts_anew() -> None:
    refusals = RecentRefusals(30)
    refusals.note("a", _pod(4), "X", 0, is_ours=True)
    refusals.note("b", _pod(4), "X", 20, is_ours=True)

    assert set(refusals.nodes(_pod(4), 29)) == {"a", "b"}
    assert set(refusals.nodes(_pod(4), 31)) == {"b"}
    assert not refusals.nodes(_pod(2), 1)
    refusals.note("a", _pod(4), "X", 40, is_ours=True)
    assert set(refusals.nodes(_pod(4), 69)) == {"a"}
    assert [each.node_name for each in refusals.all(45)] == ["b", "a"]
    assert refusals.all(70) == []


def test_refusals_stay_bounded_whatever_kubelets_refuse() -> None:
    refusals = RecentRefusals(30)
    for i in range(MAX_KEPT + 500):
        refusals.note(f"node-{i}", _pod(i % 40 + 1), "X", i / 1000, is_ours=True)

    assert len(refusals.all(0)) <= MAX_KEPT
    assert "node-10499" in refusals.nodes(_pod(10499 % 40 + 1), 11)
    refusals.note("late", _pod(1), "X", 1000, is_ours=True)
    assert [each.node_name for each in refusals.all(1000)] == ["late"]


def _named(
    server: FakeApiServer, service: Service, name: str, node: str, reason: str, namespace: str = "mallory"
) -> None:
    """A pod whose author names its node, and whose kubelet refuses it."""
    pod = pod_of(4, name=name)
    pod["metadata"]["namespace"] = namespace
    pod["spec"]["nodeName"] = node
    server.pods.create(pod)
    until(lambda: service.known.nodes.pods_of(node).ledger.find(f"uid-{name}") is not None)
    status = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {reason}"}
    server.pods.patch(name, {"status": status}, namespace=namespace)


def test_one_namespace_does_not_take_nodes_from_the_pods_of_another(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES, leave_out_seconds=600.0) as (server, service, client):
        for name in NODES:
            client.report(report_of(sample(name)))
        for number, node in enumerate(NODES):
            _named(server, service, f"affinity-{number}", node, "NodeAffinity")
            _named(server, service, f"topology-{number}", node, "TopologyAffinityError")
        until(lambda: len(service.records.refusals.all(service.clock())) == 2)

        assert client.filter(pod_of(4, name="victim"), *NODES)["NodeNames"] == list(NODES)
        assert service.audit.counts.total() > 0
        assert not any(service.audit.is_score_only(name) for name in NODES)


def test_in_its_own_namespace_a_named_pod_counts(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES, leave_out_seconds=600.0) as (server, service, client):
        for name in NODES:
            client.report(report_of(sample(name)))
        _named(server, service, "first", "node-a", "TopologyAffinityError", "default")
        until(lambda: bool(service.records.refusals.all(service.clock())))

        assert client.filter(pod_of(4, name="again"), *NODES)["NodeNames"] == ["node-b"]


def test_named_pods_do_not_make_a_node_score_only(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES, distrust_after=1) as (server, service, client):
        for name in NODES:
            client.report(report_of(sample(name)))
        _named(server, service, "bad", "node-a", "TopologyAffinityError")
        until(lambda: service.audit.counts.total() == 1)

        assert not service.audit.is_score_only("node-a")
        _refused(server, client, "ours")
        until(lambda: service.audit.is_score_only("node-a"))
