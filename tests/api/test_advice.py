"""Advice over HTTP: what is asked is checked, and what is answered was replayed."""

from dataclasses import replace
from typing import Any

import orjson
import pytest
import yaml
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.features.preemption.running import WatchedPods
from extender.kube.changes import Batch, Seen
from extender.kube.nodes import WatchedSurroundings
from extender.questions.answering import answer
from extender.questions.asked import Asked, QuestionKind
from extender.questions.snapshot import Snapshot
from extender.samples.nodes import SampleNode, Workload
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.ranking.strategies import Weights, make_strategy
from extender.scheduling.victims import DisruptionBudget
from extender.wire.placement_rules import LabelRequirement
from tests.reports import pod_of, report_of, sample
from tests.world.clock import Clock
from tests.world.exporters import report_all
from tests.world.watched import pod_record

Json = dict[str, Any]
NDJSON = {"Accept": "application/x-ndjson"}
WORKER = Workload(name="w", resources={"cpu": 4, "memory": "2Gi"}, copies=2)


def _report(client: TestClient, *nodes: SampleNode) -> None:
    report_all(client, *map(report_of, nodes))


def _watch(service: Service, node: SampleNode, **spec: Any) -> None:
    """The API server's view of the node's pods."""
    known = WatchedSurroundings()
    records = (pod_record(pod, node.name, **spec) for pod in node.pods)
    known.apply_pods(Batch(tuple(map(Seen, records)), complete=True))
    service.surroundings.use(known)


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_resize_of_exclusive_cpus_is_infeasible_and_the_pod_would_fit_anew(
    client: TestClient, service: Service, *, is_watched: bool
) -> None:
    node = sample(workloads=[WORKER])
    _report(client, node, sample("node-b"))
    if is_watched:
        _watch(service, node)

    reply = client.post("/v1/advice/resize-check", json={"pod": "demo/w-0", "cpu": "6"}).json()

    assert (reply["node"], reply["container"], reply["result"]) == ("node-a", "app", "infeasible")
    assert (reply["before"], reply["after"]) == ({"cpu": "4"}, {"cpu": "6"})
    assert (reply["recreated"]["alignment"], reply["elsewhere"][0]["node"]) == ("aligned", "node-b")
    assert any("not watched" in note for note in reply["notes"]) is not is_watched


def test_the_room_of_the_old_pod_is_free_for_the_new_one(client: TestClient) -> None:
    pods = [Workload(name="w", resources={"cpu": 14, "memory": "2Gi"}, copies=2)]
    _report(client, sample(workloads=pods, reservedSystemCPUs="0,8"))

    reply = client.post("/v1/advice/resize-check", json={"pod": "demo/w-1", "cpu": "15"}).json()

    assert reply["recreated"]["outcome"] == "fits"
    assert reply["other_nodes"] == 0


def test_more_than_the_node_has_is_infeasible_and_more_than_is_left_is_deferred(
    client: TestClient, service: Service
) -> None:
    node = sample(cpuManagerPolicy="none", memoryManagerPolicy="None", topologyManagerPolicy="none", workloads=[WORKER])
    _report(client, node)
    _watch(service, node)

    results = [
        client.post("/v1/advice/resize-check", json={"pod": "demo/w-0", "cpu": cpu}).json()["result"]
        for cpu in ("26", "27", "31")
    ]

    assert results == ["fits", "deferred", "infeasible"]


