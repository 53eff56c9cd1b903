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
from extender.kubelet.state import Block, CPUState, ManagerState, MemoryState, OneContainer
from extender.kubelet.verdict import Provider

T = TypeVar("T")

CPU_FIELD: Final = "state.cpu_manager_state"
MEMORY_FIELD: Final = "state.memory_manager_state"
DEVICE_FIELD: Final = "state.kubelet_internal_checkpoint"


class ObservedStateError(FieldError):
    """The state contradicts the machine, the configuration or itself. `field` is the path in the node report."""


class UnknownPartError(ObservedStateError):
    """The state names CPUs or NUMA nodes that the machine does not have. It cannot be replayed."""


Errors = dict[Provider, ObservedStateError]
Found = Iterator[tuple[bool, bool, ObservedStateError]]
"""Contradictions: whether each is one for a kubelet that runs, and for one that starts. None follows one for both."""


def contradictions(kubelet: Kubelet, state: ManagerState) -> tuple[Errors, Errors]:
    """The first contradiction in each manager's state: for a kubelet that runs, and for one that starts with it.

    Entries of pods that are gone are none. A kubelet writes a file twice for one allocation and for one release. A
    state from between the two has a contradiction, and so has one of a kubelet that was killed between them. It does
    not start then, as with machineState.0.numberOfAssignments "5, but 4 blocks use the node".
    """
    when_running, when_starting = Errors(), Errors()
    for provider, is_used, check in (
        (Provider.CPU, kubelet.cpu_static, _check_cpus),
        (Provider.MEMORY, kubelet.memory_static, _check_memory),
        (Provider.DEVICE, True, _check_devices),
    ):
        for running, at_start, error in check(kubelet, state) if is_used else ():
            if running:
                when_running.setdefault(provider, error)
            if at_start:
                when_starting.setdefault(provider, error)
            if running and at_start:
                break
    return when_running, when_starting


def _check_cpus(kubelet: Kubelet, manager_state: ManagerState) -> Found:
    machine, state = kubelet.machine, manager_state.cpu
    held_by = _cpus_by_pod(state)
    if unknown := _unknown_cpus(machine.all_cpus, state, held_by.values()):
        yield True, True, unknown
    running, all_held = not _takes_what_is_not_free(machine), 0
    for uid, held in held_by.items():
        if twice := held & state.default:
            message = f"CPUs {format_list(twice)} belong to pod {uid} and to the shared pool"
            yield running, True, ObservedStateError(f"{CPU_FIELD}.entries.{uid}", message)
        if running and held & all_held:
            running = False
            other, others = next((other, others) for other, others in held_by.items() if held & others)
            message = f"CPUs {format_list(held & others)} belong to pod {other} as well"
            yield True, False, ObservedStateError(f"{CPU_FIELD}.entries.{uid}", message)
        all_held |= held
    strict, reserved, message = kubelet.cpu_options.strict_reservation, kubelet.reserved_cpus, ""
    if strict and reserved & state.default:
        message = f"reserved CPUs {format_list(reserved & state.default)} are in it in spite of strict-cpu-reservation"
    elif not strict and reserved & ~state.default:
        message = f"reserved CPUs {format_list(reserved & ~state.default)} are not in it"
    elif missing := machine.all_cpus & ~(reserved | state.default | all_held):
        # with the gate, a pod admitted again gets new CPUs, and those before are lost (policy_static.go, AllocatePod)
        running = running and not kubelet.rules.pod_level_managers
        message = f"CPUs {format_list(missing)} are neither in it nor in any entry"
    if message:
        yield running, True, ObservedStateError(f"{CPU_FIELD}.defaultCpuSet", message)


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


def _unknown_cpus(online: int, state: CPUState, held: Iterable[int]) -> UnknownPartError | None:
    named = state.default
    for cpus in held:
        named |= cpus
    sets = _cpu_sets(state) if named & ~online else ()  # paths are for an error only: they take longer than all checks
    for field, cpus in sets:
        if unknown := cpus & ~online:
            return UnknownPartError(field, f"CPUs {format_list(unknown)} are not online on this machine")
    return None


def _cpu_sets(state: CPUState) -> Iterator[tuple[str, int]]:
    yield f"{CPU_FIELD}.defaultCpuSet", state.default
    for uid, containers in state.entries.items():
        for name, cpus in containers.items():
            yield f"{CPU_FIELD}.entries.{uid}.{name}", cpus
    for uid, cpus in state.pod_entries.items():
        yield f"{CPU_FIELD}.podEntries.{uid}", cpus


