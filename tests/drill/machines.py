"""The kinds of nodes of the drill, as scenario documents; and reports of what their naive kubelets hold."""

from collections.abc import Iterator
from typing import Any

from tests.oracle.amounts import format_cpus
from tests.oracle.kubelet import NaiveKubelet
from tests.oracle.memory_manager import Block

Json = dict[str, Any]
GIB = 1 << 30
GPU, NIC = "gpu.example/gpu", "nic.example/vf"
Kind = tuple[str, str, str, dict[str, str], int]
GROUPS = 14
"""Nodes whose numbers differ by a multiple of this are alike."""
GROUP_LABEL = "node.example/group"
KINDS: tuple[Kind, ...] = (
    ("1.36", "single-numa-node", "container", {}, 2),
    ("1.35", "single-numa-node", "pod", {"full-pcpus-only": "true"}, 2),
    ("1.33", "restricted", "container", {}, 4),
    ("1.31", "restricted", "pod", {}, 2),
    ("1.29", "best-effort", "container", {"full-pcpus-only": "true"}, 4),
    ("1.27", "single-numa-node", "container", {}, 4),
    ("1.34", "none", "container", {}, 2),
)
"""Kubelet version, topology policy and scope, CPU manager options, NUMA nodes."""
SPREADING: tuple[Kind, ...] = (("1.36", "restricted", "container", {"distribute-cpus-across-cores": "true"}, 2),)
"""Nodes where the fix `spread_by_topology` shows."""


LENIENT: tuple[Kind, ...] = (
    ("1.36", "best-effort", "container", {}, 2),
    ("1.35", "none", "container", {}, 4),
    ("1.33", "best-effort", "pod", {}, 4),
    ("1.31", "best-effort", "container", {"full-pcpus-only": "true"}, 4),
    ("1.34", "none", "container", {}, 2),
)
"""Nodes whose kubelets refuse no pod for its alignment."""


