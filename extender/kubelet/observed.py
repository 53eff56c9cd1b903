"""Checks a state read from a node: against itself, the machine and the configuration.

Rules of this file
- The state of a kubelet that runs may have everything that a kubelet of 1.27 to 1.37 writes of itself while it runs.
  Each of these has its reason where it is passed over.
- A kubelet that starts (`at_start`) refuses some states that kubelets write. Those kubelets then do not start again.
- A kubelet goes on from whatever it holds. A state that names what the machine does not have cannot be replayed, since
  that kubelet sees another machine than the report has (`UnknownPartError`). Any other contradiction can.

Mirrors: validateState in kubelet `cm/cpumanager/policy_static.go` and `cm/memorymanager/policy_static.go`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, TypeVar

from extender.kubelet.errors import FieldError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.sets import bits_of, format_list, iter_bits
from extender.kubelet.startup import default_memory_nodes
from extender.kubelet.state import (
    Block,
    CPUState,
    ManagerState,
    MemoryState,
    OneContainer,
)
from extender.kubelet.verdict import Provider

T = TypeVar("T")

CPU_FIELD: Final = "state.cpu_manager_state"
MEMORY_FIELD: Final = "state.memory_manager_state"
DEVICE_FIELD: Final = "state.kubelet_internal_checkpoint"


class ObservedStateError(FieldError):
    """The state contradicts the machine, the configuration or itself. `field` is the path in the node report."""


class UnknownPartError(ObservedStateError):
    """The state names CPUs or NUMA nodes that the machine does not have. It cannot be replayed."""


def contradictions(
    kubelet: Kubelet, state: ManagerState, *, at_start: bool = False, without: Collection[Provider] = ()
) -> Iterator[tuple[Provider, ObservedStateError]]:
    """The first contradiction in each manager's state. Entries of pods that are gone are none.

    A kubelet writes a file twice for one allocation and for one release. A state from between the two has a
    contradiction, and so has one of a kubelet that was killed between them. *at_start*: those with which the kubelet
    does not start, such as machineState.0.numberOfAssignments "5, but 4 blocks use the node". *without*: managers that
    are not checked. A memory state with which the kubelet starts has no contradiction while it runs.
    """
    for provider, is_used, check in (
        (Provider.CPU, kubelet.cpu_static, _check_cpus),
        (Provider.MEMORY, kubelet.memory_static, _check_memory),
        (Provider.DEVICE, not at_start, _check_devices),
    ):
        try:
            if is_used and provider not in without:
                check(kubelet, state, at_start=at_start)
        except ObservedStateError as error:
            yield provider, error


def _check_cpus(kubelet: Kubelet, manager_state: ManagerState, *, at_start: bool) -> None:
    machine, state = kubelet.machine, manager_state.cpu
    held_by = _cpus_by_pod(state)
    _check_online(machine.all_cpus, state, held_by.values())
    if not at_start and _takes_what_is_not_free(machine):
        return
    all_held = 0
    for uid, held in held_by.items():
        if twice := held & state.default:
            message = f"CPUs {format_list(twice)} belong to pod {uid} and to the shared pool"
            raise ObservedStateError(f"{CPU_FIELD}.entries.{uid}", message)
        if held & all_held and not at_start:
            other, others = next((other, others) for other, others in held_by.items() if held & others)
            message = f"CPUs {format_list(held & others)} belong to pod {other} as well"
            raise ObservedStateError(f"{CPU_FIELD}.entries.{uid}", message)
        all_held |= held
    _check_cpu_totals(kubelet, state, all_held, at_start=at_start)


def _takes_what_is_not_free(machine: Machine) -> bool:
    """Whether cores or sockets differ in size. There the kubelet also allocates reserved CPUs and those of other pods.

    It takes a core or socket whole if its free CPUs are as many as the average core or socket has CPUs.

    Source: cm/cpumanager/cpu_assignment.go, isSocketFree, isCoreFree, takeFullSockets, takeFullCores.
    """
    cores, sockets = machine.core_cpus.values(), machine.socket_cpus.values()
    return set(map(int.bit_count, cores)) != {machine.cpus_per_core} or len(set(map(int.bit_count, sockets))) > 1


def _values(containers: Mapping[str, T]) -> Collection[T]:
    """The values of a pod's containers. Nearly every pod has one, and a view takes longer than to read it."""
    return (containers.held,) if isinstance(containers, OneContainer) else containers.values()


