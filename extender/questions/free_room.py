"""Free resources per NUMA node: the largest request of each kind that one NUMA node alone could serve now.

The amounts are independent of each other. A container that requests several resources fits only where one NUMA node has
enough of all of them; use what-if for that.
"""

from collections.abc import Collection

from msgspec.structs import replace

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import DeviceState, ManagerState
from extender.questions.nri_pools import numa_room_of
from extender.wire.pools import FreeRoom


def free_cpus(kubelet: Kubelet, state: ManagerState) -> int:
    """CPUs that a container could get exclusively now, as bits. 0 if the CPU manager allocates none."""
    return state.cpu.default & ~kubelet.reserved_cpus if kubelet.cpu_static else 0


def free_devices(state: DeviceState) -> dict[str, list[str]]:
    """Ids of healthy devices that no container holds, by resource."""
    return {
        resource: [
            device_id
            for device_id, device in devices.items()
            if device.healthy and device_id not in state.held.get(resource, frozenset())
        ]
        for resource, devices in sorted(state.devices.items())
    }


def numa_room(kubelet: Kubelet, state: ManagerState) -> dict[int, FreeRoom]:
    """The free resources of each NUMA node, by id."""
    free = free_cpus(kubelet, state)
    devices = free_devices(state.devices)
    counted = {node.id: node for node in state.memory.nodes}
    by_policy = numa_room_of(state)
    rooms = {}
    for numa in kubelet.machine.numa_ids:
        node = counted.get(numa)
        # memory of a group of nodes is allocated only as a whole
        alone = node is not None and node.cells == 1 << numa
        rooms[numa] = FreeRoom(
            cpus=_largest_cpu_request(kubelet, state, (free & kubelet.machine.numa_cpus.get(numa, 0)).bit_count()),
            memory={name: a.free if alone else 0 for name, a in node.amounts} if node is not None else {},
            devices={resource: _on_numa(state.devices, resource, ids, numa) for resource, ids in devices.items()},
        )
        if numa in by_policy:
            rooms[numa] = _limited(rooms[numa], *by_policy[numa], has_own_cpus=kubelet.cpu_static)
    return rooms


def _limited(room: FreeRoom, cpus: int, memory: int, *, has_own_cpus: bool) -> FreeRoom:
    """The room that the NRI policy leaves, where the kubelet's managers would give *room*."""
    return replace(
        room,
        cpus=min(room.cpus, cpus) if has_own_cpus else cpus,
        memory={**room.memory, "memory": min(room.memory.get("memory", memory), memory)},
    )


def unusable_share(cpus: Collection[int], size: int) -> float:
    """The share of free CPUs that containers of *size* CPUs, each on one NUMA node, cannot use. 0 if none is free.

    *cpus*: what each NUMA node has free.
    """
    free = sum(cpus)
    return sum(count % size for count in cpus) / free if free else 0.0


def _largest_cpu_request(kubelet: Kubelet, state: ManagerState, free: int) -> int:
    """With full-pcpus-only: whole cores, and no more than there are free cores without a reserved thread."""
    if not kubelet.cpu_options.full_pcpus_only:
        return free
    physical = (state.cpu.default & ~kubelet.reserved_physical_cpus).bit_count()
    largest = min(free, physical)
    return largest - largest % max(1, kubelet.machine.cpus_per_core)


def _on_numa(state: DeviceState, resource: str, ids: list[str], numa: int) -> int:
    devices = state.devices[resource]
    return sum(1 for device_id in ids if (devices[device_id].numa or 0) >> numa & 1)