def scenario(number: int, kinds: tuple[Kind, ...] = KINDS) -> Json:
    """Node *number*: 16 or 32 CPUs, 16 GiB and two GPUs a NUMA node, two NICs."""
    version, policy, scope, options, numas = kinds[number % len(kinds)]
    cores = numas * 4
    cpus = [[t * cores + c, c, c * 2 // cores, c // 4, None] for t in range(2) for c in range(cores)]
    distances = [
        [10 if a == b else 12 if a * 2 // numas == b * 2 // numas else 32 for b in range(numas)] for a in range(numas)
    ]
    numa = [{"id": i, "memory": 16 * GIB, "hugepages": {}, "distances": distances[i]} for i in range(numas)]
    devices = {
        GPU: [{"id": f"gpu{i}", "numa": [i // 2], "healthy": True} for i in range(2 * numas)],
        NIC: [{"id": f"vf{i}", "numa": [i], "healthy": True} for i in range(2)],
    }
    return {
        "version": f"v{version}.0",
        "machine": {"cpus": sorted(cpus), "numa": numa, "num_sockets": 2},
        "kubelet": {
            "cpuManagerPolicy": "static",
            "cpuManagerPolicyOptions": options,
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": i, "limits": {"memory": "1Gi"}} for i in range(numas)],
            "topologyManagerPolicy": policy,
            "topologyManagerScope": scope,
            "topologyManagerPolicyOptions": {},
            "reservedSystemCPUs": f"0,{cores}",
            "featureGates": {"CPUManagerPolicyAlphaOptions": True} if kinds is SPREADING else {},
            "reservation": {"cpu": "2", "memory": f"{numas}Gi"},
        },
        "devices": devices if number % 2 == 0 else {},
    }


def allocatable(scenario_: Json) -> dict[str, int]:
    """What kube-scheduler counts against: thousandths of CPUs, bytes, devices."""
    numas = len(scenario_["machine"]["numa"])
    totals = {"cpu": 1000 * (len(scenario_["machine"]["cpus"]) - 2), "memory": 15 * GIB * numas}
    return totals | {resource: len(devices) for resource, devices in scenario_["devices"].items()}


def quantities(amounts: dict[str, int]) -> dict[str, str]:
    """Amounts as the API writes them."""
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in amounts.items()}


def report(
    name: str, scenario_: Json, kubelet: NaiveKubelet, boot: str, sequence: int, pods: list[Json] | None = None
) -> Json:
    """What an exporter would send of the node now; *pods*: what podresources lists, joined with UIDs."""
    return {
        "schema_version": 1,
        "node_name": name,
        "boot_id": boot,
        "sequence": sequence,
        "observed_at": float(sequence),
        "kubelet_version": scenario_.get("kubelet_version") or scenario_["version"],
        "rules": scenario_.get("rules") or {},
        "machine": scenario_["machine"],
        "kubelet": scenario_["kubelet"],
        "devices": scenario_["devices"],
        "state": {
            "cpu_manager_state": _cpus(kubelet),
            "memory_manager_state": _memory(kubelet),
            "kubelet_internal_checkpoint": _devices(kubelet),
        },
        "pods": [listed_pod(uid, counted=True) for uid in kubelet.active] if pods is None else pods,
        "zones": [],
        "problems": [],
    }


def listed_pod(uid: str, *, counted: bool | None, name: str = "p") -> Json:
    """A pod of a report; without a name it is known from state files only."""
    containers = [{"name": "c0", "cpus": [], "memory": [], "devices": {}}] if name and counted is not False else []
    return {
        "namespace": "default" if name else "",
        "name": name,
        "uid": uid,
        "counted": counted,
        "containers": containers,
    }


def _cpus(kubelet: NaiveKubelet) -> Json:
    entries = {uid: {c: format_cpus(s) for c, s in held.items()} for uid, held in kubelet.cpus.entries.items()}
    pods = {uid: {"cpuSet": format_cpus(held)} for uid, held in kubelet.cpus.pod_entries.items()}
    return {
        "policyName": "static" if kubelet.cpus.static else "none",
        "defaultCpuSet": format_cpus(kubelet.cpus.default),
        "entries": entries,
        "podEntries": pods,
        "checksum": 0,
    }


def _memory(kubelet: NaiveKubelet) -> Json:
    memory = kubelet.memory
    machine = {
        str(i): {
            "numberOfAssignments": node.assignments,
            "memoryMap": {
                kind: {
                    "total": node.total[kind],
                    "systemReserved": node.system.get(kind, 0),
                    "allocatable": node.allocatable[kind],
                    "reserved": node.reserved.get(kind, 0),
                    "free": node.free[kind],
                }
                for kind in node.total
            },
            "cells": sorted(node.cells),
        }
        for i, node in memory.nodes.items()
    }
    entries = {uid: {c: _blocks(blocks) for c, blocks in held.items()} for uid, held in memory.blocks.items()}
    pods = {uid: {"memoryBlocks": _blocks(blocks)} for uid, blocks in memory.pod_blocks.items()}
    policy = "Static" if memory.static else "None"
    return {"policyName": policy, "machineState": machine, "entries": entries, "podEntries": pods, "checksum": 0}


def _blocks(blocks: list[Block]) -> list[Json]:
    return [{"numaAffinity": sorted(b.mask), "type": b.type, "size": b.size} for b in blocks]


def _devices(kubelet: NaiveKubelet) -> Json:
    return {"Data": {"PodDeviceEntries": list(_device_entries(kubelet)), "RegisteredDevices": {}}, "Checksum": 0}


def _device_entries(kubelet: NaiveKubelet) -> Iterator[Json]:
    for uid, containers in kubelet.devices.held.items():
        for container, resources in containers.items():
            for resource, ids in resources.items():
                by_numa: dict[str, list[str]] = {}
                for device in sorted(ids):
                    for numa in sorted(kubelet.devices.numa[resource][device] or (-1,)):  # -1: no topology
                        by_numa.setdefault(str(numa), []).append(device)
                yield {
                    "PodUID": uid,
                    "ContainerName": container,
                    "ResourceName": resource,
                    "DeviceIDs": by_numa,
                    "AllocResp": "",
                }
