"""The NodeResourceTopology object that the plugin publishes for a node (`pkg/agent/node-resource-topology.go`).

`decisions` reads it back before every recorded creation.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from extender.kubelet.sets import format_list
from extender.nri.admission import UnplacedContainer
from extender.nri.books import Books
from extender.nri.counts import NriCounts
from extender.nri.objects import NriPod
from extender.wire.nri_scenarios import scenario_from_json
from extender.wire.nrt import counted, published_from_json
from tests.replay.nri.vectors import creations, machine


def topology_object(books: Books, name: str = "n1") -> dict[str, Any]:
    """The object for the node with *books*; amounts are written as Go writes them."""
    zones = books.zones()
    machine = books.setup.topology.machine
    pools = books.setup.tree.pools
    return {
        "metadata": {"name": name, "managedFields": [{"manager": "nri-resource-policy-topology-aware"}]},
        "attributes": [{"name": "TopologyPolicy", "value": "topology-aware"}],
        "zones": [
            {
                "name": pool.name,
                "type": pool.kind.value,
                **({"parent": pools[pool.parent].name} if pool.parent >= 0 else {}),
                "resources": [
                    _resource("memory", str(_bytes(books, nodes)), str(memory)),
                    _resource("cpu", str((pool.sharable | pool.reserved).bit_count()), _milli(cpu)),
                ],
                "attributes": _attributes({
                    "memory set": nodes, "shared cpuset": shared, "reserved cpuset": pool.reserved,
                    "isolated cpuset": isolated,
                }),
            }
            for pool, (cpu, shared, memory, isolated) in zip(pools, zones.values(), strict=True)
            for nodes in [(pool.dram | pool.pmem | pool.hbm) & machine.memory_nodes]
        ],
    }  # fmt: skip


def _bytes(books: Books, nodes: int) -> int:
    return sum(node.memory_bytes for node in books.setup.topology.machine.nodes if nodes >> node.id & 1)


def _milli(amount: int) -> str:
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


def _resource(name: str, capacity: str, available: str) -> dict[str, str]:
    return {"name": name, "capacity": capacity, "allocatable": capacity, "available": available}


def _attributes(sets: dict[str, int]) -> list[dict[str, str]]:
    always = ("memory set", "shared cpuset")
    return [{"name": name, "value": format_list(bits)} for name, bits in sets.items() if bits or name in always]


@dataclass(frozen=True)
class Decision:
    """A recorded creation: what the zones showed before it, the container, and the class of its refusal.

    `counts` have the configuration and the memory types of the node. `refusal` is "" for what was accepted.
    """

    counts: NriCounts
    pod: NriPod
    container: UnplacedContainer
    refusal: str


def decisions(document: dict[str, Any]) -> Iterator[Decision]:
    """The creations of a recorded scenario.

    Left out: containers whose oom_score_adj no kubelet sets, and those that take the place of a running one of the same
    name. The plugin releases that one first, and a new pod has none.
    """
    scenario = scenario_from_json(document)
    amounts = {step.id: step.r for step in scenario.steps if step.o == "new" and step.oom is None}
    for event in creations(scenario, machine(scenario.machine)):
        node, new = event.args
        pod = node.books.pods[new.pod_id]
        if new.id not in amounts or f"{pod.namespace}/{pod.name}/{new.name}" in node.running:
            continue
        refusal = event()[1].refusal
        cpu, cpu_limit, memory, memory_limit = (max(0, amount) for amount in amounts[new.id])
        yield Decision(
            counts=replace(
                _counts(node.books),
                config=node.books.setup.config,
                memory_types=node.books.setup.topology.machine.memory_types,
            ),
            pod=pod,
            container=UnplacedContainer(
                new.name,
                cpu_request_milli=cpu or cpu_limit,
                cpu_limit_milli=cpu_limit,
                memory_request_bytes=memory,
                memory_limit_bytes=memory_limit,
            ),
            refusal="" if refusal is None else refusal.value,
        )


def _counts(books: Books) -> NriCounts:
    counts = counted(published_from_json(topology_object(books)), lambda _: "").counts.nri
    assert counts is not None
    return counts
