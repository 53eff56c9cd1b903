"""The worked examples of the kubelet's behaviour, rule by rule; all of them were executed on the real 1.36 code.

Numbers of sections and examples are those of the behaviour reference (`../shared/reference/kubelet-behaviour.md`).
"""

import pytest

from extender.kubelet.sets import format_list
from extender.kubelet.verdict import Admitted, Rejected
from tests.replay.by_hand import M1, M2, Json, Node, container, machine, pod

GIB = 1 << 30
TAE = "TopologyAffinityError"
NO_FIT = "no NUMA nodes with enough memory is available"  # E1 of 7.5
NO_EXTENSION = "failed to find NUMA nodes to extend the current topology hint"  # E3
GROUP = "preferred hint violates NUMA node allocation"  # E5


# -- 14, machine M1


@pytest.mark.parametrize(
    ("options", "reserve", "requests", "expected"),
    [
        pytest.param([], "2", [3], ["1-2,9"], id="1"),
        pytest.param([], "2", [1, 3], ["1", "2,9-10"], id="2"),
        pytest.param([], "2", [9], ["1,4-7,12-15"], id="3 - whole node 1 first, then one CPU"),
        pytest.param(["distribute-cpus-across-numa"], "2", [10], ["1-6,9-10,12-13"], id="4"),
        pytest.param(["distribute-cpus-across-numa"], "2", [9], ["1-2,4-6,9-10,12-13"], id="5"),
        pytest.param(["distribute-cpus-across-cores"], "2", [4], ["2-3,8-9"], id="6"),
        pytest.param([], "1", [1], ["8"], id="7 - sibling of the reserved CPU"),
    ],
)
def test_14_which_cpus_a_request_gets(
    options: list[str], reserve: str, requests: list[float], expected: list[str]
) -> None:
    node = Node(M1, reserve=reserve, cpuManagerPolicyOptions=dict.fromkeys(options, "true"))

    assert node.cpus(*requests) == expected


def test_14_8_an_app_container_reuses_what_the_init_container_held() -> None:
    node = Node(M1, topologyManagerPolicy="restricted")

    assert node.admit(pod("a", container(2), init=(container(4),))) == {"i0": "1-2,9-10", "c0": "1,9"}
    assert node.cpus(4) == ["4-5,12-13"]


def test_14_9_a_sidecar_keeps_what_it_took() -> None:
    node = Node(M1, topologyManagerPolicy="restricted")

    placed = node.admit(pod("a", container(2), init=(container(4), container(2, always=True))))

    assert placed == {"i0": "1-2,9-10", "i1": "1,9", "c0": "2,10"}


def test_14_10_reused_cpus_are_not_preferred() -> None:
    node = Node(M1)

    assert node.admit(pod("a", container(2), init=(container(8),))) == {"i0": "4-7,12-15", "c0": "1,9"}


def test_14_11_a_pod_admitted_again_is_refused_for_want_of_free_cores() -> None:
    node = Node(M1, cpuManagerPolicyOptions={"full-pcpus-only": "true"})
    node.verdict(pod("a", container(10)))

    again = node.verdict(pod("a", container(10)))

    assert isinstance(again, Rejected)
    assert again.reason == "SMTAlignmentError"
    assert again.had == 4


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"full-pcpus-only": "true"}, "SMTAlignmentError"),
        ({}, {"i0": "1,4-7,9,12-15", "c0": "1,4-7,9,12-15"}),
    ],
)
def test_14_12_whole_cores_are_counted_besides_the_init_containers(options: dict[str, str], expected: object) -> None:
    node = Node(M1, cpuManagerPolicyOptions=options)

    assert node.admit(pod("a", container(10), init=(container(10),))) == expected


def test_14_13_a_fraction_has_no_opinion_and_nine_cpus_fit_no_single_node() -> None:
    node = Node(M1, topologyManagerPolicy="single-numa-node")

    assert node.affinities(pod("a", container(0.5))) == {"c0": (None, True)}
    assert node.cpus(9) == [TAE]


@pytest.mark.parametrize(("version", "expected"), [("1.35", "1,4-7,9,12-15"), ("1.36", "1-5,9-13")])
def test_14_14_hints_of_a_device_name_only_nodes_with_devices_since_1_36(version: str, expected: str) -> None:
    devices = {"x.example/dev": [{"id": "d", "numa": [0]}]}
    node = Node(M1, version, devices=devices, topologyManagerPolicy="best-effort")

    assert node.admit(pod("a", container(10, more={"x.example/dev": "1"}))) == {"c0": expected}


# -- 14, machine M2


def test_14_15_align_by_socket_prefers_the_nodes_of_one_socket() -> None:
    node = Node(
        M2,
        reservedSystemCPUs="0",
        topologyManagerPolicy="restricted",
        cpuManagerPolicyOptions={"align-by-socket": "true"},
    )

    assert node.affinities(pod("a", container(5))) == {"c0": ([0, 1], True)}
    node.remove("a")
    assert node.cpus(5) == ["1,4-7"]


