"""Nodes that are not there: what they are made of, what changes, and what cannot be."""

from typing import Any

import pytest

from extender.kubelet.admission import admit
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Admitted
from extender.questions.hypothetical import build
from extender.questions.node_context import Subject
from extender.samples.machines import CATALOGUE, GPU
from extender.samples.nodes import Workload
from extender.wire.errors import WireError
from extender.wire.parsing import converted
from extender.wire.pods import pod_from_json
from extender.wire.questions import HypotheticalNode
from tests.reports import pod_of, report_of, sample
from tests.subjects import subject_of

NODE = sample(
    workloads=[Workload(name="w", copies=2, resources={"cpu": 8, "memory": "2Gi", GPU: 1})], devices={GPU: [0, 1]}
)
PLAIN = sample("plain", cpuManagerPolicy="none", memoryManagerPolicy="None", topologyManagerPolicy="none", workloads=[])
LIVE = {node.name: subject_of(node) for node in (NODE, PLAIN)}


def _build(**document: object) -> Subject:
    return build(converted(document, HypotheticalNode, "hypothetical[0]"), "hypothetical[0]", 1, LIVE.get)


def _admits(subject: Subject, pod: dict[str, Any]) -> bool:
    assert subject.kubelet is not None
    request = resolve(pod_from_json(pod), subject.kubelet.rules)
    return isinstance(admit(subject.kubelet, subject.states[0], request).verdict, Admitted)


def test_a_copy_answers_as_its_original_and_leaves_it_alone() -> None:
    copy = _build(copy_of="node-a")

    assert copy.states[0].key == NODE.state.key
    assert (copy.hypothetical, copy.name) == (True, "hypothetical 1: node-a")
    assert copy.node_class.id < 0
    assert _build(copy_of="node-a", empty=True).states[0].key != NODE.state.key
    assert LIVE["node-a"].states[0] is NODE.state


def test_settings_pods_and_devices_change_what_a_copy_answers() -> None:
    large = pod_of(12)
    first = NODE.pods[0]["metadata"]

    assert not _admits(_build(copy_of="node-a"), large)
    assert _admits(_build(copy_of="node-a", kubelet={"topologyManagerPolicy": "best-effort"}), large)
    assert _admits(_build(copy_of="node-a", remove_pods=[first["uid"]]), large)
    assert _admits(_build(copy_of="node-a", remove_pods=["demo/w-0"]), large)
    assert _admits(_build(copy_of="node-a", empty=True), large)
    assert not _admits(_build(copy_of="node-a", empty=True, add_pods=[pod_of(8), pod_of(8)]), large)
    assert not _admits(_build(copy_of="node-a"), pod_of(2, devices={GPU: 1}))
    more = {GPU: [{"id": f"gpu-{i}", "numa": [0]} for i in range(4)]}
    assert _admits(_build(copy_of="node-a", devices=more), pod_of(2, devices={GPU: 1}))


def test_another_version_has_its_own_rules() -> None:
    old = _build(copy_of="node-a", kubelet_version="v1.27.3")

    assert old.kubelet is not None
    assert (old.kubelet.rules.minor, old.kubelet.config.kubelet_version) == (27, "v1.27.3")
    assert not old.kubelet.rules.sidecars


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_machine_of_the_catalogue_starts_empty(name: str) -> None:
    subject = _build(machine=name, labels={"a": "b"})

    assert _admits(subject, pod_of(2))
    assert subject.states[0].pod_uids == frozenset()
    assert subject.around.requested_milli == {}
    assert subject.around.labels == {"a": "b"}


def test_a_report_is_a_node_with_its_pods() -> None:
    subject = _build(report=report_of(NODE))

    assert subject.states[0].key == NODE.state.key
    assert _admits(_build(report=report_of(NODE), remove_pods=["demo/w-1"]), pod_of(12))


