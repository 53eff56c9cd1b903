"""Rules of the NRI policy, one at a time: facts that its documentation and tests state, and what kills it."""

from dataclasses import replace
from typing import Any, Literal

import pytest

from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.errors import OutOfStepsError
from extender.kubelet.sets import format_list, parse_list
from extender.nri.affinity import Expression
from extender.nri.books import Setup
from extender.nri.config import PolicyConfig, PolicyStartError
from extender.nri.cpu_allocator import discover, take_cpus
from extender.nri.cpu_groups import compare
from extender.nri.events import Node, NriOutcome, create, resize, run_pod, set_up, start, stop
from extender.nri.hints import container_hints
from extender.nri.machine import DRAM, HIGH, LOW, PMEM, MemoryNode, NriMachine
from extender.nri.memory import BEST_EFFORT, BURSTABLE, GUARANTEED, MemoryBooks
from extender.nri.objects import ContainerDevice, NriPod, QoS
from extender.nri.reconfigure import reconfigurations
from extender.nri.text import PatternError, glob_match, parse_bool, parse_duration, parse_id_list, parse_int
from extender.nri.verdict import NriRefusal
from extender.wire.nri_scenarios import NriStep, config_from_json, container_of, pod_of, resources_of
from tests.replay.nri.vectors import machine

CONFIG = PolicyConfig(
    pin_cpu=True, pin_memory=True, reserved_cpus="cpuset:0", unlimited_burstable="package", colocate_pods=True
)
MIB = 1 << 20


def setup_of(name: str, config: PolicyConfig = CONFIG) -> Setup:
    return set_up(discover(machine(name)), config)


def put(
    node: Node, qos: Literal["G", "B", "E"], cpu: list[int], memory: int = 100 * MIB, pod: str = "", **fields: Any
) -> tuple[Node, NriOutcome]:
    """A pod with one container; a pod that is there gets one more."""
    number = len(node.books.containers) + len(node.failed) + 1
    pod = pod or f"p{number}"
    if pod not in node.books.pods:
        node = run_pod(node, pod_of(NriStep(o="pod", id=pod, ns="default", n=pod, q=qos, an=fields.pop("an", {}))))
    step = NriStep(
        o="new", id=f"c{number}", p=pod, n=f"c{number}", r=[*cpu, memory, memory if qos == "G" else -1], **fields
    )
    total = node.books.setup.topology.machine.memory_total_bytes
    return create(node, container_of(step, node.books.pods[pod].qos, total))


def told(node: Node, outcome: NriOutcome) -> tuple[str, str, str]:
    assert outcome.grant is not None
    assert outcome.pins is not None
    pool = node.books.setup.tree.pools[outcome.grant.pool].name
    return pool, format_list(outcome.pins.cpus or 0), format_list(outcome.pins.mems or 0)


def test_pools_are_numbered_children_first() -> None:
    tree = setup_of("s-n4c16").tree

    assert [pool.name for pool in tree.pools] == [
        "NUMA node #0", "NUMA node #1", "socket #0", "NUMA node #2", "NUMA node #3", "socket #1", "root",
    ]  # fmt: skip
    assert [pool.depth for pool in tree.pools] == [2, 2, 1, 2, 2, 1, 0]


def test_the_worked_trace_of_the_documentation() -> None:
    node = start(setup_of("s-n4c16"))
    seen = []
    steps: tuple[tuple[Literal["G", "B", "E"], list[int], str], ...] = (
        ("G", [1000, 1000], ""),
        ("G", [2000, 2000], ""),
        ("G", [3000, 3000], ""),
        ("G", [4000, 4000], "p4"),
        ("E", [-1, -1], "a"),
        ("E", [-1, -1], "a"),
    )
    for qos, cpu, pod in steps:
        node, outcome = put(node, qos, cpu, -1 if qos == "E" else 100 * MIB, pod)
        seen.append(told(node, outcome))

    assert seen == [
        ("NUMA node #1", "4", "1"),
        ("NUMA node #2", "8-9", "2"),
        ("NUMA node #3", "12-14", "3"),
        ("socket #0", "2-3,6-7", "0-1"),
        ("NUMA node #0", "1", "0"),
        ("NUMA node #0", "1", "0"),
    ]
    assert [node.books.zones()[i][0] for i in (0, 1, 2, 6)] == [999, 1000, 1999, 4999]


