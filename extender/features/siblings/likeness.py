"""Which of several nodes of a kind stands for a new one, and whether that can be true.

Rules of this file
- The majority answers: more than half of the nodes agree on the kubelet's configuration and on CPUs and NUMA nodes.
  Among these the one that is closest to the median counts, of memory, huge pages and devices of each NUMA node. So one
  node that reports what it likes decides nothing, unless it is the only one.
- A node is not taken for one with more than its own Node object offers. A kubelet publishes what its machine has, less
  what it reserves (`pkg/kubelet/cm/node_container_manager_linux.go` GetNodeAllocatableReservation).
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from statistics import median
from typing import Final

from extender.cluster.node import Observation
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import HUGEPAGES_PREFIX
from extender.kubelet.state import ManagerState
from extender.scheduling.totals import node_allocatable
from extender.wire.errors import WireError
from extender.wire.quantity import parse_milli

_MEMORY_PARTS: Final = 64
"""Machines of one kind differ in the memory that their kernels keep: by less than one part of so many."""


def model_of(compared: Sequence[Observation]) -> Observation | None:
    """The one that stands for the kind, of nodes that report enough for verdicts; None if no majority agrees."""
    alike: dict[Hashable, list[Observation]] = {}
    for seen in compared:
        alike.setdefault(_likeness(seen), []).append(seen)
    most = max(alike.values(), key=len, default=[])
    if 2 * len(most) <= len(compared):
        return None
    amounts = [_amounts(seen) for seen in most]
    medians = {key: median(each[key] for each in amounts) for key in {key for each in amounts for key in each}}

    def distance(number: int) -> float:
        found = amounts[number]
        return max((abs(found[key] - middle) / (middle or 1) for key, middle in medians.items()), default=0.0)

    return most[min(range(len(most)), key=distance)]


def _likeness(seen: Observation) -> Hashable:
    assert seen.kubelet is not None
    machine = seen.kubelet.machine
    nodes = tuple((node.id, node.distances) for node in machine.numa_nodes)
    return seen.kubelet.config.identity, machine.cpus, nodes, machine.num_sockets, machine.num_cpus, machine.num_cores


def _amounts(seen: Observation) -> Counter[tuple[object, ...]]:
    """Memory, huge pages and devices by NUMA node."""
    assert seen.kubelet is not None
    assert seen.state is not None
    found: Counter[tuple[object, ...]] = Counter()
    for node in seen.kubelet.machine.numa_nodes:
        found["memory", node.id] = node.memory_bytes
        found.update({("pages", size, node.id): pages for size, pages in node.hugepages.items()})
    for resource, devices in seen.state.devices.devices.items():
        found.update(("device", resource, device.numa) for device in devices.values())
    return found


def excess(kubelet: Kubelet, state: ManagerState, allocatable: Mapping[str, str]) -> str:
    """What such a node would offer beyond *allocatable*, the quantities of its Node object; "" if nothing.

    Of the amounts that the Node object does not have, huge pages alone are compared.
    """
    for resource, most in node_allocatable(kubelet, state.devices).items():
        if resource not in allocatable and not resource.startswith(HUGEPAGES_PREFIX):
            continue
        try:
            own = parse_milli(allocatable.get(resource, "0"), resource)
        except WireError as error:
            return f"allocatable of the Node: {error}"
        own += own // _MEMORY_PARTS if resource == "memory" else 0
        if most > own:
            return f"it would offer {most / 1000:.0f} of {resource}, and the Node has {own / 1000:.0f}"
    return ""