def _cpus_by_pod(state: CPUState) -> dict[str, int]:
    """The CPUs of each pod: its containers' CPUs, and those that it has as a whole."""
    held_by: dict[str, int] = {}
    for uid, containers in state.entries.items():
        held = 0
        for cpus in _values(containers):
            held |= cpus
        held_by[uid] = held
    for uid, cpus in state.pod_entries.items():
        held_by[uid] = held_by.get(uid, 0) | cpus
    return held_by


def _check_online(online: int, state: CPUState, held: Iterable[int]) -> None:
    named = state.default
    for cpus in held:
        named |= cpus
    if not named & ~online:
        return
    for field, cpus in _cpu_sets(state):  # paths are made for an error only: they take longer than all checks
        if unknown := cpus & ~online:
            raise UnknownPartError(field, f"CPUs {format_list(unknown)} are not online on this machine")


def _cpu_sets(state: CPUState) -> Iterator[tuple[str, int]]:
    yield f"{CPU_FIELD}.defaultCpuSet", state.default
    for uid, containers in state.entries.items():
        for name, cpus in containers.items():
            yield f"{CPU_FIELD}.entries.{uid}.{name}", cpus
    for uid, cpus in state.pod_entries.items():
        yield f"{CPU_FIELD}.podEntries.{uid}", cpus


def _check_cpu_totals(kubelet: Kubelet, state: CPUState, held: int, *, at_start: bool) -> None:
    strict = kubelet.cpu_options.strict_reservation
    reserved = kubelet.reserved_cpus
    field = f"{CPU_FIELD}.defaultCpuSet"
    if strict and reserved & state.default:
        message = f"reserved CPUs {format_list(reserved & state.default)} are in it in spite of strict-cpu-reservation"
        raise ObservedStateError(field, message)
    if not strict and reserved & ~state.default:
        raise ObservedStateError(field, f"reserved CPUs {format_list(reserved & ~state.default)} are not in it")
    if kubelet.rules.pod_level_managers and not at_start:
        return  # a pod admitted again gets new CPUs, and the ones before are lost (policy_static.go, AllocatePod)
    expected = kubelet.machine.all_cpus & ~(reserved if strict else 0)
    if missing := expected & ~(state.default | held):
        raise ObservedStateError(field, f"CPUs {format_list(missing)} are neither in it nor in any entry")


def _check_memory(kubelet: Kubelet, manager_state: ManagerState, *, at_start: bool) -> None:
    state = manager_state.memory
    ids = tuple(n.id for n in state.nodes)
    field = f"{MEMORY_FIELD}.machineState"
    if ids != kubelet.machine.numa_ids:
        raise UnknownPartError(field, f"NUMA nodes {list(ids)}, but the machine has {list(kubelet.machine.numa_ids)}")
    blocks, named, grouped = _memory_blocks(state), 0, 0
    for block in blocks:
        named |= block.mask
    for node in state.nodes:
        grouped |= node.cells
    if grouped & ~bits_of(ids):
        raise UnknownPartError(field, "a NUMA node is grouped with one that does not exist on this machine")
    if named & ~bits_of(ids):
        _refuse_numa_nodes(state, ids)
    for node in state.nodes:
        for name, amounts in node.amounts:
            if amounts.free + amounts.reserved != amounts.allocatable:
                message = f"free {amounts.free} + reserved {amounts.reserved} is not {amounts.allocatable} allocatable"
                raise ObservedStateError(f"{field}.{node.id}.memoryMap.{name}", message)
    for node in state.nodes:
        users = sum([block.mask >> node.id & 1 for block in blocks])
        if users != node.assignments and (at_start or not kubelet.rules.pod_level_managers):
            # with the gate, a pod admitted again counts again while the kubelet runs (AllocatePod)
            message = f"{node.assignments}, but {users} blocks use the node"
            raise ObservedStateError(f"{field}.{node.id}.numberOfAssignments", message)
        if node.cells >> node.id & 1 == 0:
            raise ObservedStateError(f"{field}.{node.id}.cells", "the node itself is not among them")
    if at_start:
        _check_memory_at_start(kubelet, state, blocks, field)