def test_seven_cpus_are_refused_with_fifteen_almost_idle() -> None:
    node = start(setup_of("s-n4c16"))
    for _ in range(4):
        node, _ = put(node, "G", [500, 500])

    _, seven = put(node, "G", [7000, 7000])
    after, six = put(node, "G", [6000, 6000])

    assert seven.refusal is NriRefusal.TAKE
    assert told(after, six)[1] == "8-10,12-14"


def test_a_drained_pool_leaves_a_best_effort_container_unpinned_and_refuses_everything_later() -> None:
    node = start(setup_of("s-1n4c"))
    node, _ = put(node, "G", [3000, 3000])
    node, unpinned = put(node, "E", [-1, -1], -1)
    _, later = put(node, "B", [100, -1])

    assert unpinned.pins is not None
    assert unpinned.pins.cpus is None
    assert later.refusal is NriRefusal.SLICE


def test_an_event_makes_a_new_node_and_leaves_the_old_one() -> None:
    empty = start(setup_of("s-n4c16"))
    before = empty.books.zones()

    node, _ = put(empty, "G", [2000, 2000])
    node, resized = resize(node, "c1", resources_of([3000, 3000, 100 * MIB, 100 * MIB]))
    emptied, _ = stop(node, "c1")

    assert resized.grant is not None
    assert resized.grant.exclusive.bit_count() == 3
    assert empty.books.zones() == before == emptied.books.zones()
    assert node.books.zones() != before


def test_a_refused_resize_leaves_the_container_without_a_grant() -> None:
    node, _ = put(start(setup_of("s-n4c16")), "G", [2000, 2000])

    node, outcome = resize(node, "c1", resources_of([64000, 64000, 100 * MIB, 100 * MIB]))

    assert outcome.refusal is NriRefusal.SLICE
    assert node.books.grants == {}


@pytest.mark.parametrize(
    ("name", "annotations"),
    [
        (
            "s-hbm-cxl",
            {"strict.topologyhints": "true", "test.topologyhints": '{"a": {"Provider": "x", "NUMAs": "61"}}'},
        ),
        (
            "s-n4c16",
            {
                "pick-resources-by-hints": "true",
                "test.topologyhints": '{"a": {"Provider": "podresourceapi:x", "CPUs": "a-b"}}',
            },
        ),
        ("r-gb10", {"test.topologyhints": '{"a": {"Provider": "x", "NUMAs": "7"}}'}),
    ],
)
def test_annotations_that_kill_the_plugin_are_a_verdict(name: str, annotations: dict[str, str]) -> None:
    annotations = {f"{key}.resource-policy.nri.io": value for key, value in annotations.items()}

    _, outcome = put(start(setup_of(name)), "G", [2000, 2000], an=annotations)

    assert outcome.refusal is NriRefusal.PANIC


def test_an_annotation_cannot_make_a_decision_long() -> None:
    entries = "".join(f"\n- match: {{key: name, operator: MatchesNone, values: ['{'*a' * 20}']}}" for _ in range(2000))
    node = start(setup_of("s-n4c16"))
    for _ in range(6):
        node, _ = put(node, "B", [10, -1])
    pod = pod_of(
        NriStep(o="pod", id="x", ns="n", n="x", q="B", an={"resource-policy.nri.io/affinity": f"c:{entries}"})
    )  # own scope would match nothing
    pod = replace(pod, name="p1")
    step = NriStep(o="new", id="c9", p="x", n="c", r=[10, -1, -1, -1])

    with pytest.raises(OutOfStepsError):
        create(run_pod(node, pod), container_of(step, pod.qos, 1 << 33), Budget(2000))