def test_14_16_whole_nodes_until_none_is_left() -> None:
    node = Node(M2, reservedSystemCPUs="0", topologyManagerPolicy="restricted")

    assert node.cpus(4, 4, 4, 4) == ["4-7", "8-11", "12-15", TAE]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param({}, "4-9", id="17 - {1,2} is the smaller integer"),
        pytest.param({"prefer-closest-numa-nodes": "true"}, "8-13", id="18 - {2,3} is closer"),
    ],
)
def test_14_17_and_18_among_equally_wide_masks(options: dict[str, str], expected: str) -> None:
    node = Node(M2, reservedSystemCPUs="0", topologyManagerPolicy="restricted", topologyManagerPolicyOptions=options)

    assert node.cpus(3, 6) == ["1-3", expected]


def test_14_pod_level_resources_are_a_bubble_that_containers_share_out() -> None:
    node = Node(
        machine([[cpu] for cpu in range(8)], [0] * 8, [0] * 8),
        reservedSystemCPUs="0",
        topologyManagerPolicy="restricted",
        topologyManagerScope="pod",
        featureGates={"PodLevelResources": True, "PodLevelResourceManagers": True},
    )

    verdict = node.verdict(pod("a", container(2), {"resources": {}}, resources={"cpu": "4", "memory": "4Gi"}))

    assert isinstance(verdict, Admitted)
    assert format_list(verdict.pod_cpus) == "1-4"
    assert [format_list(p.cpus) for p in verdict.placements.values()] == ["1-2", "3-4"]


# -- 5.5, 6.2, 6.5, 6.7, 6.9, 6.10, 8.2


@pytest.mark.parametrize(("policy", "expected"), [("best-effort", {"c0": ([0, 1], False)}), ("restricted", TAE)])
def test_5_5_a_wide_cpu_request_and_a_device_on_one_node(policy: str, expected: object) -> None:
    devices = {"x.example/dev": [{"id": "a", "numa": [0]}, {"id": "b", "numa": [1], "healthy": False}]}
    node = Node(M1, devices=devices, topologyManagerPolicy=policy)

    assert node.affinities(pod("a", container(10, more={"x.example/dev": "1"}))) == expected


@pytest.mark.parametrize(
    ("options", "reserve", "expected"),
    [({}, "2", "0,8"), ({"distribute-cpus-across-cores": "true"}, "2", "0-1"), ({}, "1", "0")],
)
def test_6_2_reserved_cpus_are_taken_like_any_others(options: dict[str, str], reserve: str, expected: str) -> None:
    assert Node(M1, reserve=reserve, cpuManagerPolicyOptions=options).reserved == expected


def test_6_5_what_is_preferred_depends_on_the_hardware_alone() -> None:
    """Four CPUs fit a node of four, so two nodes are never preferred, however little is free."""
    node = Node(M2, reservedSystemCPUs="0,4,8,12", topologyManagerPolicy="restricted")

    assert node.cpus(4) == [TAE]


def test_6_7_hybrid_machines_hand_out_reserved_cpus() -> None:
    """Cores of two threads count as fully free with one free CPU, and are taken whole."""
    topology = machine([[0, 1], [2, 3], [4], [5]], [0] * 4, [0] * 4)

    assert Node(topology, reservedSystemCPUs="0").cpus(2) == ["0-1"]


