"""A pod's containers in their order, and the pools as the policy compares them (docs/nri-topology-aware.md)."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from extender.kubelet.budget import MAX_STEPS, Budget
from extender.kubelet.sets import format_list
from extender.nri.admission import (
    NriContainerKind,
    NriReason,
    NriVerdict,
    UnplacedContainer,
    place_pod,
)
from extender.nri.comparison import explain_pools
from extender.nri.config import LEVELS, PolicyConfig
from extender.nri.cpu_allocator import discover
from extender.nri.events import Node, set_up, start
from extender.nri.objects import NriPod, QoS
from extender.nri.pools import PoolRule
from extender.wire.nri_scenarios import NriStep, pod_of
from tests.replay.nri.vectors import machine

CONFIG = PolicyConfig(pin_cpu=True, pin_memory=True, reserved_cpus="cpuset:0", unlimited_burstable="package")
MIB = 1 << 20


def node_of(name: str = "s-n4c16", config: PolicyConfig = CONFIG) -> Node:
    return start(set_up(discover(machine(name)), config))


def pod_named(name: str, qos: QoS = QoS.GUARANTEED, **annotations: str) -> NriPod:
    keys = {key.replace("_", "-") + ".resource-policy.nri.io": text for key, text in annotations.items()}
    return replace(pod_of(NriStep(o="pod", id=name, ns="team", n=name, an=keys)), qos=qos)


def guaranteed(name: str, milli: int, kind: NriContainerKind = NriContainerKind.APP) -> UnplacedContainer:
    return UnplacedContainer(name, kind, milli, milli, 100 * MIB, 100 * MIB)


def admit(node: Node, pod: NriPod, containers: Sequence[UnplacedContainer]) -> NriVerdict:
    return place_pod(node, pod, containers, Budget(MAX_STEPS))


def places(verdict: NriVerdict) -> list[tuple[str, str]]:
    return [(placed.pool, format_list(placed.pins.cpus or 0)) for placed in verdict.placed]


def test_the_worked_trace_of_the_policy() -> None:
    """Four Guaranteed pods of 1 to 4 CPUs on two packages with two NUMA nodes each (E/n4c16/test01)."""
    node, found = node_of(), []
    for cpus in (1, 2, 3, 4):
        verdict = admit(node, pod_named(f"p{cpus}"), [guaranteed("app", 1000 * cpus)])
        node = verdict.node
        found += places(verdict)

    assert found == [
        ("NUMA node #1", "4"),
        ("NUMA node #2", "8-9"),
        ("NUMA node #3", "12-14"),
        ("socket #0", "2-3,6-7"),
    ]


def test_the_rest_of_the_trace_and_the_zones_after_it() -> None:
    """The same node with `colocatePods`: two BestEffort containers of a pod, and a Burstable one (section 18.1)."""
    node = node_of(config=replace(CONFIG, colocate_pods=True))
    for cpus in (1, 2, 3, 4):
        node = admit(node, pod_named(f"p{cpus}"), [guaranteed("app", 1000 * cpus)]).node

    both = admit(node, pod_named("e", QoS.BEST_EFFORT), [UnplacedContainer("a"), UnplacedContainer("b")])
    burstable = UnplacedContainer("app", cpu_request_milli=1000, cpu_limit_milli=2000, memory_limit_bytes=200 * MIB)
    last = admit(both.node, pod_named("b", QoS.BURSTABLE), [burstable])

    assert places(both) == [("NUMA node #0", "1"), ("NUMA node #0", "1")]
    assert places(last) == [("NUMA node #2", "10-11")]
    pools, zones = last.node.books.setup.tree.pools, last.node.books.zones()
    assert {pool.name: zones[pool.id][0] for pool in pools} == {
        "NUMA node #0": 999, "NUMA node #1": 1000, "socket #0": 1999,
        "NUMA node #2": 1000, "NUMA node #3": 1000, "socket #1": 2000, "root": 3999,
    }  # fmt: skip
    assert [format_list(zones[i][1]) for i in (0, 1, 3, 4, 6)] == ["1", "5", "10-11", "15", "1,5,10-11,15"]


def test_an_unlimited_burstable_container_goes_to_its_level_only_with_a_memory_limit() -> None:
    """The cookbook's example has no memory limit, and is placed in the root (reference, section 17)."""
    config = replace(CONFIG, unlimited_burstable="package")
    burstable = UnplacedContainer("app", cpu_request_milli=1000, memory_request_bytes=100 * MIB)

    without = admit(node_of(config=config), pod_named("p", QoS.BURSTABLE), [burstable])
    limited = replace(burstable, memory_limit_bytes=200 * MIB)
    with_limit = admit(node_of(config=config), pod_named("p", QoS.BURSTABLE), [limited])

    assert LEVELS["package"] == 2
    assert [placed.pool for placed in without.placed] == ["root"]
    assert [placed.pool.split("#")[0] for placed in with_limit.placed] == ["socket "]