@pytest.mark.parametrize("reserved", [None, "cpuset:99", "cpuset:2,4", "0", "99"])
def test_reservations_that_the_policy_refuses(reserved: str | None) -> None:
    milli = int(reserved) * 1000 if reserved and reserved.isdigit() else None

    with pytest.raises(PolicyStartError):
        setup_of("s-n4c16-isol", replace(CONFIG, reserved_cpus=reserved, reserved_millicpu=milli))


@pytest.mark.parametrize(
    ("free", "count", "expected"), [("2-3,10-14,20", 9, None), ("2-3,10-14,20", 8, "2-3,10-14,20"), ("0-3", 0, "")]
)
def test_allocator_takes_all_or_nothing(free: str, count: int, expected: str | None) -> None:
    taken = take_cpus(discover(machine("s-l3-2p")), parse_list(free), count)

    assert (None if taken is None else format_list(taken)) == expected


_ROWS = (
    (10, 21, 11, 21, 17, 28, 28, 28),
    (21, 10, 21, 11, 28, 28, 17, 28),
    (11, 21, 10, 21, 28, 17, 28, 28),
    (21, 11, 21, 10, 28, 28, 28, 17),
    (17, 28, 28, 28, 10, 28, 28, 28),
    (28, 28, 17, 28, 28, 10, 28, 28),
    (28, 17, 28, 28, 28, 28, 10, 28),
    (28, 28, 28, 17, 28, 28, 28, 10),
)


def memory_machine(*, movable_pmem: bool = False) -> NriMachine:
    nodes = tuple(
        MemoryNode(i, 1 << i if i < 4 else 0, 4, DRAM if i < 4 else PMEM, i < 4 or not movable_pmem, row)
        for i, row in enumerate(_ROWS)
    )
    return NriMachine((), nodes, (), 0, 0, 0, 0, 32)


def test_requests_move_to_wider_zones_by_priority_younger_first() -> None:
    books = MemoryBooks(memory_machine(), UNLIMITED)
    seen = []
    for id_, (node, priority) in enumerate(
        [
            *[(0, BEST_EFFORT), (2, BEST_EFFORT)] * 2,
            *[(0, GUARANTEED), (2, GUARANTEED)] * 2,
            *[(1, BURSTABLE), (3, BURSTABLE)] * 2,
            (1, BURSTABLE),
        ],
        start=1,
    ):
        offer = books.offer(str(id_), 2, priority, 1 << node, DRAM)
        assert offer is not None
        moved = {int(i): format_list(zone) for i, zone in books.commit(offer).items()}
        seen.append((format_list(offer.zone), moved))

    assert seen == [
        ("0", {}), ("2", {}), ("0", {}), ("2", {}),
        ("0", {3: "0-3"}), ("2", {4: "0-3"}), ("0", {1: "0-3"}), ("2", {2: "0-3"}),
        ("1", {4: "0-7"}), ("3", {3: "0-7"}), ("1", {2: "0-7"}), ("3", {1: "0-7"}), ("0-7", {}),
    ]  # fmt: skip


@pytest.mark.parametrize(("node", "zone"), [(4, "0,4"), (6, "1,6"), (5, "2,5")])
def test_movable_memory_gets_normal_memory_beside_it(node: int, zone: str) -> None:
    offer = MemoryBooks(memory_machine(movable_pmem=True), UNLIMITED).offer("a", 4, BURSTABLE, 1 << node, PMEM)

    assert offer is not None
    assert format_list(offer.zone) == zone


def test_more_than_there_is_gets_no_offer_and_leaves_the_zone_behind() -> None:
    books = MemoryBooks(memory_machine(), UNLIMITED)

    assert books.offer("a", 33, BURSTABLE, 0b1111, DRAM) is None
    assert books.requests == {}
    assert set(books.zones.values()) == {0}


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("mon*", "monitor", True),
        ("mon?tor", "monitor", True),
        ("*", "a/b", False),
        ("*/*", "a/b", True),
        ("[a-c]x", "bx", True),
        ("[^a-c]x", "bx", False),
        (r"\*", "*", True),
        ("a***b", "ab", True),
        ("", "", True),
    ],
)
def test_globs_match_as_in_go(pattern: str, text: str, matches: bool) -> None:  # noqa: FBT001
    assert glob_match(pattern, text) is matches


