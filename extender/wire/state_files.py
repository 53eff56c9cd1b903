"""What the kubelet's managers hold, from its three state files in a report.

Rules of this file
- The files are read in all forms that kubelets 1.27 to 1.37 write. A document of 1.37 is read as its kubelet restores
  it: from `data` (`node_exporter.checkpoints`).
- Checksums of older documents are not checked here: the exporter has checked them.
- A document of policy none, or one that the kubelet never initialised, has no state: None.
- A manager is hidden if its state file is missing, was written under another policy than the configured one, or names
  what the machine does not have.
- Any other contradiction leaves the state as it is, in doubt: the kubelet goes on from it, unless it was killed while
  it wrote. Nothing is guessed: each gap and each contradiction is a problem of the report.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from sys import intern
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import MAX_CPUS, MAX_NUMA_NODE_ID
from extender.kubelet.observed import CPU_FIELD, DEVICE_FIELD, MEMORY_FIELD, UnknownPartError, contradictions
from extender.kubelet.sets import bits_of, parse_list
from extender.kubelet.startup import initial_state
from extender.kubelet.state import (
    NOTHING,
    Block,
    CPUState,
    DeviceState,
    ManagerState,
    MemoryAmounts,
    MemoryState,
    NUMANodeMemory,
    OneContainer,
)
from extender.kubelet.verdict import Provider
from extender.wire.errors import CapError, WireError, problem, shown
from extender.wire.machines import Devices
from extender.wire.parsing import converted
from node_exporter.checkpoints import StateDocumentError, effective_document
from node_exporter.report import NodeReport, Problem

MAX_ENTRIES: Final = 16_384
"""Limit on containers, blocks, and resources of containers in one checkpoint. 1,000 pods have a few thousand."""
MAX_LIST_CHARACTERS: Final = 65_536
"""Limit on the length of a list of CPUs. Every second one of 8,192 takes 20,000."""
MAX_TYPES: Final = 64
"""Limit on the kinds of memory of a NUMA node."""
_SHARED: Final = 10_000
"""How many holdings of containers are cached, so that equal ones are one object: most pods are replicas."""
_SHORT: Final = 200
"""Equal pairs of a container's name and CPU list are read once, if they have at most this many characters."""
_FEW_BLOCKS: Final = 8
"""Equal lists of a container's memory blocks are read once, if they have at most this many blocks."""

DeviceEntries = dict[str, dict[str, dict[str, frozenset[str]]]]
"""Device ids by pod UID, container name and resource."""

JsonObject = Mapping[str, object]
_NumaId = Annotated[int, Meta(ge=0, le=MAX_NUMA_NODE_ID)]
_Amount = Annotated[int, Meta(ge=0)]
"""Below `_AMOUNTS_END`, which msgspec cannot check."""
_AMOUNTS_END: Final = 2**64


class _CPUPodEntry(msgspec.Struct):
    cpu_set: str = msgspec.field(name="cpuSet", default="")


class _CPUDocument(msgspec.Struct):
    policy: str = msgspec.field(name="policyName")
    default: str = msgspec.field(name="defaultCpuSet", default="")
    entries: dict[str, dict[str, str]] | None = None
    pod_entries: dict[str, _CPUPodEntry] | None = msgspec.field(name="podEntries", default=None)


class _Block(msgspec.Struct, frozen=True, gc=False):
    numa: Annotated[tuple[_NumaId, ...], Meta(min_length=1)] = msgspec.field(name="numaAffinity")
    type: str
    size: _Amount