def test_init_containers_give_back_what_they_had_and_sidecars_keep_it() -> None:
    containers = [
        guaranteed("app", 8000),
        guaranteed("prepare", 10_000, NriContainerKind.INIT),
        guaranteed("proxy", 1000, NriContainerKind.SIDECAR),
    ]

    verdict = admit(node_of(), pod_named("p"), containers)

    assert verdict.reason is None
    assert [placed.name for placed in verdict.placed] == ["prepare", "proxy", "app"]
    assert sorted(verdict.node.books.grants) == ["p/app", "p/proxy"]
    held = [grant.exclusive for grant in verdict.node.books.grants.values()]
    assert held[0] & held[1] == 0
    assert sum(cpus.bit_count() for cpus in held) == 9


def test_a_pod_of_which_one_container_is_refused_keeps_what_the_others_have() -> None:
    node = node_of()

    verdict = admit(node, pod_named("p"), [guaranteed("first", 8000), guaranteed("second", 9000)])

    assert (verdict.reason, verdict.container) == (NriReason.NO_CPU, "second")
    assert "can't" in verdict.detail
    assert [placed.name for placed in verdict.placed] == ["first"]
    assert list(verdict.node.books.grants) == ["p/first"]
    assert node.books.grants == {}


@pytest.mark.parametrize(
    ("pod", "container", "reason"),
    [
        (pod_named("p"), guaranteed("app", 16_000), NriReason.NO_CPU),
        (pod_named("p"), replace(guaranteed("app", 1000), memory_limit_bytes=1 << 50), NriReason.NO_MEMORY),
        (pod_named("p", cold_start="often"), guaranteed("app", 1000), NriReason.ANNOTATION),
        (pod_named("p", memory_type="pmem"), guaranteed("app", 1000), NriReason.NO_MEMORY),
        (
            pod_named("p", require_isolated_cpus="true"), guaranteed("app", 1000), NriReason.STRICT_ISOLATION
        ),
    ],
)  # fmt: skip
def test_reasons_are_a_closed_set(pod: NriPod, container: UnplacedContainer, reason: NriReason) -> None:
    assert admit(node_of(), pod, [container]).reason is reason


def test_pools_are_explained_best_first_with_the_rule_that_decided() -> None:
    rows = explain_pools(node_of(), pod_named("p"), guaranteed("app", 2000))

    assert rows[0].score.pool.name == admit(node_of(), pod_named("p"), [guaranteed("app", 2000)]).placed[0].pool
    assert rows[0].lost_by is PoolRule.USED
    assert {row.score.pool.name: row.lost_by for row in rows[1:]} == {
        "root": PoolRule.MEMORY_NODES,
        "socket #0": PoolRule.MEMORY_NODES,
        "socket #1": PoolRule.MEMORY_NODES,
        "NUMA node #0": PoolRule.CPU_LEFT,
        "NUMA node #2": PoolRule.ID,
        "NUMA node #3": PoolRule.ID,
    }
    assert {row.score.pool.name: row.score.shared for row in rows}["NUMA node #0"] == 1000


def test_a_pool_without_room_loses_by_capacity() -> None:
    rows = explain_pools(node_of(), pod_named("p"), guaranteed("app", 4000))

    assert {row.score.pool.name for row in rows if row.lost_by is PoolRule.CPU} == {"NUMA node #0"}


def test_a_pool_whose_last_isolated_cpu_fits_wins_by_other_rules_than_capacity() -> None:
    node, number = node_of("s-n4c16-isol"), 0
    rows = explain_pools(node, pod_named("p", require_isolated_cpus="true"), guaranteed("app", 1000))
    while rows[0].score.isolated > 0:
        pod = pod_named(f"p{number}", require_isolated_cpus="true")
        node, number = admit(node, pod, [guaranteed("app", 1000)]).node, number + 1
        rows = explain_pools(node, pod_named("p", require_isolated_cpus="true"), guaranteed("app", 1000))

    assert rows[0].score.isolated == 0
    fitting = {row.lost_by for row in rows[1:] if row.score.isolated >= 0}
    assert fitting
    assert PoolRule.ISOLATED not in fitting
    assert PoolRule.CPU not in fitting


def test_reserved_containers_are_placed_without_looking_at_pools() -> None:
    pod = pod_named("p", prefer_reserved_cpus="true")

    assert explain_pools(node_of(), pod, guaranteed("app", 100)) == ()
    assert [placed.pool for placed in admit(node_of(), pod, [guaranteed("app", 100)]).placed] == ["root"]
