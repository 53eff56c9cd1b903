"""Reads the kubelet's state files, and detects changes that the kubelet has not finished.

Rules of this file
- Documents are passed on as a kubelet restores them: those of 1.37 as the content of their `data`,
  older ones unchanged. The device manager's document is passed on without `AllocResp` (environment and mounts of
  containers), which admission does not need and which should not leave the node.
- The kubelet writes each file by a rename, so a document is always complete. But one allocation is several writes.
  `torn_cpu` and `torn_memory` say whether a document is from between two of them (validateState of both managers).
- An inconsistency is described, never repaired.
- A checksum is the 32-bit FNV-1a hash of the checkpoint as printed by Go's spew library (kubelet
  checkpointmanager/checksum): maps in key order, types before fields. So it can be computed from the values alone.
  Verified against every state file of the recorded scenarios, 1.27 to 1.36. With PodLevelResourceManagers (1.36) the
  structure has one more field, which is printed even if it is empty. A document without pod entries may be of either
  form. The device manager's checkpoint is not covered, because there is no recorded example of its printed form.
- Up to 1.36 the document itself is restored. From 1.37 on a file contains the state twice: in the old members, for an
  older kubelet, and as a JSON text in `data`, with `dataChecksum`. A kubelet of 1.37 restores `data` alone, and only
  `data` has the entries of pods (`podEntries`, gate PodLevelResourceManagers). The extender uses `effective_document`
  as well, so that both read the same state.

Mirrors: kubelet `cm/cpumanager/state/checkpoint.go` and `cm/memorymanager/state/checkpoint.go` of 1.37, and
`restoreState` in `state_checkpoint.go` beside each.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from node_exporter.cpu_lists import count_named, parse_cpu_list
from node_exporter.files import describe, is_directory, parse_json, read_file
from node_exporter.report import JsonObject, KubeletState, Problem

FNV_OFFSET = 0x811C9DC5
FNV_PRIME = 0x01000193


class StateDocumentError(ValueError):
    """A kubelet refuses to start with this file. The message gives the reason."""


def fnv32a(content: bytes) -> int:
    """The 32-bit FNV-1a hash."""
    value = FNV_OFFSET
    for byte in content:
        value = ((value ^ byte) * FNV_PRIME) & 0xFFFFFFFF
    return value


def has_data(document: JsonObject) -> bool:
    """Whether the document has the form of 1.37, in which `data` is the state."""
    return bool(document.get("data") or document.get("dataChecksum"))


def effective_document(document: JsonObject) -> JsonObject:
    """The state that a kubelet restores: the decoded `data`, or the document itself if it has none.

    Raises:
        StateDocumentError: `data` and `dataChecksum` do not agree, or `data` is not a JSON object in a string.
    """
    if not has_data(document):
        return document
    data, written = document.get("data"), document.get("dataChecksum", 0)
    if not isinstance(data, str) or not data:
        raise StateDocumentError("it has a dataChecksum, but no data")
    try:
        computed = fnv32a(b"(string)" + data.encode())
        inner = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise StateDocumentError(f"data is not JSON: {str(error)[:200]}") from None
    if written != computed:
        raise StateDocumentError(f"dataChecksum is {str(written)[:40]}, data has {computed}")
    if not isinstance(inner, dict):
        raise StateDocumentError("data is not a JSON object")
    return inner


def edited_by_hand(document: JsonObject) -> bool:
    """Whether the two copies in a document of 1.37 differ. A kubelet writes both in one step."""
    if not has_data(document):
        return False
    inner = {key: value for key, value in effective_document(document).items() if key != "podEntries"}
    outer = {key: value for key, value in document.items() if key not in {"checksum", "data", "dataChecksum"}}
    return inner != outer


SOURCE = "kubelet state"
CPU_FILE = "cpu_manager_state"
MEMORY_FILE = "memory_manager_state"
DEVICE_FILE = "device-plugins/kubelet_internal_checkpoint"
MAX_BYTES = {CPU_FILE: 1 << 20, MEMORY_FILE: 1 << 20, DEVICE_FILE: 4 << 20}
"""Size limit by file. 250 pods are about 30 kB of CPUs and 60 kB of memory. The device file has up to 4 kB for each
container with devices, and the ids of all devices."""
MAX_CPUS_ASSIGNED = 1 << 17
"""Limit on the CPUs in the lists of one state file. A valid file lists the machine's CPUs."""