def test_a_kubelet_that_aligned_nothing_can_be_asked_to_when_it_is_empty() -> None:
    aligning = {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"}

    assert not _admits(_build(copy_of="plain", empty=True, kubelet=aligning), pod_of(20))
    with pytest.raises(WireError, match="empty: true"):
        _build(copy_of="plain", kubelet=aligning)


FAULTS: dict[str, tuple[dict[str, Any], str, str]] = {
    "made of nothing": ({}, "hypothetical[0]", "not none"),
    "made of two": ({"machine": "dual-64", "copy_of": "node-a"}, "hypothetical[0]", "machine and copy_of"),
    "unknown machine": ({"machine": "cray"}, "hypothetical[0].machine", "none of"),
    "unknown node": ({"copy_of": "nobody"}, "hypothetical[0].copy_of", "no report"),
    "typo": ({"copy_off": "node-a"}, "hypothetical[0].copy_off", "unknown field"),
    "unknown field of the kubelet": (
        {"copy_of": "node-a", "kubelet": {"topologyPolicy": "restricted"}},
        "hypothetical[0].kubelet.topologyPolicy",
        "not a field that is replayed",
    ),
    "policy": (
        {"machine": "dual-64", "kubelet": {"topologyManagerPolicy": "best"}},
        "hypothetical[0].kubelet.topologyManagerPolicy",
        "no kubelet starts with this",
    ),
    "type": (
        {"machine": "dual-64", "kubelet": {"topologyManagerScope": 7}},
        "hypothetical[0].kubelet.topologyManagerScope",
        "a string is expected",
    ),
    "version": (
        {"machine": "dual-64", "kubelet_version": "v1.20.0"},
        "hypothetical[0].kubelet_version",
        "older than 1.27",
    ),
    "reserved CPUs move": (
        {"copy_of": "node-a", "kubelet": {"reservedSystemCPUs": "4,5"}},
        "hypothetical[0].kubelet",
        "empty: true",
    ),
    "pod that is not there": (
        {"copy_of": "node-a", "remove_pods": ["demo/w-0", "x"]},
        "hypothetical[0].remove_pods[1]",
        "no pod 'x'",
    ),
    "pod that does not fit": (
        {"copy_of": "node-a", "add_pods": [pod_of(2), pod_of(15)]},
        "hypothetical[0].add_pods[1]",
        "TopologyAffinityError",
    ),
    "pod that is none": (
        {"copy_of": "node-a", "add_pods": [{"spec": {}}]},
        "hypothetical[0].add_pods[0].spec.containers",
        "at least one container",
    ),
    "devices": ({"machine": "dual-64", "devices": {GPU: [{}]}}, f"hypothetical[0].devices.{GPU}[0].id", "missing"),
    "report": ({"report": {}}, "hypothetical[0].report.schema_version", "missing"),
    "report that contradicts itself": (
        {"report": {**report_of(NODE), "machine": {"cpus": [[0, 0, 0, 9, None]], "numa": [], "num_sockets": 1}}},
        "hypothetical[0].report.machine.cpus[0]",
        "NUMA node 9",
    ),
    "report of too little": (
        {"report": {**report_of(NODE), "kubelet_version": None}},
        "hypothetical[0].report",
        "no verdict is possible",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_is_told_with_its_path(fault: str) -> None:
    document, field, reason = FAULTS[fault]

    with pytest.raises(WireError) as error:
        _build(**document)

    assert error.value.field == field
    assert reason in error.value.reason


def test_rules_of_the_replay_change_for_a_copy_and_for_a_machine() -> None:
    """Of the base's own rules those stay that the question does not name."""
    fix = {"distribute_inside_hint": True}
    copy = _build(copy_of="node-a", rules=fix).kubelet
    machine = _build(machine="epyc-nps4-64", rules=fix).kubelet
    of_report = _build(report={**report_of(NODE), "rules": fix}, rules={"spread_by_topology": True}).kubelet

    for kubelet, rules in ((copy, fix), (machine, fix), (of_report, {**fix, "spread_by_topology": True})):
        assert kubelet is not None
        assert dict(kubelet.config.rule_overrides) == rules
        assert all(getattr(kubelet.rules, name) for name in rules)
    assert NODE.kubelet.rules.distribute_inside_hint is False

    with pytest.raises(WireError, match=r"hypothetical\[0\]\.rules\.distribute_well: unknown rule"):
        _build(copy_of="node-a", rules={"distribute_well": True})


@pytest.mark.parametrize(
    ("version", "gates", "fault"),
    [
        ("v1.28.3", {"TopologyManager": False}, "feature is locked to true"),
        ("v1.36.2", {"TopologyManager": False}, "unrecognized feature gate: TopologyManager"),
        ("v1.36.2", {"MemoryManager": True}, "unrecognized feature gate: MemoryManager"),
        ("v1.37.0", {"SidecarContainers": True}, "unrecognized feature gate: SidecarContainers"),
    ],
)
def test_no_kubelet_starts_with_a_gate_that_its_version_lacks_or_has_locked(
    version: str, gates: dict[str, bool], fault: str
) -> None:
    """Such gates were passed over in silence."""
    for base in ({"machine": next(iter(CATALOGUE))}, {"copy_of": "node-a", "empty": True}):
        with pytest.raises(WireError, match=fault) as raised:
            _build(**base, kubelet_version=version, kubelet={"featureGates": gates})
        assert raised.value.field == f"hypothetical[0].kubelet.featureGates.{next(iter(gates))}"


def test_a_gate_that_is_not_known_is_said_with_the_name_that_is_probably_meant() -> None:
    kubelet = _build(copy_of="node-a", kubelet={"featureGates": {"CPUManagerPolicyAlphaOption": True}}).kubelet
    plain = _build(copy_of="node-a", kubelet={"featureGates": {"CPUManagerPolicyAlphaOptions": True}}).kubelet

    assert kubelet is not None
    assert plain is not None
    (caveat,) = set(kubelet.caveats) - set(plain.caveats)
    assert "'CPUManagerPolicyAlphaOption' is not known, perhaps CPUManagerPolicyAlphaOptions is meant" in caveat
    assert not plain.caveats