@pytest.mark.parametrize("pattern", ["[", "[a", "[]a]", "[-]", "\\"])
def test_malformed_globs_are_faults(pattern: str) -> None:
    with pytest.raises(PatternError):
        glob_match(pattern, "a")


def test_texts_are_read_as_go_reads_them() -> None:
    assert [parse_bool(t) for t in ("t", "TRUE", "0", "yes", "")] == [True, True, False, None, None]
    assert [parse_int(t) for t in ("7", "-1", "0x10", "010", "0-1", "", "1_0")] == [7, -1, 16, 8, None, None, 10]
    assert [parse_id_list(t) for t in ("", "0-2,5", "2-1", "a", "1,,2", " 1")] == [0, 0b100111, None, None, None, None]
    assert [parse_id_list(t) for t in ("+1", "0-+2", "-1", "+")] == [0b10, 0b111, None, None]
    assert [parse_duration(t) for t in ("0", "1h", "1.5s", "-1s", "1", "s", "")] == [
        0, 3600 * 10**9, 15 * 10**8, -(10**9), None, None, None,
    ]  # fmt: skip
    units = ("7ns", "7us", "7µs", "7ms", "1m", "1h2m3.25s")
    assert [parse_duration(t) for t in units] == [7, 7000, 7000, 7 * 10**6, 60 * 10**9, 3723 * 10**9 + 25 * 10**7]


def test_only_strict_hints_look_at_the_reserved_cpus_of_a_pool_and_only_if_they_are_granted() -> None:
    """The root of `s-n4c16` has CPU 0 reserved, and the hint leaves it out."""
    hint = '{"a": {"Provider": "x", "CPUs": "1-15"}}'
    annotations = {"strict.topologyhints": "true", "test.topologyhints": hint}
    keys = {f"{key}.resource-policy.nri.io": text for key, text in annotations.items()}
    node = start(setup_of("s-n4c16"))

    _, exclusive = put(node, "G", [9000, 9000], an=dict(keys))
    keys["prefer-reserved-cpus.resource-policy.nri.io"] = "true"
    _, reserved = put(node, "G", [500, 500], an=keys)

    assert exclusive.refusal is None
    assert reserved.refusal is NriRefusal.STRICT_HINT


@pytest.mark.parametrize("key", ["pod/name", "pod/labels/app", "pod"])
def test_an_expression_about_a_pod_that_is_gone_selects_nothing(key: str) -> None:
    node, _ = put(start(setup_of("s-n4c16")), "B", [10, -1])
    (container,) = node.books.containers.values()

    assert not Expression(key, "Exists").matches(container, None)
    assert Expression(key, "Exists").matches(container, node.books.pods[container.pod_id]) is (key == "pod/name")


@pytest.mark.parametrize(
    ("text", "scope", "cpu", "refusal"),
    [
        ("", "pod", 1000, None),
        ("{mode: mask-first, claim: [eth0]}", "pod", 500, None),
        ("mode: never", "pod", 1000, NriRefusal.REQUEST),
        ("mode: [", "pod", 1000, NriRefusal.REQUEST),
        ("claim: eth0", "pod", 1000, NriRefusal.REQUEST),
        ("{mode: mask-first, claim: [eth0]}", "container.c1", 1000, None),
        ("{mode: mask-first, claim: [eth0]}", "container.c1", 500, NriRefusal.REQUEST),
    ],
)
def test_affinity_of_interrupts(text: str, scope: str, cpu: int, refusal: NriRefusal | None) -> None:
    annotations = {f"irq-affinity.resource-policy.nri.io/{scope}": text}

    _, outcome = put(start(setup_of("s-n4c16")), "G", [cpu, cpu], an=annotations)

    assert outcome.refusal is refusal


@pytest.mark.parametrize(
    ("a", "b", "sign"),
    [(0b11, 0b1111, 1), (0b1111, 0b11, -1), (0b111, 0b1111, 1), (0b1, 0b11, -1), (0b11, 0b1, 1), (0b11, 0b1100, 0)],
)
def test_of_two_sets_with_enough_cpus_of_a_class_the_smaller_one_is_better(a: int, b: int, sign: int) -> None:
    classes = (0b111111, 0, 0)

    found = compare(classes, a, b, HIGH, 2)

    assert (found > 0) - (found < 0) == sign


