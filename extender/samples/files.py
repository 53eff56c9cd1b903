"""Writes the files of a sample node below a directory, as the exporter finds them on a real node."""

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from extender.kubelet.sets import format_list, iter_bits
from extender.kubelet.state import Block, ManagerState
from extender.samples.hardware import write, write_machine
from extender.samples.nodes import SampleNode

KUBELET_DIR = "var/lib/kubelet"


def write_node(root: Path, node: SampleNode) -> None:
    """Write all files. *root* is the node's `/`."""
    kubelet = root / KUBELET_DIR
    write_machine(root, node.kubelet.machine)
    write(root / "proc/sys/kernel/random/boot_id", str(uuid.uuid5(uuid.NAMESPACE_DNS, node.name)))
    write(root / "proc/1/cmdline", f"/usr/bin/kubelet\0--config=/{KUBELET_DIR}/config.yaml\0")
    write(kubelet / "config.yaml", yaml.safe_dump(dict(node.configuration), sort_keys=False))
    for name, document in state_documents(node).items():
        directory = "device-plugins/" if name == "kubelet_internal_checkpoint" else ""
        write(kubelet / f"{directory}{name}", json.dumps(document))
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
        uid: {name: [_block(block) for block in blocks] for name, blocks in containers.items()}
        for uid, containers in node.state.memory.entries.items()
    }
    policy = node.kubelet.config.memory_manager_policy
    return {"policyName": policy, "machineState": machine, "entries": entries, "checksum": 0}


def _block(block: Block) -> Mapping[str, Any]:
    return {"numaAffinity": list(iter_bits(block.mask)), "type": block.type, "size": block.size}


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