class _MemoryTable(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    total: _Amount
    system_reserved: _Amount
    allocatable: _Amount
    reserved: _Amount
    free: _Amount


class _MemoryNode(msgspec.Struct, frozen=True, gc=False):
    assignments: _Amount = msgspec.field(name="numberOfAssignments")
    memory: dict[str, _MemoryTable] = msgspec.field(name="memoryMap")
    cells: list[_NumaId]


class _MemoryPodEntry(msgspec.Struct, gc=False):
    blocks: tuple[_Block, ...] = msgspec.field(name="memoryBlocks", default=())


class _MemoryDocument(msgspec.Struct, gc=False):
    policy: str = msgspec.field(name="policyName")
    machine: dict[str, _MemoryNode] | None = msgspec.field(name="machineState", default=None)
    entries: dict[str, dict[str, tuple[_Block, ...]]] | None = None
    pod_entries: dict[str, _MemoryPodEntry] | None = msgspec.field(name="podEntries", default=None)


class _DeviceEntry(msgspec.Struct, gc=False):
    pod_uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    ids: dict[str, list[str]] | list[str] | None = msgspec.field(name="DeviceIDs", default=None)


class _DeviceData(msgspec.Struct, gc=False):
    entries: list[_DeviceEntry] | None = msgspec.field(name="PodDeviceEntries", default=None)


class _DeviceDocument(msgspec.Struct, gc=False):
    data: _DeviceData = msgspec.field(name="Data")


def restored(document: JsonObject, field: str) -> JsonObject:
    """The state that a kubelet restores from a CPU or memory document. Takes long for documents of 1.37.

    Raises:
        WireError: no kubelet starts with the document.
    """
    try:
        return effective_document(document)
    except StateDocumentError as error:
        raise WireError(field, f"no kubelet starts with this file: {error}") from None


def cpu_state(document: JsonObject, max_cpu: int) -> CPUState | None:
    """The CPU manager's state. None if the document has none (policy none, or never initialised).

    Raises:
        WireError: a wrong type, or a CPU list that does not parse or names a CPU above *max_cpu*.
        CapError: more entries than any node has.
    """
    parsed = converted(document, _CPUDocument, CPU_FIELD)
    entries, pod_entries = parsed.entries or {}, parsed.pod_entries or {}
    if parsed.policy == "none" or not (parsed.default or entries or pod_entries):
        return None
    _check_count(sum(map(len, entries.values())) + len(pod_entries), CPU_FIELD, "entries", MAX_ENTRIES)
    return CPUState(
        default=_cpus(parsed.default, max_cpu, "defaultCpuSet"),
        entries={uid: _cpus_of(containers, max_cpu, uid) for uid, containers in entries.items()},
        pod_entries={
            uid: _cpus(entry.cpu_set, max_cpu, "podEntries", uid, "cpuSet") for uid, entry in pod_entries.items()
        }
        or NOTHING,
    )


def _cpus_of(containers: Mapping[str, str], max_cpu: int, uid: str) -> Mapping[str, int]:
    if len(containers) == 1:
        ((name, text),) = containers.items()
        if len(name) + len(text) > _SHORT:
            return OneContainer(intern(name), _cpus(text, max_cpu, "entries", uid, name))
        try:
            return _cpus_of_one(name, text, max_cpu)
        except ValueError as error:
            raise WireError(f"{CPU_FIELD}.entries.{uid}.{name}", str(error)) from None
    return {intern(name): _cpus(text, max_cpu, "entries", uid, name) for name, text in containers.items()}


@lru_cache(_SHARED)
def _cpus_of_one(name: str, text: str, max_cpu: int) -> OneContainer[int]:
    return OneContainer(intern(name), parse_list(text, max_cpu))


def _memory_of(containers: Mapping[str, tuple[_Block, ...]]) -> Mapping[str, tuple[Block, ...]]:
    if len(containers) == 1:
        ((name, blocks),) = containers.items()
        if len(blocks) <= _FEW_BLOCKS and len(name) + _length(blocks) <= _SHORT:
            return _container_of(name, blocks)
        return OneContainer(intern(name), _blocks(blocks))
    return {intern(name): _blocks(blocks) for name, blocks in containers.items()}


def _length(blocks: Iterable[_Block]) -> int:
    """The characters of the types of memory, and the NUMA nodes."""
    return sum(len(block.type) + len(block.numa) for block in blocks)


@lru_cache(_SHARED)
def _container_of(name: str, blocks: tuple[_Block, ...]) -> OneContainer[tuple[Block, ...]]:
    return OneContainer(intern(name), _blocks(blocks))


def _check_count(count: int, field: str, what: str, most: int) -> None:
    if count > most:
        raise CapError(field, f"{count} {what}, more than {most}")


def _cpus(text: str, max_cpu: int, *path: str) -> int:
    """The CPUs of a list. *path*: where the list is in the document; joined for an error only."""
    if len(text) > MAX_LIST_CHARACTERS:
        _check_count(len(text), ".".join((CPU_FIELD, *path)), "characters", MAX_LIST_CHARACTERS)
    try:
        return parse_list(text, max_cpu)
    except ValueError as error:
        raise WireError(".".join((CPU_FIELD, *path)), str(error)) from None


def memory_state(document: JsonObject) -> MemoryState | None:
    """The memory manager's state. None if the document has none (policy None, or never initialised).

    Raises:
        WireError: a wrong type, a NUMA id or an amount out of range.
        CapError: more entries than any node has.
    """
    parsed = converted(document, _MemoryDocument, MEMORY_FIELD)
    if parsed.policy == "None" or not parsed.machine:
        return None
    blocks = sum(len(b) for containers in (parsed.entries or {}).values() for b in containers.values())
    blocks += sum(len(entry.blocks) for entry in (parsed.pod_entries or {}).values())
    _check_count(blocks, MEMORY_FIELD, "blocks", MAX_ENTRIES)
    _check_count(max(len(node.memory) for node in parsed.machine.values()), MEMORY_FIELD, "types", MAX_TYPES)
    nodes = [_memory_node(key, node) for key, node in parsed.machine.items()]
    return MemoryState(
        nodes=tuple(sorted(nodes)),
        entries={uid: _memory_of(containers) for uid, containers in (parsed.entries or {}).items()},
        pod_entries={uid: _blocks(entry.blocks) for uid, entry in (parsed.pod_entries or {}).items()} or NOTHING,
    )


def _memory_node(key: str, node: _MemoryNode) -> NUMANodeMemory:
    if not (key.isascii() and key.isdigit() and len(key) <= 4 and int(key) <= MAX_NUMA_NODE_ID):
        raise WireError(f"{MEMORY_FIELD}.machineState", f"{shown(key)} is not a NUMA id from 0 to {MAX_NUMA_NODE_ID}")
    amounts = []
    for name, table in sorted(node.memory.items()):
        found = MemoryAmounts(table.total, table.system_reserved, table.allocatable, table.reserved, table.free)
        if max(found) >= _AMOUNTS_END:
            raise WireError(f"{MEMORY_FIELD}.machineState.{key}.memoryMap.{name}", "an amount is 2**64 or more")
        amounts.append((intern(name), found))
    return NUMANodeMemory(int(key), node.assignments, bits_of(node.cells), tuple(amounts))


def _blocks(blocks: tuple[_Block, ...]) -> tuple[Block, ...]:
    if any(block.size >= _AMOUNTS_END for block in blocks):
        raise WireError(MEMORY_FIELD, "the size of a block is 2**64 or more")
    return tuple([Block(bits_of(block.numa), intern(block.type), block.size) for block in blocks])


def device_entries_from_json(document: JsonObject) -> DeviceEntries:
    """The devices that containers hold.

    `DeviceIDs` is a map from NUMA id ("-1": the device has no topology) to ids. A device of several NUMA nodes is
    listed under each of them. Kubelets that were upgraded from before 1.20 may still have a plain list. The NUMA ids
    are not read here, because the report's device list has them.

    Raises:
        WireError: a wrong type.
        CapError: more entries than any node has.
    """
    parsed = converted(document, _DeviceDocument, DEVICE_FIELD)
    _check_count(len(parsed.data.entries or ()), DEVICE_FIELD, "entries", MAX_ENTRIES)
    entries: DeviceEntries = {}
    for entry in parsed.data.entries or ():
        ids = entry.ids or ()
        held = frozenset(ids) if not isinstance(ids, dict) else frozenset(i for group in ids.values() for i in group)
        of_container = entries.setdefault(entry.pod_uid, {}).setdefault(entry.container, {})
        of_container[entry.resource] = of_container.get(entry.resource, frozenset()) | held
    return entries


NOTHING_HIDDEN: Final[frozenset[Provider]] = frozenset()
NO_START: Final = "the kubelet does not start with this file; before its next start, drain the node and delete the file"
UNFINISHED: Final = "the kubelet has not finished writing, or was stopped before; no verdict is certain"


@dataclass(slots=True)
class ObservedState:
    """What the managers hold. `hidden`: the managers whose state is unknown; theirs is the one of a node without pods.

    `contradictory`: the state contradicts itself in a way that no kubelet writes which has finished writing.
    """

    problems: list[Problem]
    state: ManagerState = field(init=False)
    hidden: frozenset[Provider] = NOTHING_HIDDEN
    contradictory: bool = False

    def hide(self, manager: Provider, path: str, reason: str) -> None:
        """The state of the manager is unknown."""
        self.hidden |= {manager}
        self.problems.append(problem(path, f"{reason}: no verdict for pods that need the {manager.value} manager"))

    def readable(self, document: JsonObject | None, kubelet: Kubelet, manager: Provider) -> JsonObject | None:
        """The content of the document. None if it has no state; if it should have one, the manager is hidden."""
        field, policy, is_needed = CPU_FIELD, kubelet.config.cpu_manager_policy, kubelet.cpu_static
        if manager is Provider.MEMORY:
            field, policy, is_needed = MEMORY_FIELD, kubelet.config.memory_manager_policy, kubelet.memory_static
        content = None if document is None else restored(document, field)
        if content is None:
            if is_needed:
                self.hide(manager, field, "missing")
        elif (written := content.get("policyName") or "") != policy:
            reason = f"written under policy {shown(written)}, but the configuration has {shown(policy)}"
            self.hide(manager, field, reason)
        elif is_needed:
            return content
        return None


def observed_state(facts: NodeReport, kubelet: Kubelet, devices: Devices, problems: list[Problem]) -> ObservedState:
    """What the managers hold. Adds to *problems*.

    Raises:
        WireError: a state file has a wrong type, or a value that none of its kind has.
    """
    empty = partial(initial_state, kubelet, devices)
    observed, most = ObservedState(problems), max(MAX_CPUS - 1, kubelet.machine.cpus[-1].cpu)
    cpu = observed.readable(facts.state.cpu_manager_state, kubelet, Provider.CPU)
    memory = observed.readable(facts.state.memory_manager_state, kubelet, Provider.MEMORY)
    state = ManagerState(
        cpu=(cpu and cpu_state(cpu, most)) or empty().cpu,
        memory=(memory and memory_state(memory)) or empty().memory,
        devices=_device_state(facts, devices, observed),
    )
    running, at_start = contradictions(kubelet, state)
    problems += [problem(error.field, f"{error.reason}: {NO_START}") for error in at_start.values()]
    for manager, error in running.items():
        if isinstance(error, UnknownPartError):
            observed.hide(manager, error.field, error.reason)
            is_cpu = manager is Provider.CPU
            state = replace(state, cpu=empty().cpu) if is_cpu else replace(state, memory=empty().memory)
        else:
            observed.contradictory = True
            problems.append(problem(error.field, f"{error.reason}: {UNFINISHED}"))
    observed.state = state
    return observed


def _device_state(facts: NodeReport, devices: Devices, observed: ObservedState) -> DeviceState:
    """A node on which no plugin ever registered has no checkpoint, and needs none."""
    document = facts.state.kubelet_internal_checkpoint
    if facts.devices is None:
        observed.hide(Provider.DEVICE, "devices", "not known")
    elif document is None and devices:
        observed.hide(Provider.DEVICE, DEVICE_FIELD, "missing")
    return DeviceState.of(devices, device_entries_from_json(document) if document is not None else {})