def test_ids_beyond_every_machine_are_no_malformed_list() -> None:
    """Seen red: a strict hint for NUMA node 70000 was taken for one without NUMA nodes, and the plugin dies of it."""
    strict = {"strict.topologyhints": "true", "test.topologyhints": '{"a": {"Provider": "x", "NUMAs": "70000"}}'}
    far = '{"a": {"Provider": "podresourceapi:x", "CPUs": "3,70000", "NUMAs": "0"}}'
    picked = {"pick-resources-by-hints": "true", "test.topologyhints": far}
    node = start(setup_of("s-n4c16"))

    _, killed = put(node, "G", [2000, 2000], an={f"{k}.resource-policy.nri.io": v for k, v in strict.items()})
    _, placed = put(node, "G", [1000, 1000], an={f"{k}.resource-policy.nri.io": v for k, v in picked.items()})

    assert killed.refusal is NriRefusal.PANIC
    assert placed.grant is not None
    assert placed.grant.exclusive == 0b1000


@pytest.mark.parametrize(("cpu", "exclusive", "portion"), [("-500m", 0, 0), ("-1500m", 0, 0), ("-1", 0, 0)])
def test_a_negative_request_in_an_annotation_is_divided_towards_zero(cpu: str, exclusive: int, portion: int) -> None:
    text = f'{{"containers": {{"c1": {{"requests": {{"cpu": "{cpu}"}}}}}}}}'

    _, outcome = put(start(setup_of("s-n4c16")), "G", [1000, 1000], an={"noderesource.dev/resources": text})

    assert outcome.grant is not None
    assert (outcome.grant.exclusive.bit_count(), outcome.grant.portion) == (exclusive, portion)


@pytest.mark.parametrize(
    ("text", "refusal"),
    [("duration: 1s\nDuration: 2h", None), ("Duration: 1s\nduration: 2h", NriRefusal.REQUEST), ("DURATION: 1s", None)],
)
def test_of_fields_that_differ_in_case_the_last_in_their_order_counts(text: str, refusal: NriRefusal | None) -> None:
    _, outcome = put(start(setup_of("s-pmem4")), "G", [1000, 1000], an={"cold-start.resource-policy.nri.io/pod": text})

    assert outcome.refusal is refusal