@pytest.mark.parametrize(
    ("name", "question", "field"),
    [
        ("resize-check", {"pod": "demo/w-0"}, "cpu"),
        ("resize-check", {"pod": "demo/w-0", "cpu": "0"}, "cpu"),
        ("resize-check", {"pod": "demo/w-0", "cpu": "x"}, "cpu"),
        ("resize-check", {"pod": "demo/w-0", "memory": "-1"}, "memory"),
        ("resize-check", {"pod": "demo/nobody", "cpu": "1"}, "pod"),
        ("resize-check", {"pod": "demo/w-0", "cpu": "1", "container": "c"}, "container"),
        ("resize-check", {"pod": "demo/w-0", "cpu": "1", "cpus": "c"}, "cpus"),
        ("make-room", {}, "pod"),
        ("make-room", {"pod": {"kind": "Service"}}, "pod.kind"),
        ("make-room", {"pod": pod_of(40), "max_evictions": 9}, "max_evictions"),
        ("make-room", {"pod": {**pod_of(40), "spec": {**pod_of(40)["spec"], "priority": "x"}}}, "pod.spec.priority"),
        ("make-room", {"pod": pod_of(40), "nodes": ["nobody"]}, None),
        ("defragment", {"pod": pod_of(4), "max_moves": 0}, "max_moves"),
        ("rightsize", {"limit": "all"}, "limit"),
        ("tune", {"seed": -1}, "seed"),
        ("tune", {"pods": [{"pod": pod_of(4), "copies": 9999}, {"pod": pod_of(4), "copies": 2}]}, "pods[1]"),
        ("tune", {"pods": [{"pod": {"kind": "Service"}}]}, "pods[0].pod.kind"),
        ("restart-check", {"kubelet_version": "v1.20.0"}, "kubelet_version"),
        ("restart-check", {"kubelet": {"maxPods": 3}}, "kubelet.maxPods"),
        ("restart-check", {"kubelet": {"reservedSystemCPUs": 3}}, "kubelet.reservedSystemCPUs"),
        ("restart-check", {"rules": {"x": True}}, "rules.x"),
        ("restart-check", {"nodes": ["nobody"]}, None),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(
    client: TestClient, name: str, question: Json, field: str | None
) -> None:
    _report(client, sample(workloads=[WORKER]))

    reply = client.post(f"/v1/advice/{name}", json=question)

    assert (reply.status_code // 100, reply.json()["field"]) == (4, field), reply.text


ODD = Workload(name="w", resources={"cpu": 3, "memory": "2Gi"}, copies=3)
FULL_CORES = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}


def test_a_changed_option_names_the_pods_that_fail_and_where_they_would_go(client: TestClient) -> None:
    _report(client, sample(workloads=[ODD]), sample("node-b"), sample("node-c"))

    reply = client.post("/v1/advice/restart-check", json={"kubelet": FULL_CORES}).json()

    assert [(node["node"], node["action"]) for node in reply["nodes"]] == [
        ("node-b", "restart"),
        ("node-c", "restart"),
        ("node-a", "drain-first"),
    ]
    pods = reply["nodes"][2]["pods"]
    assert {(pod["result"], pod["reason"], pod["elsewhere"]) for pod in pods} == {
        ("fails", "SMTAlignmentError", "node-b")
    }
    assert (reply["summary"]["fails"], reply["summary"]["drained"]) == (3, 3)


def test_a_deleted_file_moves_pods_and_the_order_decides_which_fail(client: TestClient) -> None:
    pods = [
        Workload(name="w", resources={"cpu": 9, "memory": "2Gi"}, copies=2),
        Workload(name="v", resources={"cpu": 5, "memory": "2Gi"}, copies=2),
    ]
    _report(client, sample(workloads=pods))

    reply = client.post("/v1/advice/restart-check", json={"kubelet": {"reservedSystemCPUs": "1-2,17-18"}}).json()

    (node,) = reply["nodes"]
    assert node["action"] == "drain-and-delete-files"
    assert [file["file"] for file in node["refused_files"]] == ["cpu_manager_state"]
    assert {pod["result"] for pod in node["pods"]} & {"fails", "may-fail"}
    assert all(pod["drain_first"] for pod in node["pods"] if pod["result"] != "kept")


def test_a_larger_reservation_fails_the_youngest_pods(client: TestClient, service: Service) -> None:
    """The kubelet's own check of totals, in the order of creation."""
    node = sample(
        cpuManagerPolicy="none",
        memoryManagerPolicy="None",
        workloads=[Workload(name="w", resources={"cpu": 10, "memory": "2Gi"}, copies=3)],
    )
    for age, pod in enumerate(reversed(node.pods)):
        pod["metadata"]["creationTimestamp"] = f"2026-11-22T05:00:0{age}Z"
    _report(client, node)
    _watch(service, node)

    reply = client.post(
        "/v1/advice/restart-check", json={"kubelet": {"reservation": {"cpu": "4", "memory": "2Gi"}}}
    ).json()

    results = {pod["pod"]: pod["reason"] for pod in reply["nodes"][0]["pods"]}
    assert results == {"demo/w-2": "", "demo/w-1": "", "demo/w-0": "OutOfcpu"}


def test_a_configuration_with_which_no_kubelet_starts_is_an_answer(client: TestClient) -> None:
    _report(client, sample(workloads=[WORKER]))
    question = {"kubelet": {"cpuManagerPolicyOptions": {"align-by-socket": "true"}}}

    (node,) = client.post("/v1/advice/restart-check", json=question).json()["nodes"]

    assert (node["action"], node["pods"]) == ("does-not-start", [])
    assert node["error"].startswith("cpuManagerPolicyOptions: ")


FULLER = [Workload(name="v", resources={"cpu": 8, "memory": "2Gi"}, copies=2)]
TWO_A_NODE = [Workload(name="w", resources={"cpu": 6, "memory": "2Gi"}, copies=3)]


def test_the_pod_that_is_evicted_is_the_cheapest_that_may_be(client: TestClient, service: Service) -> None:
    """w-0 has a higher priority, w-1 is of a DaemonSet."""
    node = sample(workloads=TWO_A_NODE)
    for pod, owner, priority in zip(node.pods, ("ReplicaSet", "DaemonSet", "ReplicaSet"), (5, 0, 0), strict=True):
        pod["metadata"]["ownerReferences"] = [{"kind": owner, "controller": True}]
        pod["spec"]["priority"] = priority
    _report(
        client, node, sample("node-b", workloads=[Workload(name="v", resources={"cpu": 8, "memory": "2Gi"}, copies=2)])
    )
    _watch(service, node)
    question = {"pod": pod_of(12), "nodes": ["node-a"]}

    lines = [
        orjson.loads(line) for line in client.post("/v1/advice/make-room", json=question, headers=NDJSON).iter_lines()
    ]

    assert all("progress" in line for line in lines[:-1])
    (plan,) = lines[-1]["plans"]
    assert [(each["pod"], each["to"]) for each in plan["evictions"]] == [("demo/w-2", "node-b")]
    assert "move demo w-2 node-b" in plan["script"]
    assert plan["cordon"] == ["node-a"]
    assert [each["metadata"]["name"] for each in yaml.safe_load_all(plan["objects"])] == ["w-2"]


def _budget(name: str, requirements: tuple[LabelRequirement, ...], allowed: int) -> DisruptionBudget:
    return DisruptionBudget(
        namespace="demo",
        name=name,
        requirements=requirements,
        disruptions_allowed=allowed,
        already_disrupted=frozenset({"w-0"}),
    )


IS_W = LabelRequirement(key="app", operator="In", values=frozenset({"w"}))
BUDGETS = {
    "budget": [_budget("b", (IS_W,), 0)],
    "budget of all pods": [_budget("b", (), 0)],
    "two budgets": [_budget("b", (IS_W,), 5), _budget("c", (), 5)],
}
"""With which the eviction API evicts none of the pods."""


WORDS = {
    "priority": "their priority is higher",
    "annotation": "an annotation forbids their eviction",
    "budget": "their disruption budget allows no eviction now",
    "budget of all pods": "their disruption budget allows no eviction now",
    "two budgets": "two disruption budgets cover them",
    "no owner": "no controller would recreate them",
    "leaderworkerset": "their group would lose a pod",
    "our annotation": "their group would lose a pod",
    "anti-affinity": "where they may go is not known: required affinity to other pods",
    "spread": "where they may go is not known: topology spread constraints",
    "volume": "where they may go is not known: volumes",
    "scheduler": "they have another scheduler, other",
}
_RULE = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone", "labelSelector": {}}]}
_SPECS: dict[str, Any] = {
    "anti-affinity": {"affinity": {"podAntiAffinity": _RULE}},
    "spread": {"topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]},
    "volume": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    "scheduler": {"schedulerName": "other"},
    "": {
        "topologySpreadConstraints": [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "volumes": [{"name": "token", "projected": {}}],
        "schedulerName": "default-scheduler",
    },
}


@pytest.mark.parametrize("reason", ["", "never", *WORDS])
def test_nothing_is_evicted_against_the_rules(client: TestClient, service: Service, reason: str) -> None:
    node = sample(workloads=TWO_A_NODE)
    for pod in node.pods:
        pod["metadata"]["labels"] = {"app": "w"}
        pod["metadata"]["ownerReferences"] = (
            [] if reason == "no owner" else [{"kind": "ReplicaSet", "controller": True}]
        )
        pod["spec"]["priority"] = 1 if reason == "priority" else 0
        pod["spec"].update(_SPECS.get(reason, {}))
        if reason == "leaderworkerset":
            pod["metadata"]["labels"] |= {
                "leaderworkerset.sigs.k8s.io/group-key": "k",
                "leaderworkerset.sigs.k8s.io/name": "x",
            }
        if reason == "our annotation":
            pod["metadata"]["annotations"] = {"numa-extender.io/group": "x"}
        if reason == "annotation":
            pod["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    _report(client, node, sample("node-b", workloads=FULLER))
    _watch(service, node)
    if reason in BUDGETS:
        running = WatchedPods(lambda _name: None)
        running.apply_budgets(Batch(tuple(map(Seen, BUDGETS[reason])), complete=True))
        service.known.running.on_node, service.known.running.budgets = running.on_node, running.budgets
    pod = pod_of(12)
    pod["spec"]["preemptionPolicy"] = "Never" if reason == "never" else "PreemptLowerPriority"

    reply = client.post("/v1/advice/make-room", json={"pod": pod, "nodes": ["node-a"]}).json()

    assert reply["result"] == ("none" if reason else "room")
    if reason in WORDS:
        assert any(WORDS[reason] in each for each in reply["blocked"]), reply["blocked"]
        assert any("pods that may not be evicted are in the way" in each for each in reply["blocked"])


def test_names_that_are_none_do_not_reach_a_script(client: TestClient) -> None:
    report = report_of(sample(workloads=TWO_A_NODE))
    for pod in report["pods"]:
        pod["name"] = "x; rm -rf /"
    client.put("/v1/nodes/node-a/report", json=report).raise_for_status()
    _report(client, sample("node-b"))

    reply = client.post("/v1/advice/make-room", json={"pod": pod_of(12), "nodes": ["node-a"]}).json()

    assert reply["result"] == "room"
    assert reply["plans"][0]["script"] == ""


def test_one_move_makes_room_for_one_more_copy(client: TestClient) -> None:
    """node-a has 10 CPUs free on a NUMA node and wants 12; node-b has 6 for the pod that moves."""
    _report(client, sample(workloads=TWO_A_NODE), sample("node-b", workloads=FULLER))

    reply = client.post("/v1/advice/defragment", json={"pod": pod_of(12, "1Gi")}).json()

    assert [(point["moves"], point["copies"]) for point in reply["curve"]] == [(0, 0), (1, 1)]
    (move,) = reply["curve"][1]["evictions"]
    assert (move["node"], move["to"]) == ("node-a", "node-b")
    assert [each["kind"] for each in yaml.safe_load_all(reply["objects"])] == ["Eviction"]


def test_a_request_that_just_misses_half_a_numa_node_is_named(client: TestClient) -> None:
    """NUMA node 1 has 16 CPUs: one pod of 9 fits there, and two of 8."""
    _report(client, sample(workloads=[Workload(name="w", resources={"cpu": 9, "memory": "2Gi"}, copies=2)]))

    reply = client.post("/v1/advice/rightsize", json={}).json()

    (found,) = reply["suggestions"]
    assert (found["before"], found["after"], found["pods"]) == ("9", "8", 2)
    assert "half of the 16 CPUs of NUMA node 1" in found["boundary"]
    assert (found["copies_before"], found["copies_after"]) == (2, 3)


def test_a_configuration_that_aligns_more_is_found_and_its_restart_checked(client: TestClient) -> None:
    node = sample(
        topologyManagerPolicy="none", workloads=[Workload(name="w", resources={"cpu": 6, "memory": "9Gi"}, copies=4)]
    )
    _report(client, node)

    first, second = (client.post("/v1/advice/tune", json={"configurations": 24}).json() for _ in range(2))

    assert first == second
    now, *better = first["configurations"]
    assert (now["current"], now["patches"], now["restart"]) == (True, [], None)
    assert better
    assert all(each["best"] and each["restart"] is not None for each in better)
    assert max(each["aligned"] for each in better) > now["aligned"]
    patch = yaml.safe_load(better[0]["patches"][0]["patch"])
    assert {name: each for name, each in patch.items() if name in better[0]["change"]}


@pytest.mark.parametrize(
    ("kind", "question"),
    [
        (QuestionKind.TUNE, {}),
        (QuestionKind.DEFRAGMENT, {"pod": pod_of(12)}),
        (QuestionKind.MAKE_ROOM, {"pod": pod_of(15)}),
        (QuestionKind.RIGHTSIZE, {}),
        (QuestionKind.RESTART_CHECK, {}),
    ],
)
def test_a_search_that_is_out_of_time_answers_with_what_it_has(
    client: TestClient, service: Service, kind: QuestionKind, question: Json
) -> None:
    _report(client, sample(workloads=TWO_A_NODE), sample("node-b", workloads=FULLER))
    snapshot = Snapshot.of(list(service.known.nodes), service.surroundings)
    judge = BoundedJudge(make_strategy("least-numa", Weights.parse("")), UncertaintyPolicy())
    asked = Asked(kind=kind, body=orjson.dumps(question), media_type="application/json")

    in_time, late = (
        orjson.loads(b"".join(answer(each, snapshot, judge))) for each in (asked, replace(asked, spent=lambda: 0.99))
    )

    assert not any("the time was over" in note for note in in_time["notes"])
    assert any("the time was over after" in note or "the time was over:" in note for note in late["notes"])


def test_answers_of_advice_stop_when_the_time_is_over(clock: Clock) -> None:
    limits = Settings(question_workers=0, question_seconds=0.001)
    with TestClient(make_app(make_service(limits, clock)), client=("127.0.0.1", 50_000)) as client:
        _report(client, *(sample(f"node-{i}", workloads=TWO_A_NODE) for i in range(3)))
        reply = client.post("/v1/advice/tune", json={"configurations": 40}, headers=NDJSON)

    assert "question took longer" in reply.text