def _check_memory(kubelet: Kubelet, manager_state: ManagerState) -> Found:
    state = manager_state.memory
    ids = tuple(n.id for n in state.nodes)
    field = f"{MEMORY_FIELD}.machineState"
    if ids != kubelet.machine.numa_ids:
        message = f"NUMA nodes {list(ids)}, but the machine has {list(kubelet.machine.numa_ids)}"
        yield True, True, UnknownPartError(field, message)
    blocks, named, grouped = _memory_blocks(state), 0, 0
    for block in blocks:
        named |= block.mask
    for node in state.nodes:
        grouped |= node.cells
    if grouped & ~bits_of(ids):
        message = "a NUMA node is grouped with one that does not exist on this machine"
        yield True, True, UnknownPartError(field, message)
    if named & ~bits_of(ids):
        yield True, True, _unknown_numa_nodes(state, ids)
    for node in state.nodes:
        for name, amounts in node.amounts:
            if amounts.free + amounts.reserved != amounts.allocatable:
                message = f"free {amounts.free} + reserved {amounts.reserved} is not {amounts.allocatable} allocatable"
                yield True, True, ObservedStateError(f"{field}.{node.id}.memoryMap.{name}", message)
    for node in state.nodes:
        users = sum([block.mask >> node.id & 1 for block in blocks])
        if users != node.assignments:
            # with the gate, a pod admitted again counts again while the kubelet runs (AllocatePod)
            message = f"{node.assignments}, but {users} blocks use the node"
            where = f"{field}.{node.id}.numberOfAssignments"
            yield not kubelet.rules.pod_level_managers, True, ObservedStateError(where, message)
        if node.cells >> node.id & 1 == 0:
            yield True, True, ObservedStateError(f"{field}.{node.id}.cells", "the node itself is not among them")
    if message := _differs_at_start(kubelet, state, blocks):
        yield False, True, ObservedStateError(field, message)


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


def _unknown_numa_nodes(state: MemoryState, ids: tuple[int, ...]) -> UnknownPartError:
    """The first block that names a NUMA node which does not exist. There is one."""
    places = [
        (f"{MEMORY_FIELD}.entries.{uid}.{name}", blocks)
        for uid, containers in state.entries.items()
        for name, blocks in containers.items()
        if uid not in state.pod_entries
    ]
    places += [(f"{MEMORY_FIELD}.podEntries.{uid}", blocks) for uid, blocks in state.pod_entries.items()]
    return next(
        UnknownPartError(where, f"NUMA nodes {unknown} do not exist on this machine")
        for where, blocks in places
        for block in blocks
        if (unknown := [i for i in iter_bits(block.mask) if i not in ids])
    )


def _differs_at_start(kubelet: Kubelet, state: MemoryState, blocks: list[Block]) -> str:
    """Amounts of each NUMA node are those of the configuration. Bytes reserved on all are the sizes of all blocks.

    Reserved bytes can differ per group: another provider's affinity can pin a block to one node of a group. While a
    kubelet runs, the sums can differ too. A pod that is admitted again gets blocks of whole size for its init
    containers, but only what they do not reuse is reserved (Allocate, after AddContainer has released them). Until 1.31
    groups could overlap, and a release then loses bytes for good. Returns what differs; "" if nothing does.
    """
    reserved, sizes = dict[str, int](), dict[str, int]()
    for node, empty in zip(state.nodes, kubelet.memory_nodes, strict=True):
        expected = dict(empty.amounts)
        for name, amounts in node.amounts:
            if name not in expected or expected[name][:3] != amounts[:3]:
                return f"the reserved or total {name} of NUMA node {node.id} differs from the configuration"
            reserved[name] = reserved.get(name, 0) + amounts.reserved
    for block in blocks:
        sizes[block.type] = sizes.get(block.type, 0) + block.size
    for name, amount in sorted(reserved.items()):
        if kubelet.rules.memory_group_check and amount != (held := sizes.get(name, 0)):
            return f"{amount} bytes of {name} are reserved, but the blocks of all containers hold {held}"
    return ""


def _check_devices(_kubelet: Kubelet, state: ManagerState) -> Found:
    holder: dict[tuple[str, str], str] = {}
    for uid, containers in state.devices.entries.items():
        for resources in containers.values():
            for resource, ids in resources.items():
                for device_id in ids:
                    other = holder.setdefault((resource, device_id), uid)
                    if other != uid:
                        message = f"{resource} device {device_id[:80]} belongs to pod {other} and to pod {uid}"
                        yield True, False, ObservedStateError(f"{DEVICE_FIELD}.Data.PodDeviceEntries", message)
                        return
