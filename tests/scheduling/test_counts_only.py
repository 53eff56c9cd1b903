"""What counts prove: never a refusal that the real kubelet did not make, and not nothing."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from extender.cluster.node_class import ClassTable
from extender.kubelet.resolve import has_pod_level_resources, resolve
from extender.kubelet.rules import Rules
from extender.kubelet.sets import iter_bits, parse_list
from extender.kubelet.startup import start
from extender.kubelet.verdict import Certainty
from extender.replay.counts import Counts, ZoneCounts
from extender.replay.possible_states import NO_STATES
from extender.scheduling.counts_only import refusal_by_counts
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import INDIFFERENT, Action, Judgement, UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.placement import least_numa
from extender.scheduling.reasons import RefusalReason
from extender.wire.nrt import OURS, counted, published_from_json
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import Scenario, scenario_from_json
from tests.node_exporter.scenario_devices import device_checkpoint
from tests.replay.vectors import VERSIONS, scenarios
from tests.reports import pod_of

GPU = "vendor.example/gpu"
RULES = Rules.of("v1.36.0", {}, {})
TWO = Counts(
    rules=RULES,
    policy="single-numa-node",
    scope="container",
    cpu_static=True,
    devices_current=True,
    zones=(
        ZoneCounts(numa=(0,), cpus=6, devices=((GPU, 1),)),
        ZoneCounts(numa=(0, 1), devices=((GPU, 1),)),
        ZoneCounts(numa=(1,), cpus=4, devices=()),
    ),
)


def refused(counts: Counts, *containers: dict[str, Any], **spec: Any) -> RefusalReason | None:
    pod = pod_of()
    template = pod["spec"]["containers"][0]
    pod["spec"]["containers"] = [
        {**template, "name": f"c{i}", "resources": {"limits": {"memory": "1Gi", **limits}}}
        for i, limits in enumerate(containers)
    ]
    pod["spec"] |= spec
    parsed = pod_from_json(pod)
    return refusal_by_counts(counts, resolve(parsed, counts.rules), pod_level=has_pod_level_resources(parsed))


def test_what_fits_into_a_node_may_fit() -> None:
    assert refused(TWO, {"cpu": "6"}) is None
    assert refused(TWO, {"cpu": "6"}, {"cpu": "4"}) is None
    assert refused(TWO, {"cpu": "1", GPU: "2"}) is None, "one device belongs to both nodes"
    assert refused(TWO, {"cpu": "1", "other.example/nic": "9"}) is None, "no zone tells of it"
    assert refused(TWO, {"cpu": "1", "memory": "900Ti"}) is None, "memory proves nothing"


def test_more_than_any_node_has_is_refused_by_single_numa_node() -> None:
    assert refused(TWO, {"cpu": "7"}) is RefusalReason.ALIGNMENT_NOW
    assert refused(TWO, {"cpu": "1", GPU: "3"}) is RefusalReason.ALIGNMENT_NOW
    assert refused(replace(TWO, scope="pod"), {"cpu": "4"}, {"cpu": "3"}) is RefusalReason.ALIGNMENT_NOW
    for policy in ("restricted", "best-effort", "none", ""):
        assert refused(replace(TWO, policy=policy), {"cpu": "7"}) is None
        assert refused(replace(TWO, policy=policy), {"cpu": "1", GPU: "3"}) is None


def test_more_than_the_node_has_is_refused_under_every_policy() -> None:
    for policy in ("single-numa-node", "restricted", "best-effort", "none", ""):
        assert refused(replace(TWO, policy=policy), {"cpu": "11"}) is RefusalReason.CPUS_NOW
        assert refused(replace(TWO, policy=policy), {"cpu": "6"}, {"cpu": "5"}) is RefusalReason.CPUS_NOW


def test_what_is_not_told_proves_nothing() -> None:
    holes = (TWO.zones[0], replace(TWO.zones[2], cpus=None))

    assert refused(replace(TWO, cpu_static=False), {"cpu": "99"}) is None
    assert refused(replace(TWO, zones=holes), {"cpu": "99"}) is None
    assert refused(replace(TWO, devices_current=False), {"cpu": "1", GPU: "9"}) is None
    assert refused(TWO, {"cpu": "99"}, resources={"limits": {"cpu": "99", "memory": "1Gi"}}) is None


def judged(counts: Counts, cpus: int | str, *, stale: bool = False, **doubts: Action) -> Judgement:
    node_class = ClassTable().hold(None, NO_STATES, frozenset(), stale=stale, counts=counts)
    return BoundedJudge(least_numa, UncertaintyPolicy(**doubts))(PodShape(pod_from_json(pod_of(cpus))), node_class)


def test_every_answer_says_that_it_is_degraded() -> None:
    assert judged(TWO, 2) == Judgement(None, Certainty.DEGRADED)
    assert judged(TWO, 7) == Judgement(RefusalReason.ALIGNMENT_NOW, Certainty.DEGRADED)
    assert judged(TWO, 7, degraded=Action.PASS) == Judgement(None, Certainty.DEGRADED)
    assert judged(TWO, 2, degraded=Action.REFUSE) == Judgement(RefusalReason.UNKNOWN, Certainty.DEGRADED)
    assert judged(TWO, 7, stale=True) == Judgement(None, Certainty.STALE)
    assert judged(replace(TWO, cpu_static=False), "500m") == Judgement(None, Certainty.DEGRADED)
    burstable = pod_of("500m")
    burstable["status"]["qosClass"] = "Burstable"
    shape = PodShape(pod_from_json(burstable))
    node_class = ClassTable().hold(None, NO_STATES, frozenset(), stale=False, counts=TWO)
    assert BoundedJudge(least_numa, UncertaintyPolicy())(shape, node_class) == INDIFFERENT


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_that_the_real_kubelet_admitted_is_refused(version: str) -> None:
    outcomes: Counter[tuple[bool, bool]] = Counter()
    for document in scenarios(version, 0, 9 if version == "1.36" else 2):
        before = next((i for i, step in enumerate(document["steps"]) if "state_before" in step), None)
        if before is None or "admit" not in document["steps"][before]["expect"]:
            continue
        if document["steps"][before]["pod"]["metadata"]["uid"] in _active(document, before, {}):
            continue  # admitted again after a restart: its CPUs are not free, and it keeps them
        scenario = scenario_from_json(document)
        published = published_from_json(_object(document, scenario, before))
        counts = counted(published, lambda _name: document["kubelet_version"]).counts  # noqa: B023
        pod = scenario.steps[before].pod
        assert pod is not None
        refusal = refusal_by_counts(counts, resolve(pod, counts.rules), pod_level=has_pod_level_resources(pod))
        admitted = document["steps"][before]["expect"]["admit"]
        assert not (admitted and refusal), scenario.id
        outcomes[admitted, refusal is not None] += 1

    assert outcomes[True, False] > 20
    assert outcomes[False, True] > 3, outcomes


def _object(document: dict[str, Any], scenario: Scenario, before: int) -> dict[str, Any]:
    """The object that a publisher would write of the node: counts of what active pods leave."""
    kubelet = start(scenario.machine, scenario.config)
    state = document["steps"][before]["state_before"]
    active = _active(document, before, state)
    cpus = kubelet.allocatable_cpus if kubelet.cpu_static else 0
    free = cpus
    for uid, containers in ((state.get("cpu_manager_state") or {}).get("entries") or {}).items():
        for text in containers.values() if uid in active else ():
            free &= ~parse_list(text)
    zones: dict[tuple[int, ...], list[dict[str, str]]] = {
        (node.id,): [_resource("cpu", _on(document, cpus, node.id), _on(document, free, node.id))]
        for node in scenario.machine.numa_nodes
    }
    checkpoint = device_checkpoint(document, before)
    for resource, amounts in _free_devices(document, checkpoint).items() if checkpoint else ():
        for numa, amount in amounts.items():
            zones.setdefault(numa, []).append(_resource(resource, amount, amount))
    return {
        "metadata": {"name": "n", "managedFields": [{"manager": OURS if checkpoint else "nfd"}]},
        "attributes": [
            {"name": name, "value": document["kubelet"][name]}
            for name in ("topologyManagerPolicy", "topologyManagerScope")
        ],
        "zones": [
            {
                "name": "node-" + "-".join(map(str, numa)),
                "type": "Node" if len(numa) == 1 else "NodeGroup",
                "resources": resources,
            }
            for numa, resources in zones.items()
        ],
    }


def _active(document: dict[str, Any], before: int, state: dict[str, Any]) -> set[str]:
    held = (state.get("cpu_manager_state") or {}).get("entries") or {}
    active: set[str] = set()
    for step in document["steps"][:before]:
        if step["op"] == "remove":
            active.discard(step["uid"])
        elif step["op"] == "admit":
            uid = step["pod"]["metadata"]["uid"]
            active.discard(uid)  # a running pod can be refused when its kubelet starts again
            if step["expect"].get("admit", uid in held):
                active.add(uid)
    return active


def _on(document: dict[str, Any], cpus: int, node: int) -> int:
    numa = {row[0]: row[3] for row in document["machine"]["cpus"]}
    return sum(numa[cpu] == node for cpu in iter_bits(cpus))


def _free_devices(document: dict[str, Any], checkpoint: dict[str, Any]) -> dict[str, Counter[tuple[int, ...]]]:
    held = {
        (entry["ResourceName"], device)
        for entry in checkpoint["Data"]["PodDeviceEntries"]
        for ids in entry["DeviceIDs"].values()
        for device in ids
    }
    return {
        resource: Counter(
            tuple(sorted(device["numa"]))
            for device in devices
            if device["numa"] and device["healthy"] and (resource, device["id"]) not in held
        )
        for resource, devices in document["devices"].items()
    }


def _resource(name: str, allocatable: int, available: int) -> dict[str, str]:
    return {"name": name, "capacity": "99", "allocatable": str(allocatable), "available": str(available)}
