"""One replayed admission, as strategies see it, and what it leaves free on each NUMA node.

Rules of this file
- Amounts are whole CPUs, bytes, devices. NUMA ids may be sparse, a NUMA node may have nothing of a resource, and a
  device may belong to several NUMA nodes or to none.
- A resource is what a manager of the node allocates: CPUs under the static CPU policy, without reserved ones; memory
  types under the Static memory policy; healthy devices. Resources of which the node has nothing are left out.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from extender.replay.kubelet import Kubelet
from extender.replay.sets import iter_bits
from extender.replay.state import CPUState, Device, ManagerState, MemoryState
from extender.replay.verdict import Admitted

CPU: Final = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionOutcome:
    """An admission: the kubelet, its state before and after, and the placements."""

    kubelet: Kubelet
    before: ManagerState
    after: ManagerState
    admitted: Admitted

    def taken(self) -> Iterator[tuple[str, "Headroom", "Headroom"]]:
        """Each resource of which the pod takes something: name, headroom before, headroom after."""
        rooms = headrooms_of(self.kubelet, self.after)
        for name, before in headrooms_of(self.kubelet, self.before).items():
            after = rooms[name]
            if before.free > after.free:
                yield name, before, after


Strategy = Callable[[AdmissionOutcome], int]
"""AdmissionOutcome -> merit. More is better; see `strategies`."""


@dataclass(frozen=True, slots=True)
class Headroom:
    """One resource on one node.

    `capacity`: all that pods can ever get, never 0. `free`: what they can get now. `aligned`: for each NUMA node, what
    one container could get from it alone. A device that belongs to several NUMA nodes counts in each, one without
    topology in none.
    """

    capacity: int
    free: int
    aligned: tuple[int, ...]

    @property
    def largest(self) -> int:
        """The largest request that one NUMA node alone could still serve."""
        return max(self.aligned, default=0)


def headrooms_of(kubelet: Kubelet, state: ManagerState) -> Mapping[str, Headroom]:
    """The headroom of every resource of the node."""
    rooms: dict[str, Headroom] = {}
    if kubelet.cpu_static:
        rooms[CPU] = _cpu_room(kubelet, state.cpu)
    if kubelet.memory_static:
        rooms.update(_memory_rooms(state.memory))
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
