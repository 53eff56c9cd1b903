"""What the zones alone prove is true of every recorded decision: they never refuse what the policy accepted."""

from collections import Counter
from dataclasses import replace

import pytest

from extender.nri.admission import NriContainerKind, NriReason, UnplacedContainer
from extender.nri.config import PolicyConfig
from extender.nri.counts import NriCounts, PoolCounts, refusal_by_pools
from extender.nri.machine import DRAM
from extender.nri.objects import NriPod, QoS
from tests.replay.nri.test_admission import guaranteed, pod_named
from tests.replay.nri.vectors import sample
from tests.replay.nri.zones import decisions

GIB = 1 << 30


def pool(name: str, parent: str, millicpu: int, cpus: int, **changes: int) -> PoolCounts:
    amounts = {
        "capacity_millicpu": 16_000,
        "available_millicpu": millicpu,
        "capacity_memory_bytes": 8 * GIB,
        "available_memory_bytes": 4 * GIB,
        "shared": (1 << cpus) - 1,
    }
    return PoolCounts(name=name, parent=parent, kind="", **(amounts | changes))


TWO = NriCounts(
    pools=(
        pool("NUMA node #0", "socket #0", 2500, 3),
        pool("NUMA node #1", "socket #0", 3000, 3),
        pool("socket #0", "", 5500, 6, reserved=0b11, isolated=0b1 << 15),
    ),
    config=PolicyConfig(),
    memory_types=DRAM,
)
"""Two NUMA nodes with 2.5 and 3 CPUs left, two CPUs reserved, and at most one isolated CPU free."""

PRESERVED = replace(pod_named("p"), annotations={"cpu.preserve.resource-policy.nri.io": "true"})


def init(name: str, milli: int) -> UnplacedContainer:
    return guaranteed(name, milli, NriContainerKind.INIT)


@pytest.mark.parametrize(
    ("pod", "containers", "reason"),
    [
        (pod_named("p"), [guaranteed("a", 5000)], None),
        (pod_named("p"), [guaranteed("a", 6000)], NriReason.NO_CPU),
        (pod_named("p"), [guaranteed("a", 5500)], None),
        (pod_named("p"), [guaranteed("a", 3000), guaranteed("b", 2500)], None),
        (pod_named("p"), [guaranteed("a", 3000), guaranteed("b", 2600)], NriReason.NO_CPU),
        (pod_named("p"), [init("a", 5000), init("b", 5000), guaranteed("c", 5000)], None),
        (PRESERVED, [guaranteed("a", 9000)], None),
        (pod_named("p", prefer_reserved_cpus="true"), [guaranteed("a", 2000), guaranteed("b", 2000)], None),
        (pod_named("p", prefer_reserved_cpus="true"), [guaranteed("a", 6000)], NriReason.NO_CPU),
        (pod_named("p", require_isolated_cpus="true"), [guaranteed("a", 1000)] * 7, None),
        (pod_named("p", require_isolated_cpus="true"), [guaranteed("a", 6000)], NriReason.NO_CPU),
        (pod_named("p", memory_type="hbm"), [guaranteed("a", 100)], NriReason.NO_MEMORY),
        (pod_named("p", irq_affinity="mode: never"), [guaranteed("a", 1000)], NriReason.ANNOTATION),
    ],
)
def test_only_what_no_pool_can_give_is_refused(
    pod: NriPod, containers: list[UnplacedContainer], reason: NriReason | None
) -> None:
    found = refusal_by_pools(TWO, pod, containers)

    assert found == (None if reason is None else (reason, containers[-1].name))


def test_whole_cpus_come_from_the_pools_below() -> None:
    """5.8 CPUs are left, but none of the two NUMA nodes has a third whole one, and the socket has none of its own."""
    split = (
        replace(TWO.pools[0], available_millicpu=2900),
        replace(TWO.pools[1], available_millicpu=2900),
        replace(TWO.pools[2], available_millicpu=5800),
    )

    assert refusal_by_pools(replace(TWO, pools=split), pod_named("p"), [guaranteed("a", 5000)]) == (
        NriReason.NO_CPU,
        "a",
    )
    assert refusal_by_pools(replace(TWO, pools=split), pod_named("p"), [guaranteed("a", 4000)]) is None


def test_memory_of_all_containers_adds_up() -> None:
    half = replace(guaranteed("a", 100), memory_limit_bytes=2 * GIB, memory_request_bytes=2 * GIB)
    more = replace(half, name="b", memory_limit_bytes=2 * GIB + 1, memory_request_bytes=2 * GIB + 1)

    assert refusal_by_pools(TWO, pod_named("p"), [half, replace(half, name="b")]) is None
    assert refusal_by_pools(TWO, pod_named("p"), [half, more]) == (NriReason.NO_MEMORY, "b")


def test_a_drained_node_refuses_even_containers_without_requests() -> None:
    drained = replace(TWO, pools=tuple(replace(pool, available_millicpu=-1) for pool in TWO.pools))
    one_left = replace(drained, pools=(replace(TWO.pools[0], available_millicpu=0), *drained.pools[1:]))
    best_effort = [UnplacedContainer("a")]

    assert refusal_by_pools(drained, pod_named("p", QoS.BEST_EFFORT), best_effort) == (NriReason.NO_CPU, "a")
    assert refusal_by_pools(one_left, pod_named("p", QoS.BEST_EFFORT), best_effort) is None


def test_an_isolated_cpu_needs_no_shared_one() -> None:
    drained = replace(TWO, pools=tuple(replace(pool, available_millicpu=-1) for pool in TWO.pools))
    isolating = replace(drained, config=PolicyConfig(prefer_isolated=True))

    assert refusal_by_pools(isolating, pod_named("p"), [guaranteed("a", 1000)]) is None
    assert refusal_by_pools(isolating, pod_named("p"), [guaranteed("a", 1100)]) == (NriReason.NO_CPU, "a")


def test_without_a_configuration_what_fits_into_reserved_cpus_is_not_refused() -> None:
    """The pod's namespace may be one of `reservedPoolNamespaces`."""
    full = replace(TWO, pools=tuple(replace(pool, available_millicpu=0) for pool in TWO.pools))
    unknown = replace(full, config=None)

    assert refusal_by_pools(full, pod_named("p"), [guaranteed("a", 2000)]) == (NriReason.NO_CPU, "a")
    assert refusal_by_pools(unknown, pod_named("p"), [guaranteed("a", 2000)]) is None
    assert refusal_by_pools(unknown, pod_named("p"), [guaranteed("a", 3000)]) == (NriReason.NO_CPU, "a")


@pytest.mark.parametrize("theme", ["shared", "full", "mem", "iso", "reserved", "mixed"])
def test_zones_prevent_most_refusals_and_refuse_nothing_that_was_accepted(theme: str) -> None:
    counted = Counter[tuple[str, bool]]()
    for document in sample(theme, 8):
        for decision in decisions(document):
            for name, counts in (("", decision.counts), ("-unknown", replace(decision.counts, config=None))):
                refusal = refusal_by_pools(counts, decision.pod, [decision.container])
                kind = "cpu" if decision.refusal in ("slice", "fraction") else decision.refusal or "accepted"
                counted[kind + name, refusal is not None] += 1
                assert decision.refusal or refusal is None, decision

    assert counted["accepted", False] > 50
    assert counted["cpu", True] > 8 * counted["cpu", False]
    assert counted["cpu-unknown", True] <= counted["cpu", True]