@dataclass(frozen=True, slots=True)
class RawFiles:
    """The bytes of the three files, None if unreadable, and the reason. Equal readings are equal values.

    `never_had_devices`: the kubelet's directory exists without a device checkpoint. The kubelet writes it when the
    first device plugin registers.
    """

    cpu: bytes | None
    memory: bytes | None
    devices: bytes | None
    never_had_devices: bool
    problems: tuple[Problem, ...] = ()


def read_files(kubelet_dir: Path) -> RawFiles:
    """Read the three state files below the kubelet's root directory. Raises nothing."""
    problems: list[Problem] = []
    contents: list[bytes | None] = []
    missing: set[str] = set()
    for name in (CPU_FILE, MEMORY_FILE, DEVICE_FILE):
        try:
            contents.append(read_file(kubelet_dir / name, MAX_BYTES[name]))
        except (OSError, ValueError) as error:
            contents.append(None)
            if isinstance(error, FileNotFoundError):
                missing.add(name)
            problems.append(Problem(source=SOURCE, path=name, reason=describe(error), severity="error"))
    never_had_devices = DEVICE_FILE in missing and is_directory(kubelet_dir)
    if never_had_devices:
        problems[-1] = Problem(
            source=SOURCE, path=DEVICE_FILE, reason="no device plugin has registered", severity="info"
        )
    cpu, memory, devices = contents
    return RawFiles(cpu, memory, devices, never_had_devices, tuple(problems))


def parse_files(files: RawFiles) -> tuple[KubeletState, tuple[Problem, ...]]:
    """Parse the files. A file that is not a JSON object becomes None and a Problem."""
    problems: list[Problem] = []
    state = KubeletState(
        cpu_manager_state=_parse(CPU_FILE, files.cpu, problems),
        memory_manager_state=_parse(MEMORY_FILE, files.memory, problems),
        kubelet_internal_checkpoint=_without_responses(_parse(DEVICE_FILE, files.devices, problems)),
    )
    return state, (*files.problems, *problems)


def torn_cpu(document: JsonObject, expected: frozenset[int], *alternatives: frozenset[int]) -> str | None:
    """Say how shared pool and assignments differ from the CPUs `expected`, or an alternative.

    None if they agree.

    A document of policy none, or one whose shared pool was never initialised, is not checked.
    """
    if document.get("policyName") != "static" or not document.get("defaultCpuSet"):
        return None
    try:
        shared = parse_cpu_list(str(document["defaultCpuSet"]))
        assigned = frozenset[int]().union(*(parse_cpu_list(text) for text in cpu_texts(document)))
    except ValueError as error:
        return f"not a CPU list: {describe(error)}"
    if shared & assigned:
        return f"CPUs {sorted(shared & assigned)} are both shared and assigned"
    if shared | assigned not in {expected, *alternatives}:
        missing, foreign = sorted(expected - shared - assigned), sorted((shared | assigned) - expected)
        return f"CPUs {missing} are in no set, CPUs {foreign} are not on this machine"
    return None


