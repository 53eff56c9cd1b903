"""What strategies use of one admission, and what it leaves free on each NUMA node.

`RowsOutcome` is the admission of one node, restated for all rows of the free table that give the pod the same answer:
the nodes have equal keys, so each gives the pod the same amounts of the same NUMA nodes. What is left differs, and is
in the table's columns. The arithmetic of merits therefore accepts ints and arrays of ints.

Rules of this file
- Amounts are whole CPUs, bytes, devices. NUMA ids may be sparse, a NUMA node may have nothing of a resource, and a
  device may belong to several NUMA nodes or to none.
- A resource is what a manager of the node allocates: CPUs under the static CPU policy, without reserved ones; memory
  types under the Static memory policy; healthy devices. Resources of which the node has nothing are left out.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import isqrt
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from extender.cluster.free_table import Int64s, RowGroup
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.sets import iter_bits
from extender.kubelet.state import CPUState, Device, ManagerState, MemoryState
from extender.kubelet.verdict import Admitted, Placement
from extender.nri.books import Books
from extender.replay.creation import grants_of, placed_by, policy_of

Amounts = NDArray[np.object_]
"""Ints of any size: bytes are squared, which 64 bits do not hold."""
Amount = Any
"""An int, or `Amounts` with one for each node."""
_ISQRT: Final = np.frompyfunc(isqrt, 1, 1)


def greatest(values: Sequence[Amount]) -> Amount:
    """The greatest value, of each node; 0 if there is none."""
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


class RankedAdmission(Protocol):
    """An admission, as far as strategies read it."""

    @property
    def machine(self) -> Machine:
        """The node's hardware."""

    def spans(self) -> Iterator[tuple[int, bool]]:
        """For each container: the NUMA nodes that it is on, raw bits, 0 if it has nothing of its own; is preferred.

        A device that belongs to several NUMA nodes adds none if the container is on one of them already. Under the NRI
        topology-aware policy a container is on the nodes of its memory and of its CPUs, those of its pool if it shares
        them. It is not preferred if memory of other containers is spread over more nodes for it.
        """

    def taken(self) -> Iterator[tuple[str, "Headroom", "Headroom"]]:
        """Each resource of which the pod takes something: name, headroom before, headroom after."""


Strategy = Callable[[RankedAdmission], int]
"""RankedAdmission -> merit. More is better; see `strategies`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionOutcome:
    """An admission of the full replay: the kubelet, its state before and after, and the placements."""

    kubelet: Kubelet
    before: ManagerState
    after: ManagerState
    admitted: Admitted

    @property
    def machine(self) -> Machine:
        """The node's hardware."""
        return self.kubelet.machine

    def spans(self) -> Iterator[tuple[int, bool]]:
        """For each container its NUMA nodes, as raw bits, and whether its hint is preferred."""
        policy = policy_of(self.kubelet)
        granted = {placed.name: placed for placed in placed_by(self.admitted)}
        for name, placement in self.admitted.placements.items():
            span, is_preferred = _footprint(self.kubelet.machine, self.before, placement), placement.preferred
            placed = granted.get(name)
            if placed is not None and policy is not None:
                span |= policy.nodes_of(placed.grant)
                is_preferred = (is_preferred or placement.affinity is None) and not placed.widened
            yield span, is_preferred

    def taken(self) -> Iterator[tuple[str, "Headroom", "Headroom"]]:
        """Each resource of which the pod takes something, with the headroom before and after."""
        rooms = headrooms_of(self.kubelet, self.after)
        for name, before in headrooms_of(self.kubelet, self.before).items():
            after = rooms[name]
            if before.free > after.free:
                yield name, before, after


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
        amounts = [(node, found) for node in state.nodes if (found := node.get(memory_type))]
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


def _footprint(machine: Machine, state: ManagerState, placement: Placement) -> int:
    """The NUMA nodes of one container, as raw bits, as `RankedAdmission.spans` counts them."""
    span = machine.numa_bits_of_cpus(placement.cpus)
    for block in placement.memory:
        span |= block.mask
    for resource, ids in placement.devices.items():
        known = state.devices.devices.get(resource, {})
        for device_id in ids:
            device = known.get(device_id)
            numa = device.numa if device is not None and device.numa else 0
            if not numa & span:
                span |= numa & -numa
    return span


Taken = tuple[str, Headroom, Headroom]


@dataclass(frozen=True, slots=True)
class RowsOutcome:
    """A `RankedAdmission` of many nodes: the amounts that are free are arrays, with one for each row."""

    machine: Machine
    placed: Sequence[tuple[int, bool]]
    resources: Sequence[Taken]

    def spans(self) -> Iterator[tuple[int, bool]]:
        """The NUMA nodes of each container, which are the same on all rows."""
        yield from self.placed

    def taken(self) -> Iterator[Taken]:
        """Each resource of which the pod takes something, with the headroom before and after."""
        yield from self.resources


def rows_outcome(one: AdmissionOutcome, group: RowGroup, rows: Int64s) -> RowsOutcome | None:
    """The admission of all *rows*, which have the key of *one*; None where the columns lack what a merit reads."""
    resources = []
    for name, before, after in one.taken():
        columns = group.amounts_of(name, rows)
        if columns is None or not _has_all(one, group, name, columns):
            return None
        ids = one.machine.cpu_numa_ids if name == CPU else one.machine.numa_ids
        places = [ids.index(numa) for numa in columns if numa >= 0]
        gone = [before.aligned[place] - after.aligned[place] for place in places]
        less = before.free - after.free
        if places and sum(gone) != less:  # memory of several NUMA nodes joins them, so more is lost than is taken
            return None
        free = sum(columns.values())
        aligned = tuple(amounts for numa, amounts in columns.items() if numa >= 0)
        left = tuple(amounts - taken for amounts, taken in zip(aligned, gone, strict=True))
        resources.append((name, Headroom(before.capacity, free, aligned), Headroom(after.capacity, free - less, left)))
    return RowsOutcome(one.machine, tuple(one.spans()), resources)


def _has_all(one: AdmissionOutcome, group: RowGroup, resource: str, columns: Collection[int]) -> bool:
    """Whether the columns of a resource have all that is free of it, and each NUMA node as strategies count it."""
    if resource == CPU:
        return not one.kubelet.cpu_options.full_pcpus_only
    kinds = [kind for each in group.hardware.devices if each.resource == resource for kind, _ in each.kinds]
    return all(kind > 0 and kind.bit_length() - 1 in columns for kind in kinds) or all(kind <= 0 for kind in kinds)
