"""Small nodes for tests: one machine, its configuration, and state files that agree with themselves."""

from typing import Any

from node_exporter.checkpoints import wrong_checksum

MEMORY = 8 << 30

MACHINE: dict[str, Any] = {
    "cpus": [[cpu, cpu % 4, cpu % 4 // 2, cpu % 4 // 2, None] for cpu in range(8)],
    "numa": [
        {"id": 0, "memory": MEMORY, "hugepages": {"2Mi": 16}, "distances": [10, 21]},
        {"id": 1, "memory": MEMORY, "hugepages": {"2Mi": 0}, "distances": [21, 10]},
    ],
    "num_sockets": 2,
}
"""Two sockets of two cores with two threads: NUMA node 0 has CPUs 0, 1, 4, 5; node 1 has 2, 3, 6, 7."""

KUBELET: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0,4",
    "reservation": {"memory": "1Gi"},
}

SCENARIO: dict[str, Any] = {"machine": MACHINE, "kubelet": KUBELET}


def cpu_state(entries: dict[str, dict[str, str]] | None = None, shared: str = "0-7") -> dict[str, Any]:
    """A cpu_manager_state of the machine, with the right checksum."""
    document: dict[str, Any] = {"policyName": "static", "defaultCpuSet": shared, "checksum": 1}
    return with_checksum(document | ({"entries": entries} if entries else {}))


def memory_state(pods: dict[str, tuple[int, int]] | None = None) -> dict[str, Any]:
    """A memory_manager_state in which each pod's container c0 holds (NUMA node, bytes)."""
    tables: dict[str, Any] = {}
    for node, hugepages, system in ((0, 32 << 20, 1 << 30), (1, 0, 0)):
        allocatable = MEMORY - hugepages - system
        reserved = sum(size for of_pod, size in (pods or {}).values() if of_pod == node)
        tables[str(node)] = {
            "numberOfAssignments": sum(1 for of_pod, _ in (pods or {}).values() if of_pod == node),
            "memoryMap": {
                "hugepages-2Mi": _table(hugepages, 0, hugepages, 0),
                "memory": _table(MEMORY, system, allocatable, reserved),
            },
            "cells": [node],
        }
    entries = {
        uid: {"c0": [{"numaAffinity": [node], "type": "memory", "size": size}]}
        for uid, (node, size) in (pods or {}).items()
    }
    document: dict[str, Any] = {"policyName": "Static", "machineState": tables, "checksum": 1}
    return with_checksum(document | ({"entries": entries} if entries else {}))


def device_state(
    registered: dict[str, list[str]] | None = None, entries: list[tuple[str, str, dict[str, list[str]]]] | None = None
) -> dict[str, Any]:
    """A kubelet_internal_checkpoint; `entries` are (pod UID, resource, device ids by NUMA id)."""
    allocated = [
        {"PodUID": uid, "ContainerName": "c0", "ResourceName": resource, "DeviceIDs": ids, "AllocResp": "c2VjcmV0"}
        for uid, resource, ids in entries or ()
    ]
    return {"Data": {"PodDeviceEntries": allocated or None, "RegisteredDevices": registered or {}}, "Checksum": 1}


def with_checksum(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the checksum that its content has."""
    complaint = wrong_checksum(document)
    return document | {"checksum": int((complaint or "").split(" has ")[1].split()[0])}


def _table(total: int, system: int, allocatable: int, reserved: int) -> dict[str, int]:
    return {
        "total": total,
        "systemReserved": system,
        "allocatable": allocatable,
        "reserved": reserved,
        "free": allocatable - reserved,
    }
