"""Alignment of placements: aligned, split over several NUMA nodes, or not managed."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kubelet.admission import Outcome, admit
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import iter_bits
from extender.kubelet.state import Block, Device
from extender.kubelet.verdict import Placement
from extender.replay.alignment import Alignment, PodAlignment, alignment_of, alignment_of_outcome, alignment_of_outcomes
from extender.replay.possible_states import admit_in_all
from extender.samples.machines import GPU, Hardware
from extender.samples.nodes import SampleNode, Workload
from extender.wire.pods import pod_from_json
from tests.reports import DUAL, pod_of, sample

FOUR = Hardware(sockets=1, numa_per_socket=4, cores_per_numa=2, threads=1, memory_gib=4).machine()
"""NUMA node N has the CPUs 2N and 2N+1."""
DEVICES = {
    "gpu": {
        "on-0": Device(0b0001, healthy=True),
        "on-1": Device(0b0010, healthy=True),
        "on-0-and-1": Device(0b0011, healthy=True),
        "anywhere": Device(None, healthy=True),
        "nowhere": Device(0, healthy=True),
    }
}
HINT = 0b1000
"""The hint of every placement below: the alignment must not follow it."""


def _placement(*, cpus: int = 0, memory: tuple[int, ...] = (), devices: tuple[str, ...] = ()) -> Placement:
    return Placement(
        affinity=HINT,
        preferred=True,
        cpus=cpus,
        memory=tuple(Block(mask, "memory", 1 << 30) for mask in memory),
        devices={"gpu": devices} if devices else {},
    )


def _of(*placements: Placement, together: bool = False) -> PodAlignment:
    named = {f"c{i}": placement for i, placement in enumerate(placements)}
    return alignment_of(named, FOUR, DEVICES, together=together)


def _answer(alignment: PodAlignment | None) -> tuple[str, list[int]]:
    assert alignment is not None
    return alignment.alignment.value, list(iter_bits(alignment.numa))


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (_placement(), ("not-managed", [])),
        (_placement(cpus=0b0011), ("aligned", [0])),
        (_placement(cpus=0b0110), ("split", [0, 1])),
        (_placement(cpus=0b0011, memory=(0b0001,)), ("aligned", [0])),
        (_placement(cpus=0b0011, memory=(0b0010,)), ("split", [0, 1])),
        (_placement(memory=(0b0100,)), ("aligned", [2])),
        (_placement(memory=(0b0011,)), ("split", [0, 1])),
        (_placement(cpus=0b0011, memory=(0b0011,)), ("split", [0, 1])),
        (_placement(memory=(0b0001, 0b0010)), ("split", [0, 1])),
        (_placement(devices=("on-0", "on-1")), ("split", [0, 1])),
        (_placement(devices=("on-1", "on-0-and-1")), ("aligned", [1])),
        (_placement(devices=("on-0-and-1",)), ("aligned", [0, 1])),
        (_placement(cpus=0b0011, devices=("on-0-and-1",)), ("aligned", [0])),
        (_placement(cpus=0b110000, devices=("on-0-and-1",)), ("split", [0, 1, 2])),
        (_placement(devices=("anywhere",)), ("not-managed", [])),
        (_placement(devices=("nowhere",)), ("not-managed", [])),
        (_placement(cpus=0b1100, devices=("anywhere", "nowhere")), ("aligned", [1])),
        (_placement(devices=("gone-meanwhile",)), ("not-managed", [])),
    ],
)
def test_a_container_is_aligned_if_one_numa_node_has_all_of_it(
    placement: Placement, expected: tuple[str, list[int]]
) -> None:
    assert _answer(_of(placement)) == expected
    assert _answer(_of(placement, together=True)) == expected


def test_containers_count_one_by_one_or_as_a_whole_by_scope() -> None:
    apart = _placement(cpus=0b0011), _placement(cpus=0b1100)

    assert _answer(_of(*apart)) == ("aligned", [0, 1])
    assert _answer(_of(*apart, together=True)) == ("split", [0, 1])
    by_container = _of(*apart, together=True).containers
    assert [each.alignment for each in by_container.values()] == [Alignment.ALIGNED] * 2


def test_a_container_in_the_shared_pool_changes_nothing_of_the_others() -> None:
    shared, placed, split = _placement(), _placement(cpus=0b0011), _placement(cpus=0b0110)

    assert _answer(_of(shared, placed)) == ("aligned", [0])
    assert _of(shared, placed).containers["c0"].alignment is Alignment.NOT_MANAGED
    assert _answer(_of(placed, split)) == ("split", [0, 1])
    assert _answer(_of(shared, shared)) == ("not-managed", [])


MASKS = st.integers(1, 15)


@given(cpus=st.integers(0, 255), memory=st.lists(MASKS, max_size=2), devices=st.sets(st.sampled_from(["on-0", "on-1"])))
def test_aligned_means_that_all_but_one_numa_node_could_be_switched_off(
    cpus: int, memory: list[int], devices: set[str]
) -> None:
    alignment, numa = _answer(_of(_placement(cpus=cpus, memory=tuple(memory), devices=tuple(sorted(devices)))))

    def is_all_on(node: int) -> bool:
        own_cpus = 0b11 << 2 * node
        return (
            not cpus & ~own_cpus
            and all(mask == 1 << node for mask in memory)
            and all(device == f"on-{node}" for device in devices)
        )

    nothing = not (cpus or memory or devices)
    able = [node for node in range(4) if is_all_on(node)]
    assert alignment == ("not-managed" if nothing else "aligned" if able else "split")
    if alignment == "aligned":
        assert numa == able
    if alignment == "split":
        assert len(numa) > 1


def _admitted(node: SampleNode, pod: dict[str, Any]) -> tuple[Outcome, PodAlignment]:
    outcome = admit(node.kubelet, node.state, resolve(pod_from_json(pod), node.kubelet.rules))
    alignment = alignment_of_outcome(node.kubelet, outcome)
    assert alignment is not None
    return outcome, alignment


def test_cpus_beyond_the_hint_under_best_effort_are_split() -> None:
    """The case of the issue: no NUMA node has 16 CPUs free, and the kubelet admits the pod all the same."""
    busy = [Workload(name="w", copies=2, resources={"cpu": 8, "memory": "1Gi"})]
    node = sample(workloads=busy, topologyManagerPolicy="best-effort")

    _, alignment = _admitted(node, pod_of(12))

    assert _answer(alignment) == ("split", [0, 1])


def test_align_by_socket_is_split_over_the_numa_nodes_of_the_socket() -> None:
    hardware = replace(DUAL, sockets=1, numa_per_socket=2)
    node = sample(
        hardware=hardware,
        workloads=[Workload(name="w", resources={"cpu": 10, "memory": "1Gi"})],
        devices={GPU: [0]},
        topologyManagerPolicy="best-effort",
        cpuManagerPolicyOptions={"align-by-socket": "true"},
        featureGates={"CPUManagerPolicyAlphaOptions": True},
    )

    outcome, alignment = _admitted(node, pod_of(6, devices={GPU: 1}))

    (placement,) = outcome.verdict.placements.values()  # type: ignore[union-attr]
    assert placement.affinity == 1  # the hint's NUMA node is not that of all CPUs
    assert _answer(alignment) == ("split", [0, 1])


def test_what_no_manager_places_is_not_managed() -> None:
    shared = {"name": "app", "resources": {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}}
    burstable = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [shared]}}

    _, of_burstable = _admitted(sample(), burstable)
    _, on_plain_node = _admitted(sample(cpuManagerPolicy="none", memoryManagerPolicy="None"), pod_of(4))

    assert _answer(of_burstable) == _answer(on_plain_node) == ("not-managed", [])


def test_a_pod_with_pod_level_resources_is_aligned_by_its_cpus_as_a_whole() -> None:
    pod = pod_of(1)
    pod["spec"]["resources"] = {"limits": {"cpu": "4", "memory": "2Gi"}, "requests": {"cpu": "4", "memory": "2Gi"}}
    pod["spec"]["containers"] = [{"name": "a", "resources": {}}, {"name": "b", "resources": {}}]
    gates = {"PodLevelResources": True, "PodLevelResourceManagers": True}
    node = sample(topologyManagerScope="pod", featureGates=gates)

    outcome, alignment = _admitted(node, pod)

    assert outcome.verdict.pod_cpus.bit_count() == 4  # type: ignore[union-attr]
    assert alignment.alignment is Alignment.ALIGNED
    assert {each.alignment for each in alignment.containers.values()} == {Alignment.ALIGNED}


def test_a_random_choice_of_devices_that_decides_is_said_to_be_uncertain() -> None:
    node = sample(devices={GPU: [0, 1]}, topologyManagerPolicy="none")
    request = resolve(pod_from_json(pod_of(2, devices={GPU: 1})), node.kubelet.rules)

    outcomes = admit_in_all(node.kubelet, (node.state,), request)

    kinds = {_answer(alignment_of_outcome(node.kubelet, each))[0] for each in outcomes}
    assert kinds == {"aligned", "split"}
    together = alignment_of_outcomes(node.kubelet, outcomes)
    assert together is not None
    assert (together.alignment, together.certain) == (Alignment.SPLIT, False)


def test_a_refused_pod_has_no_alignment() -> None:
    node = sample()
    outcome = admit(node.kubelet, node.state, resolve(pod_from_json(pod_of(20)), node.kubelet.rules))

    assert alignment_of_outcome(node.kubelet, outcome) is None
    assert alignment_of_outcomes(node.kubelet, (outcome,)) is None
