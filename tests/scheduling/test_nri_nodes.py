"""Nodes with the NRI topology-aware policy, from the plugin's state file to the answers of the verbs.

The expected answers of the sample are those of the recorded plugin. `python -m tests.bench nri_states` runs a thousand.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.cluster.events import PodAssumed, PodGone, PodSeen
from extender.config.settings import Settings
from extender.kube.changes import Batch, Changed, Seen
from extender.kube.feed import ClusterFeed
from extender.kube.pods import PodDecoder
from extender.kubelet.pod import Container, ContainerKind, QOSClass
from extender.kubelet.sets import format_list
from extender.nri.books import Grant
from extender.nri.cpu_allocator import discover
from extender.nri.events import Node, set_up, start
from extender.nri.objects import QoS
from extender.nri.observed import NO_POOL, ObservedGrant, observe
from extender.nri.requests import CPUType
from extender.replay.creation import grants_of
from extender.replay.pod import Pod
from extender.scheduling.judgement import Action
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.records.predictions import Result
from extender.wire.nri_scenarios import config_from_json
from extender.wire.nrt import counted, published_from_json
from extender.wire.pods import pod_from_json
from node_exporter.nri_plugin import read_state_file
from tests.node_exporter.nri_trees import GRANT, write_state_file
from tests.nri_states import filter_answer, machine_facts, report_with, sampled_creations, section_of
from tests.replay.nri.vectors import machine, snapshot
from tests.replay.nri.zones import topology_object
from tests.reports import args_of, pod_of, report_of, sample
from tests.world.clock import Clock
from tests.world.exporters import report_all

CONFIG = {"pinCPU": True, "pinMemory": True, "reservedResources": {"cpu": "cpuset:0"}}
GIB_KIB = 1 << 20
NODE = "node-a"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(clock: Clock) -> Service:
    return make_service(Settings(max_nodes=200, max_body_bytes=8 << 20, question_workers=0), clock)


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        yield client


def empty(name: str = "s-n4c16") -> Node:
    """16 CPUs on two sockets with two NUMA nodes each; CPU 0 is reserved."""
    return start(set_up(discover(machine(name)), config_from_json(CONFIG, "config")))


def section(**changes: object) -> dict[str, Any]:
    return {**section_of("s-n4c16", CONFIG, empty()), **changes}


def grant(container: str, cpus: str, pool: str = "socket #0", **changes: object) -> dict[str, Any]:
    return {
        "container_id": f"id-{container}", "namespace": "team", "pod": f"pod-{container}", "container": container,
        "pod_uid": f"uid-{container}", "qos": "Guaranteed", "requests_cpu": True, "pool": pool, "cpu_type": "normal",
        "exclusive": cpus, "millicpu": 0, "memory_nodes": 1, "memory_types": 1, "memory_bytes": GIB_KIB,
    } | changes  # fmt: skip


def put(client: TestClient, nri: Mapping[str, Any], name: str = NODE, sequence: int = 1) -> None:
    report_all(client, report_with(nri, name, sequence))


def refusal(client: TestClient, pod: Mapping[str, Any], name: str = NODE) -> str:
    return filter_answer(client.post("/scheduler/filter", json=args_of(pod, name)).json(), name)


def test_a_sample_of_recorded_states_gets_the_plugins_own_answers(client: TestClient) -> None:
    """Seen red: with the name of a running pod on the pod that stands for a shape, one of a thousand was admitted.

    What-if says the pool, the exclusive CPUs, the cpuset and the memory nodes that the plugin chose.
    """
    answers = {"accepted": 0, "refused": 0}
    for i, creation in enumerate(sampled_creations(90)):
        if machine_facts(creation.machine) is None:
            continue
        put(client, section_of(creation.machine, creation.config, creation.before), f"node-{i}")
        answer = refusal(client, creation.pod, f"node-{i}")
        assert bool(answer) is bool(creation.refusal), (creation.name, creation.refusal, answer)
        answers["refused" if creation.refusal else "accepted"] += 1
        if creation.placed is not None:
            reply = client.post(f"/v1/what-if?node=node-{i}", json=creation.pod).json()
            (placed,) = reply["nodes"][0]["verdict"]["nri"]
            memory = format_list(sum(1 << numa for numa in placed["memory_numa"]))
            said = placed["pool"], placed["cpus"], placed["cpuset"], memory
            assert said == creation.placed, creation.name

    assert min(answers.values()) > 20


@pytest.mark.parametrize(
    ("changes", "certainty"), [({}, "exact"), ({"release": "v0.11.0"}, "possible"), ({"release": ""}, "possible")]
)
def test_no_verdict_is_certain_where_the_plugin_is_not_of_the_replayed_release(
    client: TestClient, changes: dict[str, Any], certainty: str
) -> None:
    """Seen red: with v0.11.0 and several L3 caches 32 of 59 grants were others than those that were `exact`."""
    put(client, section(**changes))

    (answer,) = client.post("/v1/what-if", json={"pod": pod_of(3)}).json()["nodes"]

    assert answer["certainty"] == certainty
    assert refusal(client, pod_of(3)) == ""
    assert refusal(client, pod_of(17)) != ""


OLDER_FIELDS = (
    "PrettyName", "Exclusive", "Part", "CPUType", "Container", "Pool", "MemoryPool", "MemType", "MemSize", "ColdStart",
)  # fmt: skip
OLDER = ("v0.10.0", "v0.10.1", "v0.11.0", "v0.12.0", "v0.12.1", "v0.12.2", "v0.13.0", "v0.13.1")
RELEASES = {**dict.fromkeys(OLDER, OLDER_FIELDS), "v0.14.0": (*OLDER_FIELDS, "CPUClass", "Irqs")}
"""The fields of a grant in the state file, as the source of each release has them (`policy/cache.go` cachedGrant)."""


@pytest.mark.parametrize("tag", ["", "its own", "v0.14.0"])
@pytest.mark.parametrize("release", RELEASES)
def test_of_all_releases_only_the_replayed_one_has_certain_verdicts(
    client: TestClient, tmp_path: Path, release: str, tag: str
) -> None:
    """Nothing is recorded of the others. The state file decides, also where the image is a newer one."""
    write_state_file(tmp_path, {"c1": {name: GRANT[name] for name in RELEASES[release]}})
    state = read_state_file(tmp_path)
    assert state is not None
    told = {"release": release if tag == "its own" else tag, "grant_fields": state.grant_fields}
    put(client, section(grants=[grant("a", "1-2")], **told))

    found = [client.post("/v1/what-if", json={"pod": pod_of(cpus)}).json()["nodes"][0] for cpus in (3, 17)]

    assert [each["outcome"] for each in found] == ["fits", "topology"]
    assert {each["certainty"] for each in found} == {"exact" if release == "v0.14.0" else "possible"}


def test_a_plugin_that_publishes_other_pools_is_not_the_one_that_is_replayed(
    client: TestClient, service: Service
) -> None:
    """Older plugins have no pools for L3 caches. What they have granted is then not what the replay makes of it."""
    put(client, section())
    published = topology_object(empty().books) | {"metadata": {"name": NODE}}
    other = published | {"zones": [zone | {"name": zone["name"].replace("NUMA", "X")} for zone in published["zones"]]}
    found = []
    for value in (published, other, published):
        service.known.nodes.observe_counts(counted(published_from_json(value), lambda _: "v1.36.2"), 1000.0)
        put(client, section())
        node = client.get(f"/v1/nodes/{NODE}").json()
        reasons = [each["reason"] for each in node["problem_list"] if "other pools" in each["reason"]]
        found.append((node["certainty"], len(reasons), refusal(client, pod_of(17)) != ""))

    assert found == [("exact", 0, True), ("degraded", 1, True), ("exact", 0, True)]


@pytest.mark.parametrize(
    ("config", "cpu", "cpus", "cpuset"),
    [(CONFIG, 3, True, True), (CONFIG, "500m", False, True), (CONFIG | {"pinCPU": False}, 3, True, False)],
    ids=["exclusive", "shared", "not pinned"],
)
def test_what_if_says_on_which_cpus_a_container_may_run(
    client: TestClient,
    config: dict[str, Any],
    cpu: int | str,
    *,
    cpus: bool,
    cpuset: bool,
) -> None:
    """The sets themselves are those of the recorded plugin (`cpus` of its answers)."""
    put(
        client, section_of("s-n4c16", config, start(set_up(discover(machine("s-n4c16")), config_from_json(config, ""))))
    )

    (answer,) = client.post("/v1/what-if", json={"pod": pod_of(cpu)}).json()["nodes"]

    (placed,) = answer["verdict"]["nri"]
    assert (bool(placed["cpus"]), placed["cpuset"] is not None) == (cpus, cpuset)
    assert not (cpus and cpuset) or placed["cpuset"] == placed["cpus"]


def test_a_node_with_another_nri_policy_is_named_and_not_judged(client: TestClient) -> None:
    put(client, {"version": 1, "machine": None, "config": None, "policy": "balloons", "grants": None})

    (node,) = client.get("/v1/nodes").json()["nodes"]
    (answer,) = client.post("/v1/what-if", json={"pod": pod_of(3)}).json()["nodes"]

    assert (node["resource_policy"], node["certainty"]) == ("balloons", "unknown")
    assert answer["certainty"] == "unknown"


def test_pods_in_flight_hold_what_the_policy_will_grant_them(client: TestClient, service: Service) -> None:
    put(client, section())
    first = replace(pod_from_json(pod_of(12)), uid="first")

    assert refusal(client, pod_of(12)) == ""
    service.known.nodes.apply(PodAssumed(NODE, first), now=1000.0)
    assert refusal(client, pod_of(12)) == RefusalReason.NRI_CPUS_NOW.text
    assert refusal(client, pod_of(3)) == ""
    service.known.nodes.apply(PodGone(NODE, "first"), now=1000.0)
    assert refusal(client, pod_of(12)) == ""


def test_pods_that_end_release_their_grants(client: TestClient, service: Service) -> None:
    put(client, section(grants=[grant("a", "1-7"), grant("b", "8-15", "socket #1", memory_nodes=4)]))

    assert refusal(client, pod_of(2)) == RefusalReason.NRI_CPUS_NOW.text
    service.known.nodes.apply(PodGone(NODE, "uid-a"), now=1000.0)
    assert refusal(client, pod_of(2)) == ""


def test_a_pod_whose_grants_are_reported_is_no_longer_in_flight(client: TestClient, service: Service) -> None:
    put(client, section())
    pod = replace(pod_from_json(pod_of(7, name="pod-app")), uid="uid-app")
    service.known.nodes.apply(PodSeen(NODE, pod, started=True), now=1000.0)
    assert service.known.nodes.pods_in_flight == 1

    put(client, section(grants=[grant("app", "1-7")]), sequence=2)

    assert service.known.nodes.pods_in_flight == 0
    assert refusal(client, pod_of(8)) == ""
    assert refusal(client, pod_of(9)) == RefusalReason.NRI_CPUS_NOW.text


def test_while_an_init_container_may_run_its_room_is_not_given_away(client: TestClient, service: Service) -> None:
    put(client, section())
    containers = (container("prepare", 12, ContainerKind.INIT), container("app", 1, ContainerKind.APP))
    pod = Pod(uid="u", name="p", namespace="n", containers=containers, status_qos=QOSClass.GUARANTEED)
    service.known.nodes.apply(PodAssumed(NODE, pod), now=1000.0)

    assert refusal(client, pod_of(8)) == RefusalReason.UNSETTLED.text
    assert refusal(client, pod_of(2)) == ""


def container(name: str, cpus: int, kind: ContainerKind) -> Container:
    amounts = {"cpu": 1000 * cpus, "memory": GIB_KIB * 1000}
    return Container(name=name, kind=kind, requests_milli=amounts, limits_milli=amounts)


def test_containers_of_pods_in_flight_may_be_created_in_any_order(client: TestClient, service: Service) -> None:
    """Either order of these two leaves a pod of 4 CPUs another place; both are followed."""
    put(client, section())
    for name, cpus in (("one", 3), ("two", 4)):
        pod = replace(pod_from_json(pod_of(cpus)), uid=name)
        service.known.nodes.apply(PodSeen(NODE, pod, started=False), now=1000.0)

    record = service.known.nodes.get(NODE)

    assert record is not None
    assert len(record.states) == 2
    assert record.possible.complete


def certainty(client: TestClient, pod: Mapping[str, Any]) -> list[str]:
    return [node["certainty"] for node in client.post("/v1/what-if", json={"pod": pod}).json()["nodes"]]


def test_while_containers_of_another_pod_are_to_come_no_verdict_is_certain(
    client: TestClient, service: Service
) -> None:
    """They may be created between those of the next pod. Seen red: the certainty was `exact` all the time."""
    put(client, section())
    containers = (container("first", 1, ContainerKind.APP), container("second", 3, ContainerKind.APP))
    pod = Pod(uid="uid-first", name="pod-first", namespace="team", containers=containers)
    before = certainty(client, pod_of(2)), certainty(client, pod_of(16))

    service.known.nodes.apply(PodAssumed(NODE, replace(pod, status_qos=QOSClass.GUARANTEED)), now=1000.0)
    under_way = certainty(client, pod_of(2)), certainty(client, pod_of(16))
    first = grant("first", "4", "NUMA node #1", pod_uid="uid-first")
    put(client, section(grants=[first]), sequence=2)
    half = certainty(client, pod_of(2))
    second = grant("second", "8-10", "NUMA node #2", pod_uid="uid-first", pod="pod-first", memory_nodes=4)
    put(client, section(grants=[first, second]), sequence=3)

    assert before == (["exact"], ["exact"])
    assert under_way == (["possible"], ["possible"])
    assert half == ["possible"]
    assert certainty(client, pod_of(2)) == ["exact"]


@pytest.mark.parametrize(
    ("speed", "cpus", "expected"),
    [({"pctPriority": "high"}, 2, "possible"), ({"sstClosID": 0}, 2, "possible"), ({}, 2, "exact")],
)
def test_a_verdict_by_the_state_of_speed_select_is_not_certain(
    client: TestClient, speed: dict[str, object], cpus: int, expected: str
) -> None:
    classes = {"cpuClasses": [{"name": "turbo", **speed}], "sharedPoolCPUClass": "turbo"}
    put(client, section(config={**CONFIG, **classes}))

    assert certainty(client, pod_of(cpus)) == [expected]


@pytest.mark.parametrize(
    ("allowed", "annotation", "expected"),
    [(["eth*"], "claim: [nvme0]", "possible"), (["eth*"], "{}", "exact"), (["*"], "claim: [nvme0]", "exact")],
)
def test_a_verdict_on_interrupts_that_are_not_known_is_not_certain(
    client: TestClient, allowed: list[str], annotation: str, expected: str
) -> None:
    put(client, section(config={**CONFIG, "controllableInterrupts": allowed}))
    pod = pod_of(2)
    pod["metadata"]["annotations"] = {"irq-affinity.resource-policy.nri.io/pod": annotation}

    assert certainty(client, pod) == [expected]


def put_whole(client: TestClient, nri: Mapping[str, Any]) -> None:
    """A report in which the kubelet has the same machine as the plugin."""
    report = report_with(nri, NODE)
    rows = [dict(zip(snapshot("s-n4c16")["cpu_cols"], row, strict=True)) for row in snapshot("s-n4c16")["cpus"]]
    report["machine"]["cpus"] = [[row["id"], row["core"], row["package"], row["node"], None] for row in rows]
    plain = report["machine"]["numa"][0]
    report["machine"]["numa"] = [
        {**plain, "id": node["id"], "distances": node["dist"]} for node in snapshot("s-n4c16")["nodes"]
    ]
    reply = client.put(f"/v1/nodes/{NODE}/report", content=orjson.dumps(report))
    assert reply.status_code == 200, reply.text


def demanding(cpus: int, **annotations: str) -> dict[str, Any]:
    pod = pod_of(cpus)
    marks = {f"numa-extender.io/{name}": value for name, value in annotations.items()}
    pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **marks}
    return pod


def test_a_demand_for_alignment_is_met_by_what_the_policy_will_grant(client: TestClient) -> None:
    """NUMA nodes of 4 CPUs, with CPU 0 reserved. Seen red: no grant of the policy met any demand."""
    put_whole(client, section())

    assert refusal(client, demanding(4, alignment="single-numa-node")) == ""
    assert refusal(client, demanding(5)) == ""
    assert refusal(client, demanding(5, alignment="single-numa-node")) == RefusalReason.DEMAND_NUMA_NODE.text
    assert refusal(client, demanding(5, alignment="same-socket")) == ""
    assert refusal(client, demanding(9, alignment="same-socket")) == RefusalReason.DEMAND_SOCKET.text
    assert refusal(client, demanding(4, memory="no-remote-memory")) == ""


@pytest.mark.parametrize("config", [{**CONFIG, "pinCPU": False}, {**CONFIG, "preferSharedCPUs": True}])
def test_a_container_that_the_policy_does_not_pin_breaks_a_demand(client: TestClient, config: dict[str, Any]) -> None:
    put_whole(client, section(config=config))

    assert refusal(client, pod_of(4)) == ""
    assert refusal(client, demanding(4, alignment="single-numa-node")) == RefusalReason.DEMAND_NOT_PLACED.text


def test_a_demand_is_refused_where_the_grants_are_not_known(client: TestClient) -> None:
    put(client, section(grants=None))

    assert refusal(client, pod_of(4)) == ""
    assert refusal(client, demanding(4, alignment="single-numa-node")) != ""


def test_equal_nodes_share_a_class_whoever_holds_the_grants(client: TestClient, service: Service) -> None:
    held = grant("app", "1-3"), grant("app", "8-9", "socket #1", memory_nodes=4)
    for name, ids in (("node-a", ("a", "b")), ("node-b", ("y", "x"))):
        grants = [
            {**g, "container_id": i, "pod": i, "pod_uid": i, "pod_labels": {"io.kubernetes.pod.uid": i, "app": "web"}}
            for g, i in zip(held, ids, strict=True)
        ]
        put(client, section(grants=grants), name)
    other = [{**g, "pod_labels": {"app": "db"}} for g in held]
    put(client, section(grants=[{**g, "container_id": str(i)} for i, g in enumerate(other)]), "node-c")

    classes = service.known.nodes.classes_of(["node-a", "node-b", "node-c"])

    assert classes[0] is classes[1]
    assert classes[0] is not classes[2]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"grants": None}, "not known"),
        ({"config": None}, "not known"),
        ({"machine": None}, "not known"),
        ({"config": {"reservedResources": {}}}, "the plugin does not start with it"),
        ({"grants": [grant("a", "1-3", "socket #7")]}, "have no pool 'socket #7'"),
        ({"grants": [grant("a", "0-3")]}, "CPUs 0 are not CPUs of socket #0 for containers"),
        ({"grants": [grant("a", "1-3"), grant("b", "3-4")]}, "CPUs 3 are granted to another container as well"),
        ({"grants": [grant("a", "1", memory_nodes=16)]}, "does not have the memory nodes"),
        ({"grants": [grant("a", "1"), grant("a", "2")]}, "has two grants"),
        ({"grants": [grant("a", "", "root", millicpu=16_000)]}, "more shared CPU is granted"),
        ({"grants": [grant("a", "1", memory_bytes=1 << 50)]}, "more memory of NUMA nodes 0 is granted"),
    ],
)
def test_what_is_not_known_or_cannot_be_is_no_verdict(
    client: TestClient, service: Service, changes: dict[str, Any], reason: str
) -> None:
    put(client, section(**changes))

    answer = client.post("/v1/what-if", json={"pod": pod_of(15)}).json()
    record = service.known.nodes.get(NODE)
    assert record is not None
    problems = record.observation.facts["problems"]
    assert isinstance(problems, list)

    assert refusal(client, pod_of(15)) == ""
    assert any(reason in problem["reason"] for problem in problems), problems
    assert [node["certainty"] for node in answer["nodes"]] == ["unknown"]


def test_the_kubelet_decides_first_even_where_the_policy_is_not_known(client: TestClient) -> None:
    for name, nri in (("node-a", section()), ("node-b", section(grants=None))):
        report_all(client, report_with(nri, name, align=True))

    assert refusal(client, pod_of(17), "node-a") == RefusalReason.ALIGNMENT_NEVER.text
    assert refusal(client, pod_of(17), "node-b") == RefusalReason.ALIGNMENT_NEVER.text
    assert refusal(client, pod_of(12), "node-b") == ""
    assert refusal(client, pod_of(12), "node-a") == ""


def test_a_pod_whose_image_takes_long_keeps_its_room(client: TestClient, service: Service, clock: Clock) -> None:
    """Seen red: a pod that had run for 120 seconds and was in no report was taken for one that holds nothing."""
    put(client, section())
    service.known.nodes.apply(
        PodSeen(NODE, replace(pod_from_json(pod_of(12)), uid="slow"), started=True), now=clock.now
    )

    clock.now += 300
    put(client, section(), sequence=2)

    assert refusal(client, pod_of(12)) == RefusalReason.NRI_CPUS_NOW.text


def test_the_pools_that_the_plugin_publishes_prove_refusals_where_its_grants_are_not_known(
    client: TestClient, service: Service
) -> None:
    put(client, section(grants=None))
    put(client, section(), "node-b")
    held = observe(empty().books.setup, [observed("a", 0b11111110), observed("b", 0xFF << 8, "socket #1", 4)])
    for name in ("node-a", "node-b", "node-c"):
        value = topology_object(held.books) | {"metadata": {"name": name}}
        service.known.nodes.observe_counts(counted(published_from_json(value), lambda _: "v1.36.2"), 1000.0)

    answers = {name: refusal(client, pod_of(2), name) for name in ("node-a", "node-b", "node-c")}
    put(client, section(grants=None), sequence=2)

    assert answers == {
        "node-a": RefusalReason.NRI_CPUS_NOW.text,
        "node-b": "",
        "node-c": RefusalReason.NRI_CPUS_NOW.text,
    }
    assert refusal(client, pod_of(2), "node-a") == RefusalReason.NRI_CPUS_NOW.text
    assert client.post("/v1/what-if", json={"pod": pod_of(2)}).json()["nodes"][0]["certainty"] == "degraded"


def observed(name: str, cpus: int, pool: str = "socket #0", nodes: int = 1) -> ObservedGrant:
    return ObservedGrant(
        grant=Grant(name, NO_POOL, CPUType.NORMAL, cpus, 0, nodes, 1, GIB_KIB),
        pod_uid=name, namespace="n", pod_name=name, container="c", qos=QoS.GUARANTEED, requests_cpu=True, pool=pool,
    )  # fmt: skip


def test_nodes_are_ranked_by_the_depth_of_the_pool_and_by_the_memory_that_moves(client: TestClient) -> None:
    """A NUMA node, a socket, and a NUMA node to which memory of another container must make room."""
    half = grant("a", "1-2,4-5"), grant("b", "8-9,12-13", "socket #1", memory_nodes=4)
    large = [grant(str(i), "", f"NUMA node #{i}", qos="Burstable", memory_nodes=1 << i) for i in range(4)]
    size = section()["machine"]["nodes"][0]["memory"]
    put(client, section(), "deep")
    put(client, section(grants=half), "wide")
    put(client, section(grants=[{**g, "memory_bytes": size * 6 // 10} for g in large]), "moving")
    names = ("deep", "wide", "moving")

    scores = client.post("/scheduler/prioritize", json=args_of(pod_of(3), *names)).json()

    assert [score["Score"] for score in scores] == [10, 0, 5]


def test_a_refused_container_is_a_wrong_prediction_and_the_pod_stays_in_flight(
    client: TestClient, service: Service
) -> None:
    put(client, section())
    feed = ClusterFeed(service.known.nodes, service.known.pods, lambda: 1000.0, lambda: None)
    decode = PodDecoder()
    pod = pod_of(4, name="late")
    pod["spec"]["nodeName"] = NODE
    waiting = {
        "reason": "CreateContainerError",
        "message": "failed to allocate resources: topology-aware: can't slice 4 exclusive CPUs",
    }
    seen = decode(pod)
    pod["status"]["containerStatuses"] = [{"name": "app", "state": {"waiting": waiting}}]
    failed = decode(pod)
    assert seen is not None
    assert failed is not None

    feed.apply_pods(Batch(changes=(Seen(seen[1]),), complete=True, listed=False))
    feed.apply_pods(Batch(changes=(Changed(seen[1], failed[1]),), complete=True, listed=False))

    assert [(d.pod_name, d.kind.result, d.reported) for d in service.audit.recent] == [
        ("late", Result.FALSE_ADMIT, "refused: CreateContainerError")
    ]
    assert service.known.nodes.pods_in_flight == 1


def test_containers_that_hold_a_grant_are_not_placed_again(client: TestClient, service: Service) -> None:
    """The second container of a pod is still to come; the first is where it is, and not where it would go today."""
    put(client, section())
    containers = (container("first", 1, ContainerKind.APP), container("second", 7, ContainerKind.APP))
    pod = Pod(uid="uid-first", name="p", namespace="n", containers=containers, status_qos=QOSClass.GUARANTEED)
    service.known.nodes.apply(PodSeen(NODE, pod, started=True), now=1000.0)

    put(client, section(grants=[grant("first", "7", "NUMA node #1")]), sequence=2)
    record = service.known.nodes.get(NODE)

    assert record is not None
    assert record.state is not None
    granted = grants_of(record.state)
    assert granted is not None
    held = granted.held_by("uid-first")
    assert held["first"] == ("NUMA node #1", 1 << 7, 0)
    assert held["second"][1].bit_count() == 7


def test_a_container_that_went_elsewhere_proves_nothing(client: TestClient, service: Service) -> None:
    """Others may have come and gone since it was predicted."""
    put(client, section())
    pod = replace(pod_from_json(pod_of(3, name="pod-app", memory="1Gi")), uid="uid-app")
    service.known.nodes.apply(PodSeen(NODE, pod, started=True), now=1000.0)

    put(client, section(grants=[grant("app", "1-3", "NUMA node #0")]), sequence=2)

    assert [kind.result for kind in service.audit.counts] == [Result.UNSETTLED]


@pytest.mark.parametrize("text", ["[" + "{0}," * 400 + "]", "#" + "x" * (16 << 10)])
def test_annotations_beyond_a_pods_budget_leave_its_placement_by_the_policy_unknown(
    client: TestClient, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    """Other nodes judge the pod as always, other pods are judged on the node, and the explanation names the field."""
    put(client, section())
    report_all(client, report_of(sample()) | {"node_name": "plain"})
    pod = pod_of(2, name="long")
    pod["metadata"]["annotations"] = {f"cold-start.resource-policy.nri.io/{scope}": text for scope in ("pod", "x")}

    assert refusal(client, pod, "plain") == ""
    assert refusal(client, pod) == ""
    told = client.get("/v1/pods/uid-long/decision", params={"node": NODE}).json()["node"]
    assert "metadata.annotations" in told["verdict"]["message"]
    assert told["certainty"] == "unknown"
    assert refusal(client, pod_of(2, name="short")) == ""
    assert "not judged" not in caplog.text, "the node's class would count as one that takes long, for all pods"


def test_annotations_that_have_no_effect_are_refused_by_setting(clock: Clock) -> None:
    pod = pod_of(1)
    pod["metadata"]["annotations"] = {"prefer-shared-cpu.resource-policy.nri.io/pod": "true"}
    answers = []
    for action in (Action.PASS, Action.REFUSE):
        settings = Settings(max_body_bytes=8 << 20, question_workers=0).model_copy(update={"nri_annotations": action})
        with TestClient(make_app(make_service(settings, clock)), client=("127.0.0.1", 50_000)) as client:
            put(client, section())
            assert refusal(client, pod_of(1)) == ""
            answers.append(refusal(client, pod))

    assert answers == ["", RefusalReason.NRI_ANNOTATION_FAULT.text]


def asked(client: TestClient, **question: object) -> list[dict[str, Any]]:
    reply = client.post("/v1/what-if", json={"pod": pod_of(3), **question})
    assert reply.status_code == 200, reply.text
    nodes: list[dict[str, Any]] = reply.json()["nodes"]
    return nodes


def test_what_if_shows_the_grant_and_explains_every_pool(client: TestClient) -> None:
    full = [grant("a", "1-7"), grant("b", "8-14", "socket #1", memory_nodes=4)]
    put(client, section(), "empty")
    put(client, section(grants=full), "full")

    empty, refused = asked(client, explain=True)

    (placed,) = empty["verdict"]["nri"]
    assert (placed["pool"], placed["cpus"], placed["memory_numa"]) == ("NUMA node #1", "4-6", [1])
    assert empty["verdict"]["containers"]["app"]["cpus"] == "4-6"
    (step,) = empty["explanation"]["steps"]
    assert [pool["pool"] for pool in step["pools"] if not pool["lost_by"]] == ["NUMA node #1"]
    assert len(step["pools"]) == 7
    assert refused["outcome"] == "topology"
    assert refused["reason"].startswith("Container app would fail to start, because the NRI policy refuses it: ")
    assert refused["verdict"]["refused_by"]["provider"] == "nri"
    assert all(pool["shared_left_millicpu"] < 0 for pool in refused["explanation"]["steps"][0]["pools"])
    assert not any(near["kind"].startswith("topology") for near in refused["explanation"]["nearest"])


def test_a_copy_of_a_node_has_its_policy_and_an_empty_one_no_grants(client: TestClient) -> None:
    put(client, section(grants=[grant("a", "1-7"), grant("b", "8-15", "socket #1", memory_nodes=4)]))

    copies = [
        {"copy_of": NODE},
        {"copy_of": NODE, "empty": True},
        {"copy_of": NODE, "kubelet": {"topologyManagerScope": "pod"}},
    ]
    nodes = asked(client, hypothetical=copies)

    assert [node["outcome"] for node in nodes if node["hypothetical"]] == ["topology", "fits", "topology"]


def test_victims_release_their_grants(client: TestClient) -> None:
    put(client, section(grants=[grant("a", "1-7"), grant("b", "8-15", "socket #1", memory_nodes=4)]))
    pod = pod_of(3, name="urgent")
    pod["spec"]["priority"] = 10
    victims = {NODE: {"Pods": [{"UID": "uid-a"}], "NumPDBViolations": 0}}

    reply = client.post("/scheduler/preempt", json={"Pod": pod, "NodeNameToMetaVictims": victims}).json()
    too_large = client.post(
        "/scheduler/preempt", json={"Pod": {**pod, "spec": pod_of(9)["spec"]}, "NodeNameToMetaVictims": victims}
    ).json()

    assert list(reply["NodeNameToMetaVictims"]) == [NODE]
    assert not too_large["NodeNameToMetaVictims"]