def torn_memory(document: JsonObject) -> str | None:
    """Say how the machine state contradicts the blocks of the containers. None if it agrees, or is not checked.

    Every block counts one assignment on each of its NUMA nodes (policy_static.go Allocate, releaseMemory). Reserved
    bytes need not be the sum of the blocks, once a pod with init containers was admitted again. Documents with
    pod-level entries (1.36, gated) are not checked.
    """
    machine = document.get("machineState")
    if document.get("policyName") != "Static" or document.get("podEntries") or not isinstance(machine, dict):
        return None
    try:
        assignments: dict[int, int] = {}
        for block in _blocks(document):
            for node in block["numaAffinity"]:
                assignments[node] = assignments.get(node, 0) + 1
        for node, record in machine.items():
            counted, expected = record["numberOfAssignments"], assignments.get(int(node), 0)
            if counted != expected:
                return f"NUMA node {node} counts {counted} assignments, but has {expected} blocks"
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"not a memory manager state: {type(error).__name__} {describe(error)}"
    return None


def bad_checksum(document: JsonObject) -> str | None:
    """Say how a CPU or memory manager state contradicts its own checksum. None if it agrees."""
    try:
        return wrong_checksum(document)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"not a state file: {type(error).__name__} {describe(error)}"


def cpu_texts(document: JsonObject) -> Iterator[str]:
    """Every CPU list assigned in a cpu_manager_state, of containers (nested or flat entries) and of pods."""
    for entry in _values(document.get("entries")):
        yield from (str(text) for text in (_values(entry) if isinstance(entry, Mapping) else (entry,)))
    for entry in _values(document.get("podEntries")):
        if isinstance(entry, Mapping):
            yield str(entry.get("cpuSet", ""))


def _values(mapping: object) -> tuple[Any, ...]:
    return tuple(mapping.values()) if isinstance(mapping, Mapping) else ()


def _blocks(document: JsonObject) -> Iterator[dict[str, Any]]:
    for containers in _values(document.get("entries")):
        for blocks in _values(containers):
            yield from blocks or ()


def _parse(name: str, content: bytes | None, problems: list[Problem]) -> JsonObject | None:
    if content is None:
        return None
    try:
        document = parse_json(content)
        if not isinstance(document, dict):
            raise ValueError("not a JSON object")  # noqa: TRY004, TRY301 - what came is a wrong value of another's
        if name in {CPU_FILE, MEMORY_FILE}:
            document = _restored(name, document, problems)
        _check_cpus_assigned(document)
    except ValueError as error:
        problems.append(Problem(source=SOURCE, path=name, reason=describe(error), severity="error"))
        return None
    return document


def _restored(name: str, document: JsonObject, problems: list[Problem]) -> JsonObject:
    """The state that the kubelet restores from the document. Raises ValueError if no kubelet starts with it."""
    restored = effective_document(document)
    if edited_by_hand(document):
        reason = "its two copies of the state differ: the file was edited, and the kubelet uses `data`"
        problems.append(Problem(source=SOURCE, path=name, reason=reason))
    return restored


def _check_cpus_assigned(document: JsonObject) -> None:
    """Raises ValueError if the CPU lists are malformed, or too long to process."""
    texts = (str(document.get("defaultCpuSet") or ""), *cpu_texts(document)) if "defaultCpuSet" in document else ()
    try:
        named = sum(count_named(text) for text in texts)
    except ValueError as error:
        raise ValueError(f"not a CPU list: {describe(error)}") from None
    if named > MAX_CPUS_ASSIGNED:
        raise ValueError(f"its lists name more than {MAX_CPUS_ASSIGNED} CPUs")


def _without_responses(document: JsonObject | None) -> JsonObject | None:
    data = document.get("Data") if document else None
    if document is None or not isinstance(data, dict) or not isinstance(data.get("PodDeviceEntries"), list):
        return document
    entries = [
        {key: value for key, value in entry.items() if key != "AllocResp"} if isinstance(entry, dict) else entry
        for entry in data["PodDeviceEntries"]
    ]
    return {**document, "Data": {**data, "PodDeviceEntries": entries}}