def _memory_blocks(state: MemoryState) -> list[Block]:
    """The blocks that the machine state is charged with; a pod's own blocks replace those of its containers."""
    found: list[Block] = []
    for uid, containers in state.entries.items():
        if uid not in state.pod_entries:
            for blocks in _values(containers):
                found += blocks
    for blocks in state.pod_entries.values():
        found += blocks
    return found


def _refuse_numa_nodes(state: MemoryState, ids: tuple[int, ...]) -> None:
    """Raise ObservedStateError for the first block that names a NUMA node which does not exist."""
    places = [
        (f"{MEMORY_FIELD}.entries.{uid}.{name}", blocks)
        for uid, containers in state.entries.items()
        for name, blocks in containers.items()
        if uid not in state.pod_entries
    ]
    places += [(f"{MEMORY_FIELD}.podEntries.{uid}", blocks) for uid, blocks in state.pod_entries.items()]
    for where, blocks in places:
        for block in blocks:
            if unknown := [i for i in iter_bits(block.mask) if i not in ids]:
                raise UnknownPartError(where, f"NUMA nodes {unknown} do not exist on this machine")


def _check_memory_at_start(kubelet: Kubelet, state: MemoryState, blocks: list[Block], field: str) -> None:
    """Amounts of each NUMA node are those of the configuration. Bytes reserved on all are the sizes of all blocks.

    Reserved bytes can differ per group: another provider's affinity can pin a block to one node of a group. While a
    kubelet runs, the sums can differ too. A pod that is admitted again gets blocks of whole size for its init
    containers, but only what they do not reuse is reserved (Allocate, after AddContainer has released them). Until 1.31
    groups could overlap, and a release then loses bytes for good.
    """
    reserved, sizes = dict[str, int](), dict[str, int]()
    for node, empty in zip(state.nodes, default_memory_nodes(kubelet), strict=True):
        expected = dict(empty.amounts)
        for name, amounts in node.amounts:
            if name not in expected or expected[name][:3] != amounts[:3]:
                message = f"the reserved or total {name} of NUMA node {node.id} differs from the configuration"
                raise ObservedStateError(field, message)
            reserved[name] = reserved.get(name, 0) + amounts.reserved
    for block in blocks:
        sizes[block.type] = sizes.get(block.type, 0) + block.size
    for name, amount in sorted(reserved.items()):
        if kubelet.rules.memory_group_check and amount != sizes.get(name, 0):
            message = (
                f"{amount} bytes of {name} are reserved, but the blocks of all containers hold {sizes.get(name, 0)}"
            )
            raise ObservedStateError(field, message)


def _check_devices(_kubelet: Kubelet, state: ManagerState, *, at_start: bool) -> None:  # noqa: ARG001
    holder: dict[tuple[str, str], str] = {}
    for uid, containers in state.devices.entries.items():
        for resources in containers.values():
            for resource, ids in resources.items():
                for device_id in ids:
                    other = holder.setdefault((resource, device_id), uid)
                    if other != uid:
                        message = f"{resource} device {device_id[:80]} belongs to pod {other} and to pod {uid}"
                        raise ObservedStateError(f"{DEVICE_FIELD}.Data.PodDeviceEntries", message)
