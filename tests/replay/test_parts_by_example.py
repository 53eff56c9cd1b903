"""Single rules of the managers on states made by hand: the corners that whole histories seldom reach.

Sections are those of the behaviour reference. Every test here was written because a mutation of the engine survived
the recorded vectors.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

from extender.kubelet import cpu_manager, device_manager, memory_manager
from extender.kubelet.config import CPUOptions
from extender.kubelet.cpu_assignment import Assignment
from extender.kubelet.cpu_distribution import _balanced_score, _deviation, _round3, distribute
from extender.kubelet.device_manager import Choices
from extender.kubelet.errors import DistributionHangError, NotEnoughCPUsError
from extender.kubelet.hints import Distances, Hints, TopologyHint, merge, narrowest, walked_universe
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import Universe, at_least, bits_of, format_list, parse_list, touching_at_least, universe
from extender.kubelet.state import Block, CPUState, Device, DeviceState, MemoryAmounts, MemoryState, NUMANodeMemory
from extender.kubelet.verdict import Provider, Reason, Refusal, Rejected
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import machine_from_json
from tests.replay.by_hand import M1, M2, Json, Node, container, machine, pod

GIB = 1 << 30


# -- 6.7 and 6.9: taking CPUs


def _take(
    topology: Json, free: str, count: int, *, rounds_up: bool = True, counts: bool = True, **options: bool
) -> str:
    """What takeByTopology makes of *count* CPUs out of *free*."""
    assignment = Assignment(
        machine=machine_from_json(topology),
        options=CPUOptions(**options),
        error_counts=counts,
        uncore_rounds_up=rounds_up,
    )
    return format_list(assignment.take(parse_list(free), count))


VM = machine([[0, 1], [2, 3], [4, 5], [6, 7]], numa=[0, 1, 1, 0], socket=[0, 1, 0, 1])
"""Cores on sockets and NUMA nodes that cut across each other, as hypervisors present them."""

FOUR_SOCKETS = machine([[cpu] for cpu in range(16)], [cpu // 8 for cpu in range(16)], [cpu // 4 for cpu in range(16)])
"""Four sockets of 4 CPUs on two NUMA nodes."""


@pytest.mark.parametrize("distribute_across_numa", [False, True])
@pytest.mark.parametrize(("counts", "words"), [(True, ": requested=15, available=14"), (False, "")])
def test_6_7_more_than_is_free(counts: bool, words: str, distribute_across_numa: bool) -> None:  # noqa: FBT001
    with pytest.raises(NotEnoughCPUsError) as error:
        _take(M1, "1-7,9-15", 15, counts=counts, distribute_across_numa=distribute_across_numa)

    assert str(error.value) == error.value.message == f"not enough cpus available to satisfy request{words}"


def test_6_7_as_many_sockets_as_nodes_means_nodes_first() -> None:
    interleaved = machine([[cpu] for cpu in range(8)], [cpu % 2 for cpu in range(8)], [cpu // 4 for cpu in range(8)])

    assert _take(interleaved, "1-7", 4) == "1,3,5,7"


def test_6_7_an_element_listed_twice_is_taken_twice() -> None:
    """Both nodes list both sockets, so the two whole cores come twice and count twice: four CPUs for six."""
    assert _take(VM, "1,3-7", 6) == "4-7"


def test_6_7_nodes_first_orders_sockets_by_their_node() -> None:
    """Node 1 has fewer free CPUs, though the fullest socket is on node 0; whole nodes go before whole sockets."""
    assert _take(FOUR_SOCKETS, "3-7,10-11,14-15", 1) == "10"
    assert _take(FOUR_SOCKETS, "1-15", 8) == "8-15"


@pytest.mark.parametrize(
    ("topology", "free", "options"),
    [
        pytest.param(M1, "0,4-7,12-15", {}, id="nodes first"),
        pytest.param(M2, "0,8-15", {"distribute_across_cores": True}, id="sockets first, spread"),
        pytest.param(M1, "0,4-7,12-15", {"prefer_align_by_uncore_cache": True}, id="nodes first, caches"),
        pytest.param(M2, "0,8-15", {"prefer_align_by_uncore_cache": True}, id="sockets first, caches"),
    ],
)
def test_6_7_cpu_0_counts_as_a_free_cpu(topology: Json, free: str, options: dict[str, bool]) -> None:
    assert _take(topology, free, 1, **options) == "0"


def test_6_9_equal_nodes_come_in_the_order_of_nodes_where_sockets_do_not_come_first() -> None:
    assert _take(FOUR_SOCKETS, "2-3,6-7,11,13-15", 2, distribute_across_numa=True) == "2-3"


def test_6_9_uncore_caches_play_no_part_in_distribution() -> None:
    across = machine([[c, c + 4] for c in range(4)], [0] * 4, [0] * 4, uncore=[0, 1, 0, 1])
    lopsided = machine(
        [[c, c + 8] for c in range(8)], [c // 4 for c in range(8)], [c // 4 for c in range(8)], [1, 1, 1, 0, 3, 3, 3, 2]
    )

    assert _take(across, "0-7", 5, distribute_across_numa=True, full_pcpus_only=True) == "0-2,4-5"
    assert _take(lopsided, "0-7", 5, distribute_across_numa=True) == "0-2,4-5"


def test_6_9_the_overwritten_combination_may_name_a_node_that_has_too_little() -> None:
    """Nine nodes, two a socket: each of seven gives two CPUs, but a last slot now names one with a single CPU.

    That node gives none, and nobody looks: only the sum at the end is checked.
    """
    free = {1: 2, 8: 3, 3: 2, 2: 3, 5: 2, 4: 3, 7: 1, 6: 4}
    topology = machine([[c] for c in range(36)], [c // 4 for c in range(36)], [c // 8 for c in range(36)])
    cpus = format_list(bits_of(4 * n + i for n, count in free.items() for i in range(count)))

    with pytest.raises(NotEnoughCPUsError, match=r"^accounting error, not enough CPUs allocated, remaining: 2$"):
        _take(topology, cpus, 18, distribute_across_numa=True)


def test_6_9_the_search_never_ends_where_a_remainder_node_has_half_a_core_left() -> None:
    """Each of four nodes gives 2, then 6 remain; the two nodes that have 3 each seem enough, but have one core each."""
    topology = machine([[c, c + 12] for c in range(12)], [c // 3 for c in range(12)], [c // 3 for c in range(12)])
    options = {"distribute-cpus-across-numa": "true", "full-pcpus-only": "true"}
    node = Node(topology, reserve="6", reservedSystemCPUs="0,3,6,9,18,21", cpuManagerPolicyOptions=options)

    verdict = node.verdict(pod("a", container(14)))

    assert isinstance(verdict, Rejected)
    assert (verdict.reason, verdict.resource, verdict.wanted) == (Reason.KUBELET_HANG, "cpu", 14)
    assert verdict.message == (
        "the kubelet would never finish distributing CPUs: no remainder node has a whole group of CPUs left"
    )


def test_6_9_taking_never_ends_where_the_overwritten_remainder_nodes_have_too_little() -> None:
    """16 nodes give one CPU each, then 15 remain: [0,1,2,3] with 4+4+5+5 left wins and becomes [0,1,2,15] with 14."""
    free = [5, 5, 6, 6, *[1] * 11, 2]
    numa = [n for n, count in enumerate(free) for _ in range(count)]
    topology = machine([[cpu] for cpu in range(len(numa))], numa, [min(n, 4) for n in numa])

    with pytest.raises(DistributionHangError):
        _take(topology, "0-34", 31, distribute_across_numa=True)


HANG = "hang"


@pytest.mark.parametrize(
    ("free", "needed", "group", "machine_cpus", "expected"),
    [
        pytest.param([6, 10], 9, 1, 16, ((0, 1), 4, (1,)), id="as many nodes as nodes of average size need"),
        pytest.param([6, 10], 10, 2, 16, ((0, 1), 4, (1,)), id="and with whole cores"),
        pytest.param([4, 1, 1], 4, 2, 3, None, id="no more nodes than cores are asked for"),
        pytest.param([1, 1, 2, 1, 1, 2, 3], 9, 1, 22, ((0, 1, 2, 5, 6), 1, (2, 5, 6)), id="three give the rest"),
        pytest.param([1, 2, 2, 3, 4], 11, 1, 20, ((1, 2, 3, 4), 2, (3, 4)), id="who has nothing left gives no rest"),
        pytest.param([1, 2, 3, 1, 1, 2, 2], 5, 1, 21, ((1, 2), 2, (2,)), id="the first of equals wins"),
        pytest.param([1, 2, 1, 3, 3, 3, 3, 4], 14, 1, 32, ((3, 4, 5, 6, 7), 2, (3, 4, 5, 7)), id="overwritten rest"),
        pytest.param([2, 2, 3, 5, 5], 16, 2, 25, None, id="half cores do not count"),
        pytest.param([5, 5, 4, 4], 14, 2, 24, HANG, id="half cores left over are never enough"),
        pytest.param([1, 3, 3, 3, 4, 4, 5, 5], 22, 2, 48, HANG, id="whichever nodes give the rest"),
        pytest.param(
            [2] * 7 + [1, 2] + [1] * 7, 8, 1, 16, ((0, 1, 2, 3, 4, 5, 6, 9), 1, ()), id="perfect balance ends the walk"
        ),
        pytest.param(
            [2] * 3 + [1, 2] + [1] * 11, 4, 1, 16, ((0, 1, 2, 5), 1, ()), id="nearly perfect balance does not"
        ),
        pytest.param(
            [11] * 5 + [10, 7, 7], 22, 2, 32, HANG, id="with cores the walk goes on until it hangs or is perfect"
        ),
    ],
)
def test_6_9_the_most_balanced_combination(
    free: list[int], needed: int, group: int, machine_cpus: int, expected: object
) -> None:
    by_node = dict(enumerate(free))
    try:
        plan = distribute(by_node, needed, group, machine_cpus=machine_cpus, machine_numa_nodes=len(free))
    except DistributionHangError:
        assert expected == HANG
        return

    assert expected == (None if plan is None else (plan.nodes, plan.each, plan.remainder_nodes))


def test_6_9_deviation_is_rounded_twice_halves_away_from_zero() -> None:
    assert [_round3(x) for x in (0.0625, 0.0624, 1.2346, 7.0, 0.4714)] == [0.063, 0.062, 1.235, 7.0, 0.471]
    assert _deviation([2, 3, 3]) == 0.471
    assert _deviation([1, 5, 0]) == 2.160
    assert _deviation([4, 4, 4]) == 0
    assert [_balanced_score(total, 3) for total in (6, 7, 8)] == [0, 0.471, 0.471]
    assert _balanced_score(3, 9) == 0.471


# -- 6.10: uncore caches

CACHES = machine([[c, c + 4] for c in range(4)], [0] * 4, [0] * 4, uncore=[1, 1, 0, 0])
"""Four cores of two threads: cores 0 and 1 share cache 1, cores 2 and 3 cache 0."""

OFFLINE = machine([[0, 1, 2, 3], [4, 5], [6], [7]], [0] * 4, [0] * 4, uncore=[0] * 4)
"""Cores of four threads of which some are offline: two a core on average."""


@pytest.mark.parametrize(
    ("topology", "free", "count", "rounds_up", "expected"),
    [
        pytest.param(CACHES, "1,3-7", 3, True, "3,6-7", id="half a core counts as a core"),
        pytest.param(CACHES, "1,3-7", 3, False, "1,4-5", id="1.32: it does not, and the cache is passed over"),
        pytest.param(CACHES, "1-2,4-7", 2, False, "2,6", id="1.32: a whole core of a cache"),
        pytest.param(OFFLINE, "1-6", 2, True, "4-5", id="only an odd request drops a CPU"),
        pytest.param(OFFLINE, "0-6", 3, False, "4-6", id="1.32: no request drops a CPU"),
    ],
)
def test_6_10_cores_of_a_part_of_a_cache(
    topology: Json,
    free: str,
    count: int,
    rounds_up: bool,  # noqa: FBT001
    expected: str,
) -> None:
    assert _take(topology, free, count, rounds_up=rounds_up, prefer_align_by_uncore_cache=True) == expected


# -- 6.5 and 6.6: hints of a pod that holds CPUs already


def _cpu_hints(
    held: Mapping[str, str], *, free: str = "1-7,9-15", reusable: str = ""
) -> tuple[list[tuple[int, ...]], tuple[int, ...]]:
    """On M1, for a pod of two containers of 2 CPUs: the masks of each container, and those of the pod."""
    node = Node(M1)
    request = _request(node, container(2), container(2))
    state = CPUState(
        default=parse_list(free),
        entries={"a": {name: parse_list(cpus) for name, cpus in held.items()}},
        reusable=("a", parse_list(reusable)),
    )
    of_containers = [cpu_manager.container_hints(node.kubelet, state, request, c) for c in request.containers]
    of_pod = cpu_manager.pod_hints(node.kubelet, state, request)
    assert of_pod is not None
    return [() if hints is None else hints.masks for hints in of_containers], of_pod.masks


def test_6_5_hints_of_what_is_held() -> None:
    both = (0b01, 0b10, 0b11)

    assert _cpu_hints({}) == ([both, both], both)
    assert _cpu_hints({"c0": "1,9", "c1": "4,12"}) == ([(0b01, 0b11), (0b10, 0b11)], (0b11,))
    assert _cpu_hints({"c0": "1,9", "c1": "4"})[0] == [(0b01, 0b11), ()]
    assert _cpu_hints({"c0": "1,9", "c1": "4"})[1] == ()
    assert _cpu_hints({"c0": "1-2,9-10"})[0][0] == ()
    assert _cpu_hints({"c0": "1,9", "c1": "2,10"}, reusable="4")[1] == (0b01, 0b11)
    assert _cpu_hints({"c1": "4,12"})[1] == (0b10, 0b11)
    assert _cpu_hints({"c1": "4,12"}, reusable="1")[1] == (0b11,)
    assert _cpu_hints({"c1": "4,12"}, free="7", reusable="4-5")[1] == (0b10, 0b11)
    assert _cpu_hints({"c1": "4,12"}, free="7", reusable="5")[1] == (0b10, 0b11)
    assert _cpu_hints({"c1": "4,12"}, free="7")[1] == ()


def test_6_5_a_pod_admitted_again_stays_where_it_is() -> None:
    """Its containers hold the same CPUs, the app container those of the init container."""
    node = Node(M1, topologyManagerPolicy="restricted", topologyManagerScope="pod")
    node.verdict(pod("first", container(6)))
    document = pod("second", container(2), init=(container(2),))

    placed = node.affinities(document)
    node.remove("first")

    assert placed == node.affinities(document) == {"i0": ([1], True), "c0": ([1], True)}


def test_6_5_align_by_socket_prefers_as_few_sockets_as_the_width_needs() -> None:
    options = {"align-by-socket": "true"}
    eight = machine([[c] for c in range(16)], [c // 2 for c in range(16)], [c // 8 for c in range(16)])
    four, eight_nodes = (Node(topology, cpuManagerPolicyOptions=options).kubelet for topology in (M2, eight))

    wide = cpu_manager.generate_hints(four, four.machine.all_cpus, 0, 9)
    assert wide.preferred_masks == (0b0111, 0b1011, 0b1101, 0b1110, 0b1111)
    narrow = cpu_manager.generate_hints(eight_nodes, eight_nodes.machine.all_cpus, 0, 5)
    assert 0b1111 in narrow.preferred_masks
    assert 0b11111 not in narrow.preferred_masks


def test_6_5_align_by_socket_is_off_where_the_number_of_sockets_is_unknown() -> None:
    node = Node(
        {**M1, "num_sockets": 0},
        cpuManagerPolicyOptions={"align-by-socket": "true"},
        topologyManagerPolicy="restricted",
    )

    assert node.affinities(pod("a", container(9))) == {"c0": ([0, 1], True)}


@pytest.mark.parametrize(
    ("options", "count", "reason", "wanted", "had"),
    [
        pytest.param({}, 15, Reason.UNEXPECTED_ADMISSION, 15, 14, id="too many"),
        pytest.param({"full-pcpus-only": "true"}, 3, Reason.SMT_ALIGNMENT, 3, None, id="half a core"),
        pytest.param({"full-pcpus-only": "true"}, 16, Reason.SMT_ALIGNMENT, 16, 14, id="too many cores"),
    ],
)
def test_6_6_refusals_tell_what_was_short(
    options: dict[str, str], count: int, reason: Reason, wanted: int, had: int | None
) -> None:
    verdict = Node(M1, cpuManagerPolicyOptions=options).verdict(pod("a", container(count)))

    assert isinstance(verdict, Rejected)
    assert (verdict.reason, verdict.resource, verdict.wanted, verdict.had) == (reason, "cpu", wanted, had)


# -- 7: memory


def _memory_node(*gib: int, version: str = "1.36", hugepages: tuple[int, ...] = (), **kubelet: Any) -> Node:
    """A node with as much allocatable memory on each NUMA node, and as many GiB of 2Mi pages; a CPU on each."""
    huge = hugepages or (0,) * len(gib)
    numa = [
        {
            "id": n,
            "memory": (size + huge[n] + (n == 0)) * GIB,
            "hugepages": {"2Mi": huge[n] * 512},
        }
        for n, size in enumerate(gib)
    ]
    return Node(
        {"cpus": [[n, n, 0, n, None] for n in range(len(gib))], "numa": numa},
        version,
        reserve="1",
        memoryManagerPolicy="Static",
        reservation={"cpu": "1", "memory": "1Gi"},
        reservedMemory=[{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        **kubelet,
    )


def _request(node: Node, *containers: Json) -> PodRequest:
    return resolve(pod_from_json(pod("a", *containers)), node.kubelet.rules)


def _shown(hints: Mapping[str, Hints | None]) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    return {name: (h.masks, h.preferred_masks) for name, h in hints.items() if h is not None}


def _of_container(node: Node, *containers: Json) -> Mapping[str, Hints | None]:
    request = _request(node, *containers)
    return memory_manager.container_hints(node.kubelet, node.state.memory, request, request.containers[0])


def _of_pod(node: Node, *containers: Json) -> Mapping[str, Hints | None]:
    return memory_manager.pod_hints(node.kubelet, node.state.memory, _request(node, *containers))


def _refused(code: str) -> str:
    return f"Allocate failed due to [memorymanager] {code}, which is unexpected"


@pytest.mark.parametrize("hints", [_of_container, _of_pod])
def test_7_4_no_mask_is_no_preference(hints: Callable[..., Mapping[str, Hints | None]]) -> None:
    assert _shown(hints(_memory_node(4, 4), container(0.5, "8Gi"))) == {"memory": ((0b11,), (0b11,))}
    assert hints(_memory_node(4, 4), container(0.5, "9Gi")) == {}


def test_7_4_one_width_for_all_types() -> None:
    """Memory fits one node, the pages need two: two nodes are preferred."""
    node = _memory_node(8, 8, hugepages=(1, 1))

    hints = _of_container(node, container(0.5, "1Gi", {"hugepages-2Mi": "1536Mi"}))

    assert _shown(hints) == {"memory": ((0b11,), (0b11,)), "hugepages-2Mi": ((0b11,), (0b11,))}


def test_7_4_a_page_size_that_the_machine_lacks_is_a_nil_dereference() -> None:
    verdict = _memory_node(8).verdict(pod("a", container(0.5, "1Gi", {"hugepages-1Gi": "1Gi"})))

    assert isinstance(verdict, Rejected)
    assert (verdict.reason, verdict.message) == (
        Reason.KUBELET_PANIC,
        "panic: runtime error: invalid memory address or nil pointer dereference",
    )


def _nodes(*rows: tuple[int, int, int]) -> MemoryState:
    """Machine state from rows of (free, assignments, cells); everything is allocatable."""
    return MemoryState(
        nodes=tuple(
            NUMANodeMemory(n, assignments, cells, (("memory", MemoryAmounts(free, 0, free, 0, free)),))
            for n, (free, assignments, cells) in enumerate(rows)
        )
    )


def test_7_4_a_group_is_open_while_no_node_of_it_is_used_in_another() -> None:
    """As 1.31 leaves it: blocks on {0,1} and on {1,2}, then the latter went; node 1 keeps the cells of the last one."""
    state = _nodes((9, 1, 0b011), (9, 1, 0b110), (9, 0, 0b100))

    hints = memory_manager.calculate_hints(state, {"memory": 5}, {})

    assert hints is not None
    assert hints.masks == (0b100, 0b110)


WRAPPED = 2**63
"""One byte more than an int64 holds; nodes whose pages exceed their memory have that much allocatable (7.3)."""


@pytest.mark.parametrize("hints", [_of_container, _of_pod])
def test_7_5_amounts_beyond_int64_have_no_opinion(hints: Callable[..., Mapping[str, Hints | None]]) -> None:
    node = _memory_node(-1, hugepages=(2,))
    pages = {"hugepages-2Mi": "2Mi"}

    most = hints(node, container(0.5, str(WRAPPED - 1), pages))
    assert _shown(most) == {"memory": ((1,), (1,)), "hugepages-2Mi": ((1,), (1,))}
    assert hints(node, container(0.5, str(WRAPPED), pages)) == {}


def test_7_5_amounts_beyond_int64_are_refused() -> None:
    pages = {"hugepages-2Mi": "2Mi"}
    node = _memory_node(-1, hugepages=(2,))
    verdict = node.verdict(pod("a", container(0.5, str(WRAPPED), pages)))

    assert isinstance(verdict, Rejected)
    assert verdict.message == _refused("failed to represent quantity as int64")
    assert (verdict.provider, verdict.resource, verdict.wanted, verdict.had) == (Provider.MEMORY, "memory", None, None)
    assert node.memory(pod("b", container(0.5, str(WRAPPED - 1), pages))) == {"c0": [0]}


@pytest.mark.parametrize(
    ("wanted", "had"),
    [
        pytest.param(9, 8, id="more than all nodes have"),
        pytest.param(8, None, id="all nodes have it, but a node in use stands in the way"),
    ],
)
def test_7_5_e1_tells_what_was_short(wanted: int, had: int | None) -> None:
    node = _memory_node(10, 10)
    node.verdict(pod("a", container(0.5, "6Gi")))
    node.verdict(pod("b", container(0.5, "6Gi")))

    verdict = node.verdict(pod("c", container(0.5, f"{wanted}Gi")))

    assert isinstance(verdict, Rejected)
    assert (verdict.resource, verdict.wanted) == ("memory", wanted * GIB)
    assert verdict.had == (None if had is None else had * GIB)


def test_7_5_e2_where_only_a_mask_fits_that_is_not_preferred() -> None:
    """Nodes 0 and 1 are nearly full. The pod of 21 has no mask, so nothing is stored for it and it passes the merge.

    Its first container makes a group of nodes 2 and 3; the second fits nowhere but in that group.
    """
    node = _memory_node(10, 10, 10, 10, topologyManagerPolicy="single-numa-node", topologyManagerScope="pod")
    for name in "ab":
        node.verdict(pod(name, container(0.5, "9Gi")))

    message = node.memory(pod("c", *(container(0.5, size) for size in ("12Gi", "8Gi", "1Gi"))))

    assert message == _refused("failed to find the default preferred hint")


def test_7_5_an_empty_request_finds_no_default() -> None:
    with pytest.raises(Refusal, match="no NUMA nodes with enough memory"):
        memory_manager.choose_mask(_memory_node(8).kubelet, _nodes((8, 0, 1)), {}, {}, None, preferred=False)


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("none", "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"),
        ("restricted", "preferred hint violates NUMA node allocation"),
    ],
)
def test_7_5_a_container_that_lives_on_the_budget_of_its_pod_asks_for_nothing_and_is_refused(
    policy: str, code: str
) -> None:
    gates = {"PodLevelResources": True, "PodLevelResourceManagers": True}
    node = _memory_node(10, 10, topologyManagerPolicy=policy, featureGates=gates)

    message = node.memory(pod("a", container(0.5), {"resources": {}}, resources={"cpu": "1500m", "memory": "4Gi"}))

    assert message == _refused(code)


def test_7_5_an_affinity_with_just_enough_stays_as_it_is() -> None:
    """Up to 1.31 there is no check of groups: both nodes are in use singly, and have 4 free each."""
    node = _memory_node(10, 10, version="1.31", topologyManagerPolicy="best-effort")
    placed = [node.memory(pod(name, container(0.5, size))) for name, size in (("a", "6Gi"), ("b", "6Gi"), ("c", "8Gi"))]

    assert placed == [{"c0": [0]}, {"c0": [1]}, {"c0": [0, 1]}]


def test_7_5_an_affinity_is_extended_to_supersets_only() -> None:
    """{0,2} and {1,2} would be preferred, but the affinity {0,1} is a lower bound."""
    node, state = _memory_node(8), _nodes((2, 0, 1), (2, 0, 2), (10, 0, 4))

    assert memory_manager.choose_mask(node.kubelet, state, {"memory": 11}, {}, 0b011, preferred=False) == 0b111


def test_7_6_reused_memory_may_be_all_there_is() -> None:
    assert _memory_node(10, 10).memory(pod("a", container(0.5, "10Gi"), init=(container(0.5, "10Gi"),))) == {
        "i0": [0],
        "c0": [0],
    }


def test_7_6_reuse_is_counted_by_mask_and_type() -> None:
    node = _memory_node(10, 10, hugepages=(1, 1))
    node.verdict(
        pod(
            "a",
            container(0.5, "2Gi", {"hugepages-2Mi": "0"}),
            init=(container(0.5, "3Gi", {"hugepages-2Mi": "0"}), container(0.5, "4Gi", {"hugepages-2Mi": "2Mi"})),
        )
    )

    assert node.state.memory.reusable == ("a", {(1, "memory"): 2 * GIB, (1, "hugepages-2Mi"): 2 << 20})
    node.verdict(pod("b", container(0.5, "1Gi", {"hugepages-2Mi": "0"})))
    assert node.state.memory.reusable == ("b", {(1, "memory"): 0, (1, "hugepages-2Mi"): 0})


def test_7_7_blocks_that_do_not_match_the_request_give_no_preference() -> None:
    memory, pages = Block(0b10, "memory", 5), Block(0b10, "hugepages-2Mi", 2)

    hints = memory_manager.regenerate_hints((memory, pages), {"memory": 5, "hugepages-2Mi": 2})
    assert _shown(hints) == {"memory": ((0b10,), (0b10,)), "hugepages-2Mi": ((0b10,), (0b10,))}
    assert memory_manager.regenerate_hints((memory, pages), {"memory": 5, "hugepages-2Mi": 4}) == {}
    assert memory_manager.regenerate_hints((memory,), {"memory": 5, "hugepages-2Mi": 2}) == {}


def test_7_8_the_budget_of_a_pod_is_given_back_with_its_last_container() -> None:
    node = _memory_node(
        10,
        10,
        topologyManagerPolicy="best-effort",
        topologyManagerScope="pod",
        featureGates={"PodLevelResources": True, "PodLevelResourceManagers": True},
    )
    node.verdict(pod("other", container(0.5, "3Gi")))
    before = node.state.memory
    placed = node.memory(
        pod("a", container(0.5, "2Gi"), container(0.5, "1Gi"), resources={"cpu": "1500m", "memory": "5Gi"})
    )
    assert placed == {"c0": [0], "c1": [0]}
    assert node.free() == [2, 10]

    state = memory_manager.release_container(node.state.memory, "a", "c0")
    assert state.nodes == node.state.memory.nodes
    assert list(state.entries["a"]) == ["c1"]
    state = memory_manager.release_container(state, "a", "c1")
    assert (state.nodes, state.entries, state.pod_entries) == (before.nodes, before.entries, {})


# -- 5.5: merging


def test_5_5_average_distance_counts_every_ordered_pair_and_each_node_itself() -> None:
    distances = Distances({0: (10, 12, 32), 1: (12, 10, 32), 2: (32, 32, 10)})

    assert [distances.average(mask) for mask in (0b1, 0b11, 0b101, 0b111, 0b11)] == [10, 11, 21, 182 / 9, 11]


def test_5_5_the_narrowest_mask_wins_whatever_its_number() -> None:
    space = universe((0, 1, 2))

    assert narrowest(space, space.family([0b011, 0b100])) == 0b100
    assert narrowest(space, space.family([0b101, 0b011, 0b111])) == 0b011
    assert narrowest(space, space.family([0b101, 0b011]), Distances({0: (1, 9, 5), 1: (9, 1), 2: (5, 9, 1)})) == 0b101


def _hints(ids: tuple[int, ...], feasible: Iterable[int], preferred: Iterable[int] = ()) -> Hints:
    space = universe(ids)
    return Hints(space, space.family(feasible), space.family(preferred))


@pytest.mark.parametrize(
    ("lists", "affinity", "preferred", "why"),
    [
        pytest.param([], 0b1111, True, "no resource has an opinion", id="no opinion"),
        pytest.param(
            [_hints((0, 1), [0b01, 0b10, 0b11], [0b01, 0b10]), _hints((0, 1), [0b10, 0b11], [0b10])],
            0b10,
            True,
            "preferred by all",
            id="preferred by all",
        ),
        pytest.param(
            [_hints((0, 1), [0b11], [0b11]), _hints((0, 1), [0b01, 0b11], [0b01])],
            0b11,
            False,
            "no mask is preferred by all",
            id="as wide as the widest need",
        ),
        pytest.param(
            [_hints((0, 1, 2, 3), [0b0001, 0b1100]), _hints((0, 1, 2, 3), [0b0010, 0b1100])],
            0b1100,
            False,
            "no mask is preferred by all",
            id="wider than any need, for want of another",
        ),
        pytest.param(
            [_hints((0, 1), [0b01]), _hints((0, 1), [0b10])],
            0b1111,
            False,
            "no combination leaves a node in common",
            id="nothing in common",
        ),
        pytest.param(
            [_hints((0,), [])], 0b1111, False, "no combination leaves a node in common", id="impossible: all nodes"
        ),
        pytest.param(
            [_hints((1, 8), [1 << 1, 1 << 8]), _hints((1, 8, 9), [1 << 1, 1 << 8], [1 << 1])],
            1 << 1,
            False,
            "no mask is preferred by all",
            id="ids of several universes are merged in ascending order",
        ),
    ],
)
def test_5_5_merge(lists: list[Hints], affinity: int, preferred: bool, why: str) -> None:  # noqa: FBT001
    assert merge(lists, 0b1111, None) == (TopologyHint(affinity, preferred), why)


def test_seventeen_nodes_are_more_than_a_kubelet_walks() -> None:
    assert walked_universe(range(16), Provider.MEMORY).ids == tuple(range(16))
    with pytest.raises(Refusal, match=r"^the memory manager would walk 2\^17 sets of NUMA nodes$") as refusal:
        walked_universe(range(17), Provider.MEMORY)

    assert (refusal.value.reason, refusal.value.wanted, refusal.value.had) == (Reason.KUBELET_HANG, 17, 16)


# -- families of masks


def test_families_of_two_ids() -> None:
    space = Universe((3, 5))

    assert space.everything == 0b1111
    assert space.full == 0b1000
    assert space.by_width == (0b0001, 0b0110, 0b1000)
    assert space.touching(0) == 0
    assert space.touching(1 << 3) == 0b1010
    assert space.containing(1 << 3 | 1 << 5) == 0b1000
    assert space.containing(1 << 3 | 1 << 4) == 0
    assert space.containing(1 << 4) == 0
    assert at_least((1, 2), 2) == 0b1100


def test_8_2_devices_on_ids_outside_the_machine_count_where_they_touch_it() -> None:
    """Two devices on node 0, one of them also on a node that the machine does not have."""
    assert touching_at_least((0, 1), ((0b1, 1), (0b1 | 1 << 9, 1)), 2) == 0b1010


# -- 8: devices that are held, gone or broken

GPU, NIC = "x.example/gpu", "x.example/nic"
HEALTHY, BROKEN = Device(0b01, healthy=True), Device(0b01, healthy=False)


def _gpus(count: int, *, nics: int | None = None) -> PodRequest:
    """A pod of one container that wants GPUs, and NICs where told so."""
    wanted = {GPU: str(count)} if nics is None else {GPU: str(count), NIC: str(nics)}
    return _request(Node(M1), container(0.5, more=wanted))


def _with_gpus(held: Iterable[str] = (), *, by: str = "a", **gpus: Device) -> DeviceState:
    """A state in which these GPUs are reported, and pod *by* holds some."""
    return DeviceState.of({GPU: gpus}, {by: {"c0": {GPU: frozenset(held)}}} if held else {})


@pytest.mark.parametrize(
    ("state", "wanted", "message", "amounts"),
    [
        pytest.param(
            _with_gpus(["a"], a=HEALTHY, b=HEALTHY),
            2,
            f'pod "a" container "c0" changed request for resource "{GPU}" from 1 to 2',
            (2, 1),
            id="D1",
        ),
        pytest.param(
            DeviceState.of({}, {"other": {"c0": {GPU: frozenset("a")}}}),
            1,
            f"cannot allocate unregistered device {GPU}",
            (1, 0),
            id="D2",
        ),
        pytest.param(
            _with_gpus(a=BROKEN),
            1,
            f"no healthy devices present; cannot allocate unhealthy devices {GPU}",
            (1, 0),
            id="D3",
        ),
        pytest.param(
            _with_gpus(["a", "b"], a=BROKEN, b=HEALTHY, c=HEALTHY),
            2,
            f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {GPU}",
            (2, 1),
            id="D4",
        ),
        pytest.param(
            _with_gpus(["a"], by="other", a=HEALTHY, b=HEALTHY),
            2,
            f"requested number of devices unavailable for {GPU}. Requested: 2, Available: 1",
            (2, 1),
            id="D5",
        ),
    ],
)
def test_8_3_refusals_in_the_order_of_the_kubelet(
    state: DeviceState, wanted: int, message: str, amounts: tuple[int, int]
) -> None:
    request = _gpus(wanted)

    with pytest.raises(Refusal) as refusal:
        device_manager.allocate(state, request, request.containers[0], None, Choices())

    assert refusal.value.message == f"Allocate failed due to {message}, which is unexpected"
    assert (refusal.value.resource, refusal.value.wanted, refusal.value.had) == (GPU, *amounts)
    assert refusal.value.alternatives == ()


def test_8_3_whichever_resource_fails_first_is_told() -> None:
    state, request = DeviceState.of({GPU: {"a": BROKEN}, NIC: {"n": BROKEN}}), _gpus(1, nics=1)

    with pytest.raises(Refusal, match=f"unhealthy devices {GPU},") as refusal:
        device_manager.allocate(state, request, request.containers[0], None, Choices())

    assert [f"unhealthy devices {NIC}," in message for message in refusal.value.alternatives] == [True]


def test_8_3_a_container_that_has_all_its_devices_gets_no_more() -> None:
    request = _gpus(2)
    for state in (
        _with_gpus(["a", "b"], a=HEALTHY, b=HEALTHY, c=HEALTHY),
        _with_gpus(["a", "b"], a=HEALTHY, b=HEALTHY),
    ):
        after = device_manager.allocate(state, request, request.containers[0], None, Choices())

        assert (after.entries, after.held) == (state.entries, state.held)


def test_8_1_a_resource_that_no_plugin_ever_served_is_passed_over() -> None:
    kubelet, request = Node(M1).kubelet, _gpus(1, nics=1)
    state = DeviceState.of({NIC: {"n": HEALTHY}})

    after = device_manager.allocate(state, request, request.containers[0], None, Choices())

    assert after.entries == {"a": {"c0": {NIC: frozenset("n")}}}
    assert list(device_manager.container_hints(kubelet, state, request, request.containers[0])) == [NIC]
    assert list(device_manager.pod_hints(kubelet, state, request)) == [NIC]


def test_8_2_hints_of_devices_that_are_held() -> None:
    kubelet = Node(M1).kubelet
    state = _with_gpus(["a", "b"], a=HEALTHY, b=Device(0b10, healthy=True), c=HEALTHY, d=HEALTHY)

    for wanted, masks in ((2, (0b11,)), (1, ()), (3, ())):
        request = _gpus(wanted)
        of_container = device_manager.container_hints(kubelet, state, request, request.containers[0])[GPU]
        of_pod = device_manager.pod_hints(kubelet, state, request)[GPU]
        assert of_container is not None
        assert of_pod is not None
        assert of_container.masks == of_pod.masks == masks