def test_6_9_the_winning_combination_is_overwritten_by_its_last_sibling() -> None:
    """Five nodes of two CPUs: [0,1,2,3] wins, its last slot then becomes node 4."""
    topology = machine([[cpu] for cpu in range(10)], [cpu // 2 for cpu in range(10)], [0] * 10)
    node = Node(
        topology, reservedSystemCPUs="1-2,4,6,8", cpuManagerPolicyOptions={"distribute-cpus-across-numa": "true"}
    )

    assert node.cpus(4) == ["0,3,5,9"]


def test_6_10_uncore_caches_are_filled_whole_or_to_the_rest() -> None:
    """One socket, cores k and k+6, caches of two cores each, CPUs 0 and 6 reserved."""
    topology = machine([[k, k + 6] for k in range(6)], [0] * 6, [0] * 6, [k // 2 for k in range(6)])
    options = {"prefer-align-cpus-by-uncorecache": "true"}
    node = Node(topology, reservedSystemCPUs="0,6", cpuManagerPolicyOptions=options)

    assert node.cpus(3, 4, 2) == ["2-3,8", "4-5,10-11", "1,7"]


def test_8_2_a_broken_device_counts_for_the_width_but_cannot_be_had() -> None:
    devices = {
        "x.example/dev": [
            {"id": "a", "numa": [0]},
            {"id": "b", "numa": [0], "healthy": False},
            {"id": "c", "numa": [1]},
            {"id": "d", "numa": [1]},
        ]
    }
    node = Node(M1, devices=devices, topologyManagerPolicy="restricted")
    one, two = (container(0.5, more={"x.example/dev": count}) for count in "12")

    assert node.affinities(pod("first", one)) == {"c0": ([0], True)}
    assert node.affinities(pod("second", one)) == {"c0": ([1], True)}
    node.remove("first")

    assert node.affinities(pod("third", two)) == TAE


# -- 7.9: two nodes with 10 GiB of allocatable memory each

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def _memory_node(policy: str, scope: str = "container", version: str = "1.36") -> Node:
    topology = {**M1, "numa": [{**n, "memory": 11 * GIB} for n in M1["numa"]]}
    return Node(
        topology,
        version,
        topologyManagerPolicy=policy,
        topologyManagerScope=scope,
        memoryManagerPolicy="Static",
        reservation={"cpu": "2", "memory": "2Gi"},
        reservedMemory=[{"numaNode": n, "limits": {"memory": "1Gi"}} for n in (0, 1)],
    )


def _gib(*sizes: int, cpu: float = 0.5) -> tuple[Json, ...]:
    return tuple(container(cpu, f"{size}Gi") for size in sizes)


def _refused(code: str) -> str:
    return f"Allocate failed due to [memorymanager] {code}, which is unexpected"


E1 = _refused(f"failed to get the default NUMA affinity, {NO_FIT}")
E3 = _refused(NO_EXTENSION)
E5 = _refused(GROUP)
NO_LOCALITY = "Resources cannot be allocated with Topology locality"
BOTH = {"c0": [0, 1]}


@pytest.mark.parametrize(
    ("policy", "fractional", "exclusive"),
    [("none", E1, E1), ("best-effort", E5, E3), ("restricted", E5, E3), ("single-numa-node", E1, E3)],
)
def test_7_9_a_third_pod_where_each_node_holds_one(policy: str, fractional: str, exclusive: str) -> None:
    for cpu, third in ((0.5, fractional), (2, exclusive)):
        node = _memory_node(policy)

        assert node.memory(pod("a", *_gib(6, cpu=cpu))) == {"c0": [0]}
        assert node.memory(pod("b", *_gib(6, cpu=cpu))) == {"c0": [1]}
        assert node.memory(pod("c", *_gib(6, cpu=cpu))) == third
        assert node.free() == [4, 4]


@pytest.mark.parametrize(
    ("policy", "sixth", "seventh"),
    [
        ("none", BOTH, E1),
        ("best-effort", BOTH, E3),
        ("restricted", NO_LOCALITY, NO_LOCALITY),
    ],
)
def test_7_9_a_wide_pod_makes_a_group(policy: str, sixth: object, seventh: str) -> None:
    node = _memory_node(policy)

    assert node.memory(pod("wide", *_gib(12))) == BOTH
    assert node.free() == [0, 8]
    assert node.memory(pod("six", *_gib(6))) == sixth
    assert node.free() == ([0, 2] if sixth == BOTH else [0, 8])
    assert node.memory(pod("seven", *_gib(7))) == seventh


def test_7_9_a_wide_pod_fits_no_single_node() -> None:
    node = _memory_node("single-numa-node")

    assert node.memory(pod("wide", *_gib(12))) == NO_LOCALITY
    assert node.memory(pod("six", *_gib(6))) == {"c0": [0]}
    assert node.memory(pod("seven", *_gib(7))) == {"c0": [1]}


@pytest.mark.parametrize("policy", POLICIES)
def test_7_9_an_app_container_takes_over_from_the_init_container(policy: str) -> None:
    node = _memory_node(policy)

    assert node.memory(pod("a", *_gib(4), init=_gib(6))) == {"i0": [0], "c0": [0]}
    blocks = {name: [b.size // GIB for b in blocks] for name, blocks in node.state.memory.entries["a"].items()}
    assert blocks == {"i0": [2], "c0": [4]}
    assert node.free() == [4, 10]
    node.start("a")
    assert node.free() == [6, 10]


@pytest.mark.parametrize(
    ("policy", "expected", "free"),
    [
        ("none", {"c0": [0], "c1": [1]}, [3, 3]),
        ("best-effort", {"c0": [0, 1], "c1": [0, 1]}, [0, 6]),
        ("restricted", {"c0": [0, 1], "c1": [0, 1]}, [0, 6]),
        ("single-numa-node", NO_LOCALITY, [10, 10]),
    ],
)
def test_7_9_pod_scope_on_an_empty_machine(policy: str, expected: object, free: list[int]) -> None:
    node = _memory_node(policy, "pod")

    assert node.memory(pod("a", *_gib(7, 7))) == expected
    assert node.free() == free


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("none", {"c0": [0], "c1": [1]}),
        ("best-effort", E5),
        ("restricted", E5),
        ("single-numa-node", {"c0": [0], "c1": [1]}),
    ],
)
def test_7_9_pod_scope_where_one_node_is_in_use(policy: str, expected: object) -> None:
    """The hole of 7.5: with single-numa-node a busier machine admits what an empty one refuses."""
    node = _memory_node(policy, "pod")
    assert node.memory(pod("small", *_gib(2))) == {"c0": [0]}

    assert node.memory(pod("a", *_gib(7, 7))) == expected
