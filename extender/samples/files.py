"""Writes the files of a sample node below a directory, as the exporter finds them on a real node."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from extender.kubelet.machine import Machine
from extender.kubelet.sets import format_list, iter_bits
from extender.kubelet.state import ManagerState
from extender.samples.nodes import SampleNode

KUBELET_DIR = "var/lib/kubelet"


def write_node(root: Path, node: SampleNode) -> None:
    """Write all files. *root* is the node's `/`."""
    kubelet = root / KUBELET_DIR
    _write_machine(root, node.kubelet.machine)
    _write(root / "proc/sys/kernel/random/boot_id", str(uuid.uuid5(uuid.NAMESPACE_DNS, node.name)))
    _write(root / "proc/1/cmdline", f"/usr/bin/kubelet\0--config=/{KUBELET_DIR}/config.yaml\0")
    _write(kubelet / "config.yaml", yaml.safe_dump(dict(node.configuration), sort_keys=False))
    for name, document in state_documents(node).items():
        directory = "device-plugins/" if name == "kubelet_internal_checkpoint" else ""
        _write(kubelet / f"{directory}{name}", json.dumps(document))
    for pod in node.pods:
        metadata = pod["metadata"]
        log_dir = f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        (root / "var/log/pods" / log_dir).mkdir(parents=True)


def state_documents(node: SampleNode) -> dict[str, Mapping[str, Any]]:
    """The kubelet's three state files, by name. Their checksum is 0, which the kubelet and the exporter accept."""
    return {
        "cpu_manager_state": _cpu_document(node),
        "memory_manager_state": _memory_document(node),
        "kubelet_internal_checkpoint": _device_document(node.state),
    }


def _cpu_document(node: SampleNode) -> Mapping[str, Any]:
    entries = {
        uid: {name: format_list(cpus) for name, cpus in containers.items()}
        for uid, containers in node.state.cpu.entries.items()
    }
    policy, default = node.kubelet.config.cpu_manager_policy, format_list(node.state.cpu.default)
    return {"policyName": policy, "defaultCpuSet": default, "entries": entries, "checksum": 0}


def _memory_document(node: SampleNode) -> Mapping[str, Any]:
    machine = {
        str(numa.id): {
            "numberOfAssignments": numa.assignments,
            "memoryMap": {
                name: {
                    "total": amounts.total,
                    "systemReserved": amounts.system_reserved,
                    "allocatable": amounts.allocatable,
                    "reserved": amounts.reserved,
                    "free": amounts.free,
                }
                for name, amounts in numa.amounts
            },
            "cells": list(iter_bits(numa.cells)),
        }
        for numa in node.state.memory.nodes
    }
    entries = {
        uid: {
            name: [{"numaAffinity": list(iter_bits(b.mask)), "type": b.type, "size": b.size} for b in blocks]
            for name, blocks in containers.items()
        }
        for uid, containers in node.state.memory.entries.items()
    }
    policy = node.kubelet.config.memory_manager_policy
    return {"policyName": policy, "machineState": machine, "entries": entries, "checksum": 0}


def _device_document(state: ManagerState) -> Mapping[str, Any]:
    entries = []
    for uid, containers in state.devices.entries.items():
        for container, resources in containers.items():
            for resource, ids in resources.items():
                by_numa: dict[str, list[str]] = {}
                for device_id in sorted(ids):
                    for numa in iter_bits(state.devices.devices[resource][device_id].numa or 0):
                        by_numa.setdefault(str(numa), []).append(device_id)
                entries.append(
                    {
                        "PodUID": uid,
                        "ContainerName": container,
                        "ResourceName": resource,
                        "DeviceIDs": by_numa,
                        "AllocResp": "",
                    }
                )
    registered = {resource: sorted(devices) for resource, devices in state.devices.devices.items()}
    return {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 0}


def _write_machine(root: Path, machine: Machine) -> None:
    """Write /sys and /proc of the machine below *root*."""
    system = root / "sys/devices/system"
    _write(system / "cpu/online", f"0-{machine.num_cpus - 1}")
    for cpu in machine.cpus:
        topology = system / f"cpu/cpu{cpu.cpu}/topology"
        _write(topology / "core_id", str(cpu.core_id))
        _write(topology / "physical_package_id", str(cpu.socket))
        link = system / f"node/node{cpu.numa}/cpu{cpu.cpu}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../cpu/cpu{cpu.cpu}")
    for node in machine.numa_nodes:
        directory = system / f"node/node{node.id}"
        _write(directory / "meminfo", f"Node {node.id} MemTotal: {node.memory_bytes >> 10} kB")
        _write(directory / "distance", " ".join(map(str, node.distances)))
        for page_bytes, pages in node.hugepages.items():
            _write(directory / f"hugepages/hugepages-{page_bytes >> 10}kB/nr_hugepages", str(pages))
    _write(root / "proc/cpuinfo", "\n".join(f"processor\t: {c.cpu}\nphysical id\t: {c.socket}\n" for c in machine.cpus))
    total = sum(node.memory_bytes for node in machine.numa_nodes)
    _write(root / "proc/meminfo", f"MemTotal: {total >> 10} kB")


def _write(path: Path, text: str) -> None:
    """Write one file with a line end, and create its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
