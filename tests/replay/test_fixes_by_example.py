"""Fixes that no known minor has (`rules.FIXES`): examples worked out by hand, with the switch off and on.

They rest on what the pull requests say, and not on recorded answers.
"""

from typing import Any

import pytest

from extender.kubelet.rules import FIXES, SWITCHES, Rules
from extender.kubelet.sets import format_list
from extender.kubelet.verdict import Admitted
from tests.replay.by_hand import M2, Json, Node, container, machine, pod

NIC = "vendor.example/nic"
ONE_NIC_ON_EACH_NODE = {NIC: [{"id": f"n{numa}", "numa": [numa], "healthy": True} for numa in range(4)]}

MEMORY: dict[str, Any] = {
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "reservation": {"cpu": "2", "memory": "1Gi"},
}


def test_every_fix_is_a_switch_and_off_in_every_version() -> None:
    assert FIXES.keys() <= SWITCHES
    for minor in range(27, 39):
        rules = Rules.of(f"1.{minor}", {}, {})
        assert not any(getattr(rules, name) for name in FIXES)


@pytest.mark.parametrize(
    ("is_on", "reserved", "cpus"),
    [
        pytest.param(False, "0-1", "4-11", id="off: as few nodes as can hold 8 CPUs"),
        pytest.param(True, "0-1", "2-5,8-9,12-13", id="on: all four nodes of the hint"),
        pytest.param(True, "0-3", "4-11", id="on: node 0 has no free CPU, so as few nodes as before"),
    ],
)
def test_a_distribution_uses_as_many_nodes_as_the_hint_has(is_on: bool, reserved: str, cpus: str) -> None:  # noqa: FBT001
    """The four network cards of the pod are on all four nodes, so the hint is {0,1,2,3}."""
    node = Node(
        M2,
        devices=ONE_NIC_ON_EACH_NODE,
        rules={"distribute_inside_hint": is_on},
        topologyManagerPolicy="best-effort",
        reservedSystemCPUs=reserved,
        cpuManagerPolicyOptions={"distribute-cpus-across-numa": "true"},
    )

    assert node.admit(pod("a", container(8, more={NIC: "4"}))) == {"c0": cpus}


def test_a_request_of_fewer_cpus_than_the_hint_has_nodes_is_distributed_as_before() -> None:
    switches: tuple[dict[str, bool], ...] = ({}, {"distribute_inside_hint": True})
    nodes = [
        Node(
            M2,
            devices=ONE_NIC_ON_EACH_NODE,
            rules=rules,
            topologyManagerPolicy="best-effort",
            cpuManagerPolicyOptions={"distribute-cpus-across-numa": "true"},
        )
        for rules in switches
    ]

    first, second = (node.admit(pod("a", container(3, more={NIC: "4"}))) for node in nodes)

    assert first == second


def _three_cores_a_node() -> Json:
    """Four NUMA nodes of three cores with two threads each: 0-5, 6-11, 12-17, 18-23."""
    cores = [[2 * core, 2 * core + 1] for core in range(12)]
    numa = [core // 3 for core in range(12)]
    return machine(cores, numa, [0] * 12)


def test_a_remainder_that_fits_no_whole_cores_is_skipped_instead_of_hanging() -> None:
    """Of 14 CPUs each node gives 2, and 6 remain for nodes that have 3, 3, 2 and 2 CPUs left.

    The first two have 6 CPUs together, but only two whole cores: the kubelet looks for a third one forever. Counted in
    cores they are skipped. The most even split takes a core more from each of the nodes 2, 0 and 1.
    """
    settings: dict[str, Any] = {
        "reservedSystemCPUs": "0,6,12-13,18-19",
        "cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"},
    }

    assert Node(_three_cores_a_node(), **settings).cpus(14) == ["KubeletHang"]
    fixed = Node(_three_cores_a_node(), rules={"distribute_whole_groups": True}, **settings)
    assert fixed.cpus(14) == ["2-5,8-11,14-17,20-21"]


@pytest.mark.parametrize(
    ("is_on", "count", "cpus"),
    [
        pytest.param(False, 4, "0-3", id="off: by number, two cores"),
        pytest.param(True, 4, "0,2,4,6", id="on: one CPU of each core"),
        pytest.param(True, 5, "0-2,4,6", id="on: the core with one free CPU is first, then its sibling's turn"),
    ],
)
def test_a_spread_takes_one_cpu_of_each_core_in_turn(is_on: bool, count: int, cpus: str) -> None:  # noqa: FBT001
    """Siblings have neighbouring numbers here, so numbers and cores lead to different CPUs."""
    node = Node(
        machine([[0, 1], [2, 3], [4, 5], [6, 7]], [0] * 4, [0] * 4),
        rules={"spread_by_topology": is_on},
        reservedSystemCPUs="7",
        cpuManagerPolicyOptions={"distribute-cpus-across-cores": "true"},
    )

    assert node.cpus(count) == [cpus]


@pytest.mark.parametrize(("is_on", "numa"), [(False, "0-3"), (True, "0")])
def test_a_pod_that_is_admitted_again_is_hinted_to_its_memory(is_on: bool, numa: str) -> None:  # noqa: FBT001
    """Off: the blocks of the first container are not what the pod requests, so the Memory Manager has no preference."""
    node = Node(
        M2,
        rules={"memory_hints_restored": is_on},
        topologyManagerPolicy="restricted",
        topologyManagerScope="pod",
        **MEMORY,
    )
    document = pod("a", container(0.5), container(0.5))

    node.verdict(document)
    again = node.verdict(document)

    assert isinstance(again, Admitted)
    assert format_list(again.placements["c0"].affinity or 0) == numa


def _pod_level_node(rules: dict[str, bool], **kubelet: Any) -> Node:
    return Node(
        M2,
        "1.37",
        rules=rules,
        featureGates={"PodLevelResources": True, "PodLevelResourceManagers": True},
        topologyManagerPolicy="best-effort",
        topologyManagerScope="pod",
        **kubelet,
    )


POD_LEVEL = pod("a", container(2), {"resources": {}}, resources={"cpu": "4", "memory": "4Gi"})


@pytest.mark.parametrize(("is_on", "again"), [(False, "8-11"), (True, "4-7")])
def test_a_pod_with_pod_level_resources_keeps_its_cpus(is_on: bool, again: str) -> None:  # noqa: FBT001
    """Off: the pod gets a second set of CPUs when it is admitted again, and the first one stays taken."""
    node = _pod_level_node({"pod_cpus_restored": is_on})

    first, second = (node.verdict(POD_LEVEL) for _ in range(2))

    assert isinstance(first, Admitted)
    assert isinstance(second, Admitted)
    assert format_list(first.pod_cpus) == "4-7"
    assert format_list(second.pod_cpus) == again
    assert format_list(node.state.cpu.default) == ("0-3,8-15" if is_on else "0-3,12-15")


@pytest.mark.parametrize(("is_on", "free_gib"), [(False, [15, 8, 16, 16]), (True, [15, 12, 16, 16])])
def test_a_pod_with_pod_level_resources_keeps_its_memory(is_on: bool, free_gib: list[int]) -> None:  # noqa: FBT001
    """Off: the pod's 4 GiB are charged a second time when it is admitted again."""
    node = _pod_level_node({"pod_memory_restored": is_on, "pod_cpus_restored": True}, **MEMORY)

    for _ in range(2):
        assert isinstance(node.verdict(POD_LEVEL), Admitted)

    assert node.free() == free_gib