def wrong_checksum(document: JsonObject) -> str | None:
    """Say how the checksum of a CPU or memory manager state contradicts its content. None if it agrees.

    A checksum of 0 is accepted, as the kubelet does. Raises KeyError, TypeError, ValueError or AttributeError if the
    document does not have the structure of either state.
    """
    written = document.get("checksum", 0)
    printed = _memory_forms(document) if "machineState" in document else _cpu_forms(document)
    computed = [fnv32a(text.encode()) for text in printed] if written else [0]
    if written in computed:
        return None
    return f"checksum is {written}, but the content has {' or '.join(str(number) for number in computed)}"


def _cpu_forms(document: JsonObject) -> Iterator[str]:
    def cpu_set(entry: Mapping[str, str]) -> str:
        members = " ".join(f"{cpu}:{{}}" for cpu in sorted(parse_cpu_list(entry["cpuSet"])))
        return f"{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{members}]}}}}"

    entries = _map(document.get("entries"), lambda containers: _map(containers, str))
    head = (
        f"(*state.CPUManagerCheckpoint){{PolicyName:(string){document['policyName']}"
        f" DefaultCPUSet:(string){document['defaultCpuSet']} Entries:(map[string]map[string]string){entries}"
    )
    yield from _with_pod_entries(head, document, "PodCPUAssignments", cpu_set)


def _memory_forms(document: JsonObject) -> Iterator[str]:
    machine: Any = document["machineState"]
    entries = _map(document.get("entries"), lambda containers: _map(containers, _printed_blocks))
    head = (
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){document['policyName']}"
        f" MachineState:(state.NUMANodeMap){_map({int(node): record for node, record in machine.items()}, _numa_node)}"
        f" Entries:(state.ContainerMemoryAssignments){entries}"
    )

    def memory_blocks(entry: Mapping[str, Any]) -> str:
        return f"{{MemoryBlocks:([]state.Block){_printed_blocks(entry['memoryBlocks'])}}}"

    yield from _with_pod_entries(head, document, "PodMemoryAssignments", memory_blocks)


def _with_pod_entries(head: str, document: JsonObject, type_name: str, show: Callable[[Any], str]) -> Iterator[str]:
    """The form without the field for pod entries, unless there are some, and the form with it."""
    tail = " Checksum:(checksum.Checksum)0}"
    if not document.get("podEntries"):
        yield head + tail
    yield f"{head} PodEntries:(state.{type_name}){_map(document.get('podEntries'), show)}{tail}"


def _numa_node(record: Mapping[str, Any]) -> str:
    return (
        f"<*>{{NumberOfAssignments:(int){record['numberOfAssignments']}"
        f" MemoryMap:(map[v1.ResourceName]*state.MemoryTable){_map(record['memoryMap'], _memory_table)}"
        f" Cells:([]int){_list(record['cells'])}}}"
    )


def _memory_table(table: Mapping[str, int]) -> str:
    return (
        f"<*>{{TotalMemSize:(uint64){table['total']} SystemReserved:(uint64){table['systemReserved']}"
        f" Allocatable:(uint64){table['allocatable']} Reserved:(uint64){table['reserved']}"
        f" Free:(uint64){table['free']}}}"
    )


def _printed_blocks(blocks: Sequence[Mapping[str, Any]]) -> str:
    return _list(
        f"{{NUMAAffinity:([]int){_list(block['numaAffinity'])} Type:(v1.ResourceName){block['type']}"
        f" Size:(uint64){block['size']}}}"
        for block in blocks
    )


def _map(mapping: Any, show: Callable[[Any], str]) -> str:  # noqa: ANN401 - JSON of another program
    """A Go map as printed: keys in order; a missing map is an empty one."""
    return f"map[{' '.join(f'{key}:{show(value)}' for key, value in sorted((mapping or {}).items()))}]"


def _list(items: Any) -> str:  # noqa: ANN401 - JSON of another program
    return "<nil>" if items is None else f"[{' '.join(str(item) for item in items)}]"
