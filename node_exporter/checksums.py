"""Checksums of the kubelet's state files, computed from the parsed documents.

A checksum is the 32-bit FNV-1a hash of the checkpoint as printed by Go's spew library (kubelet
checkpointmanager/checksum): maps in key order, types before fields. So it can be computed from the values alone.
Verified against every state file of the recorded scenarios, 1.27 to 1.36. With PodLevelResourceManagers (1.36) the
structure has one more field, which is printed even if it is empty. A document without pod entries may be of either
form. The device manager's checkpoint is not covered, because there is no recorded example of its printed form.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from node_exporter.cpu_lists import parse_cpu_list
from node_exporter.report import JsonObject
from node_exporter.state_document import fnv32a


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
    entries = _map(document.get("entries"), lambda containers: _map(containers, _blocks))
    head = (
        f"(*state.MemoryManagerCheckpoint){{PolicyName:(string){document['policyName']}"
        f" MachineState:(state.NUMANodeMap){_map({int(node): record for node, record in machine.items()}, _numa_node)}"
        f" Entries:(state.ContainerMemoryAssignments){entries}"
    )

    def memory_blocks(entry: Mapping[str, Any]) -> str:
        return f"{{MemoryBlocks:([]state.Block){_blocks(entry['memoryBlocks'])}}}"

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


def _blocks(blocks: Sequence[Mapping[str, Any]]) -> str:
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
