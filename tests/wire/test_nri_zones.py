"""Objects that the plugin of the NRI topology-aware policy publishes: pools, and what is refused as half a tree."""

from collections.abc import Callable
from typing import Any

import pytest

from extender.kubelet.sets import format_list
from extender.nri.config import PolicyConfig
from extender.nri.cpu_allocator import discover
from extender.nri.events import set_up, start
from extender.wire.errors import WireError
from extender.wire.nrt import MAX_POOLS, counted, published_from_json
from tests.replay.nri.vectors import machine
from tests.replay.nri.zones import topology_object


def theirs(name: str = "s-n4c16") -> dict[str, Any]:
    return topology_object(start(set_up(discover(machine(name)), PolicyConfig(reserved_cpus="cpuset:0"))).books)


def test_zones_are_pools_with_their_parents() -> None:
    found = counted(published_from_json(theirs()), lambda _: "v1.36.0")

    assert found.counts.nri is not None
    assert [(pool.name, pool.parent) for pool in found.counts.nri.pools] == [
        ("NUMA node #0", "socket #0"),
        ("NUMA node #1", "socket #0"),
        ("socket #0", "root"),
        ("NUMA node #2", "socket #1"),
        ("NUMA node #3", "socket #1"),
        ("socket #1", "root"),
        ("root", ""),
    ]
    first, root = found.counts.nri.pools[0], found.counts.nri.root
    assert (first.capacity_millicpu, first.available_millicpu) == (4000, 3000)
    assert (format_list(first.shared), format_list(root.reserved), format_list(root.memory_nodes)) == (
        "1-3",
        "0",
        "0-3",
    )
    assert root.available_memory_bytes == root.capacity_memory_bytes == 4 * first.capacity_memory_bytes
    assert found.counts.publisher == "nri-resource-policy-topology-aware"
    assert "per pool of the NRI topology-aware policy" in str(found.facts["problems"])


def test_a_drained_pool_has_less_than_nothing() -> None:
    value = theirs()
    value["zones"][0]["resources"][1]["available"] = "-1m"

    assert published_from_json(value).pools[0].available_millicpu == -1


def test_another_policy_of_the_plugin_has_no_pools() -> None:
    value = theirs() | {"attributes": [{"name": "TopologyPolicy", "value": "balloons"}]}

    assert published_from_json(value).pools == ()


def _rename(zones: list[dict[str, Any]]) -> None:
    zones[1]["name"] = zones[0]["name"]


def _orphan(zones: list[dict[str, Any]]) -> None:
    zones[0]["parent"] = "socket #9"


def _two_roots(zones: list[dict[str, Any]]) -> None:
    del zones[0]["parent"]


def _loop(zones: list[dict[str, Any]]) -> None:
    zones[-1]["parent"] = "socket #0"


def _too_many(zones: list[dict[str, Any]]) -> None:
    zones[:0] = [zones[0] | {"name": f"NUMA node #{i + 10}"} for i in range(MAX_POOLS)]


def _amount(text: object, resource: int = 1, field: str = "available") -> Callable[[list[dict[str, Any]]], None]:
    def change(zones: list[dict[str, Any]]) -> None:
        zones[0]["resources"][resource][field] = text

    return change


def _set(text: str) -> Callable[[list[dict[str, Any]]], None]:
    def change(zones: list[dict[str, Any]]) -> None:
        zones[0]["attributes"][1]["value"] = text

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (_rename, "not that of a tree"),
        (_orphan, "not that of a tree"),
        (_two_roots, "not that of a tree"),
        (_loop, "not that of a tree"),
        (_too_many, "1031 pools"),
        (lambda zones: zones.clear(), "0 pools"),
        (lambda zones: zones[0].update(type="balloon"), "not a kind of pool"),
        (lambda zones: zones[0]["resources"].pop(), "cpu: missing"),
        (_amount("--1m"), "not a quantity"),
        (_amount("lots"), "not a quantity"),
        (_amount("900"), "more available than there is"),
        (_amount("900", field="allocatable"), "more than its parent"),
        (_amount("9Ti", 0, "allocatable"), "more than its parent"),
        (_set("3-1"), "not an ascending range"),
        (_set("0-999999999"), "not an ascending range"),
    ],
)
def test_half_a_tree_is_none(change: Callable[[list[dict[str, Any]]], None], fault: str) -> None:
    value = theirs()
    change(value["zones"])

    with pytest.raises(WireError, match=fault):
        published_from_json(value)
