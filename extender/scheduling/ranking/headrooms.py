"""What is free on a node and on each of its NUMA nodes, by resource. Most strategies compare it before and after a pod.

Rules of this file
- Amounts are whole CPUs, bytes, devices. NUMA ids may be sparse, a NUMA node may have nothing of a resource, and a
  device may belong to several NUMA nodes or to none.
- A resource is what a manager of the node allocates: CPUs under the static CPU policy, without reserved ones; memory
  types under the Static memory policy; healthy devices. Resources of which the node has nothing are left out.
- An amount is an int, or an array with one for each of many nodes (`rows`): the arithmetic here is for both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import isqrt
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.sets import iter_bits
from extender.kubelet.state import CPUState, Device, ManagerState, MemoryState
from extender.nri.books import Books
from extender.replay.creation import grants_of

Amounts = NDArray[np.object_]
"""Ints of any size: bytes are squared, which 64 bits do not hold."""
Amount = Any
"""An int, or `Amounts` with one for each node."""
_ISQRT: Final = np.frompyfunc(isqrt, 1, 1)


def greatest(values: Sequence[Amount]) -> Amount:
    """The greatest of the values, for each node; 0 without values."""
    return reduce(_greater, values, 0)


def least(values: Sequence[Amount]) -> Amount:
    """The least of one or more values, for each node."""
    return reduce(_less, values)


def root(value: Amount) -> Amount:
    """The square root, rounded down."""
    return _ISQRT(value) if isinstance(value, np.ndarray) else isqrt(value)


def _greater(one: Amount, other: Amount) -> Amount:
    is_array = isinstance(one, np.ndarray) or isinstance(other, np.ndarray)
    return np.maximum(one, other) if is_array else max(one, other)


def _less(one: Amount, other: Amount) -> Amount:
    is_array = isinstance(one, np.ndarray) or isinstance(other, np.ndarray)
    return np.minimum(one, other) if is_array else min(one, other)


CPU: Final = "cpu"


@dataclass(frozen=True, slots=True)
class Headroom:
    """One resource on one node, or on many: then `free` and `aligned` have arrays, see `RowsOutcome`.

    `capacity`: all that pods can ever get, never 0. `free`: what they can get now. `aligned`: for each NUMA node, what
    one container could get from it alone. A device that belongs to several NUMA nodes counts in each, one without
    topology in none.
    """

    capacity: int
    free: Amount
    aligned: tuple[Amount, ...]

    @property
    def largest(self) -> Amount:
        """The largest request that one NUMA node alone could still serve."""
        return greatest(self.aligned)


Taken = tuple[str, Headroom, Headroom]
"""A resource of which a pod takes something: name, headroom before, headroom after."""


def headrooms_of(kubelet: Kubelet, state: ManagerState) -> Mapping[str, Headroom]:
    """The headroom of every resource of the node."""
    rooms: dict[str, Headroom] = {}
    if kubelet.cpu_static:
        rooms[CPU] = _cpu_room(kubelet, state.cpu)
    if kubelet.memory_static:
        rooms.update(_memory_rooms(state.memory))
    granted = grants_of(state)
    if kubelet.runtime is not None and granted is not None:
        rooms.update(_policy_rooms(granted.node.books))
    for resource, devices in state.devices.devices.items():
        rooms[resource] = _device_room(kubelet, devices, state.devices.held.get(resource, frozenset()))
    return {name: room for name, room in rooms.items() if room.capacity}


def _cpu_room(kubelet: Kubelet, state: CPUState) -> Headroom:
    """With `full-pcpus-only`, cores with a reserved CPU are not available."""
    allocatable = kubelet.allocatable_cpus
    whole = kubelet.reserved_physical_cpus if kubelet.cpu_options.full_pcpus_only else 0
    aligned = state.default & allocatable & ~whole
    return Headroom(
        capacity=allocatable.bit_count(),
        free=(state.default & allocatable).bit_count(),
        aligned=tuple((cpus & aligned).bit_count() for cpus in kubelet.machine.numa_cpus.values()),
    )


def _policy_rooms(books: Books) -> Iterator[tuple[str, Headroom]]:
    """What the NRI policy can grant, CPU in thousandths. Each lowest pool counts as a NUMA node."""
    tree, machine, left = books.setup.tree, books.setup.topology.machine, books.allocatable_now()
    yield (
        CPU,
        Headroom(
            capacity=1000 * tree.root.sharable.bit_count(),
            free=max(0, left[tree.root.id]),
            aligned=tuple(max(0, left[pool.id]) for pool in tree.pools if pool.is_leaf),
        ),
    )
    nodes = machine.memory_nodes
    free = tuple(max(0, books.memory.free_bytes(1 << i)) for i in iter_bits(nodes))
    yield "memory", Headroom(machine.capacity_bytes(nodes), max(0, books.memory.free_bytes(nodes)), free)


def _memory_rooms(state: MemoryState) -> Iterator[tuple[str, Headroom]]:
    """A NUMA node in a group of several serves no container alone."""
    for memory_type in {name: None for node in state.nodes for name, _ in node.amounts}:
        amounts = [(node, found) for node in state.nodes if (found := dict(node.amounts).get(memory_type))]
        yield (
            memory_type,
            Headroom(
                capacity=sum(found.allocatable for _, found in amounts),
                free=sum(found.free for _, found in amounts),
                aligned=tuple(found.free if node.cells == 1 << node.id else 0 for node, found in amounts),
            ),
        )


def _device_room(kubelet: Kubelet, devices: Mapping[str, Device], held: frozenset[str]) -> Headroom:
    healthy = {device_id: device for device_id, device in devices.items() if device.healthy}
    free = [device for device_id, device in healthy.items() if device_id not in held]
    aligned = dict.fromkeys(kubelet.machine.numa_ids, 0)
    for device in free:
        for numa in iter_bits(device.numa or 0):
            aligned[numa] = aligned.get(numa, 0) + 1
    return Headroom(capacity=len(healthy), free=len(free), aligned=tuple(aligned.values()))