def test_a_numa_node_in_two_packages_is_a_pool_of_each_and_a_grant_of_one_leaves_the_other() -> None:
    """The plugin takes CPUs only out of the pools below and above the grant (`resources.go` AccountAllocateCPU)."""
    plain = machine("s-n4c16")
    crossed = replace(plain, cpus=tuple(replace(cpu, package=cpu.id // 2 % 2) for cpu in plain.cpus))
    setup = set_up(discover(crossed), replace(CONFIG, colocate_pods=False))
    empty = start(setup)

    node, outcome = put(empty, "G", [1000, 1000])

    assert outcome.grant is not None
    name = setup.tree.pools[outcome.grant.pool].name
    same = [pool.id for pool in setup.tree.pools if pool.name == name]
    assert [bool(node.books.sharable[i] & outcome.grant.exclusive) for i in same] == [i != same[0] for i in same]
    assert len(same) == 2
    assert stop(node, "c1")[0].books.zones() == empty.books.zones()


def test_a_malformed_pattern_for_interrupts_keeps_the_policy_from_starting() -> None:
    with pytest.raises(PolicyStartError, match="controllableInterrupts"):
        setup_of("s-n4c16", replace(CONFIG, controllable_interrupts=("*", "[")))


@pytest.mark.parametrize("text", ["high", "High", "HIGH"])
def test_a_configured_priority_is_read_in_any_case(text: str) -> None:
    assert config_from_json({"defaultCPUPriority": text}, "cfg").default_priority == HIGH


@pytest.mark.parametrize(
    ("free", "count", "prefer", "expected"),
    [("0,2,4,6", 1, HIGH, "4"), ("2,4,6", 1, HIGH, "4"), ("2,4,6", 2, LOW, "2,6"), ("4,6", 1, LOW, "6")],
)
def test_of_single_threads_those_of_the_wanted_priority_come_first(
    free: str, count: int, prefer: int, expected: str
) -> None:
    """One thread of every core is free. CPUs 1 and 4 are of the high class."""
    plain = machine("s-n4c16")
    kinds = tuple(replace(cpu, epp="performance" if cpu.id in (1, 4) else "power") for cpu in plain.cpus)

    taken = take_cpus(discover(replace(plain, cpus=kinds)), parse_list(free), count, prefer)

    assert taken == parse_list(expected)


def test_a_pool_without_the_memory_comes_last_even_with_more_cpu_at_the_wanted_level() -> None:
    """Only NUMA node 0 has HBM, and of its two CPUs one is reserved."""
    wanted = {"memory-type": "hbm", "unlimited-burstable": "numa"}
    node = start(setup_of("s-mixmem"))

    node, outcome = put(node, "B", [100, -1], an={f"{k}.resource-policy.nri.io/pod": v for k, v in wanted.items()})

    assert told(node, outcome)[0] == "NUMA node #0"


def test_after_a_new_configuration_guaranteed_containers_are_placed_first() -> None:
    """Two CPUs are left for 2 exclusive CPUs and a share of 1; the first container without a place names the reason."""
    node = start(setup_of("s-1n4c"))
    node, _ = put(node, "B", [1000, -1], 400 * MIB)
    node, _ = put(node, "G", [2000, 2000], 100 * MIB)

    found = reconfigurations(node, replace(CONFIG, reserved_cpus="cpuset:1-2"))

    assert {(outcome.refusal, is_accepted) for _, outcome, is_accepted in found.states} == {
        (NriRefusal.FRACTION, False)
    }


@pytest.mark.parametrize(("count", "expected"), [(2, "22-23"), (6, "16-21"), (8, "16-23"), (3, "16-18"), (1, "16")])
def test_of_idle_clusters_the_smallest_that_is_enough_is_taken(count: int, expected: str) -> None:
    """The efficient cores are in clusters of 6 and 2. What fills no cluster is taken core by core."""
    plain = machine("s-hybrid")
    uneven = tuple(replace(cpu, cluster=100 if cpu.id in (20, 21) else cpu.cluster) for cpu in plain.cpus)

    taken = take_cpus(discover(replace(plain, cpus=uneven)), plain.efficient, count, LOW)

    assert format_list(taken or 0) == expected


def test_of_idle_clusters_those_of_the_smallest_die_that_is_enough_are_taken() -> None:
    """No cluster has three efficient cores. The first die has five in three clusters, the second three in two."""
    plain = machine("s-hybrid")
    cluster = {16: 100, 17: 100, 18: 101, 19: 101, 20: 102, 21: 103, 22: 104, 23: 104}
    dies = tuple(
        replace(cpu, cluster=cluster.get(cpu.id, 0), die=1 + (cpu.id > 20) if cpu.id in cluster else 0)
        for cpu in plain.cpus
    )

    taken = take_cpus(discover(replace(plain, cpus=dies)), plain.efficient, 3, LOW)

    assert format_list(taken or 0) == "21-23"


@pytest.mark.parametrize(("accesses", "hinted"), [(("r", "rw"), False), (("rw", "r"), True), ((None, "rw"), True)])
def test_the_first_rule_of_a_device_that_is_listed_twice_counts_for_both(
    accesses: tuple[str | None, str],
    hinted: bool,  # noqa: FBT001
) -> None:
    """Source: pkg/resmgr/cache/container.go isReadOnlyDevice."""
    found = machine("s-n4c16")
    known = found.devices[0]
    listed = [ContainerDevice(known.type, known.major, known.minor, access) for access in accesses]
    pod = NriPod("p", "uid-p", "default", "p", QoS.GUARANTEED, {}, {}, {})

    hints = container_hints(found, pod, "c1", listed, Budget(1_000), wildcard_rule=False)

    assert bool(hints) is hinted
