"""The kubelet that tests play: it admits, starts and ends pods by the naive restatement, and its exporter reports.

The restatement in `tests/oracle` shares no code with the replay, so what this kubelet admits and holds can contradict
the extender. `tests/drill/node.py` plays the same restatement in virtual time, with a late view of the API server and
restarts, and sends the same reports.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Self

import orjson

from extender.kubelet.state import ManagerState
from extender.samples.nodes import SampleNode, make_pod
from extender.wire.reports import read_report
from tests.oracle.amounts import format_cpus
from tests.oracle.kubelet import NaiveKubelet
from tests.oracle.memory_manager import Block
from tests.reports import report_of

Json = dict[str, Any]


class Kubelet:
    """One node's kubelet, and the reports of its exporter.

    `pods`: manifests of the pods that it has admitted and that have not ended, by UID. `sequence`: of the last report;
    0: none was made.
    """

    def __init__(self, machine: Json, rng: Random | None = None, **rules: bool) -> None:
        """An empty node. *machine*: a report, or a scenario of the drill. *rules*: fixes that the reports do not name.

        NaiveKubeletError: no kubelet starts with this configuration.
        """
        self.machine = machine
        self.name: str = machine.get("node_name", "node")
        self.naive = NaiveKubelet.of({**machine, "rules": {**(machine.get("rules") or {}), **rules}}, rng)
        self.pods: dict[str, Json] = {}
        self.sequence = 0
        self._state: ManagerState | None = None

    @classmethod
    def of(cls, node: SampleNode, **rules: bool) -> Self:
        """The kubelet of a sample node: it has admitted all pods of the description, and those that are gone ended."""
        kubelet = cls(report_of(node), None, **rules)
        for workload in node.description.workloads:
            for name in (f"{workload.name}-{i}" for i in range(workload.copies)):
                pod = make_pod(f"{node.name}/{name}", name, workload)
                assert kubelet.admit(pod)["admit"]
                kubelet.start(pod["metadata"]["uid"])
        running = {pod["metadata"]["uid"] for pod in node.pods}
        for uid in kubelet.pods.keys() - running:
            kubelet.end(uid)
        assert kubelet.pods.keys() == running, "the sample has pods that its description does not have"
        return kubelet

    def admit(self, pod: Json) -> Json:
        """The verdict, in the shape of the vectors' `expect`."""
        self._state = None
        verdict = self.naive.admit(pod)
        if verdict["admit"]:
            self.pods[pod["metadata"]["uid"]] = pod
        return verdict

    def start(self, uid: str) -> None:
        """The pod's containers run; its ordinary init containers are over."""
        self._state = None
        self.naive.start(uid)

    def end(self, uid: str) -> None:
        """The pod is gone, and the managers have collected what it held."""
        self._state = None
        self.pods.pop(uid)
        self.naive.remove(uid)
        for manager in (self.naive.cpus, self.naive.memory, self.naive.devices):
            manager.collect(self.naive.active)

    def report(self) -> Json:
        """The next report of the node."""
        self.sequence += 1
        listed = [
            listed_pod(uid, counted=True, name=pod["metadata"].get("name", uid)) for uid, pod in self.pods.items()
        ]
        boot = self.machine.get("boot_id", "boot-1")
        return report_of_kubelet(self.name, self.machine, self.naive, boot, self.sequence, listed)

    @property
    def state(self) -> ManagerState:
        """What the extender reads in a report of the node as it is now. Devices of alike pods are drawn at random."""
        if self._state is None:
            document = report_of_kubelet("node", self.machine, self.naive, "boot-1", 1)
            self._state = read_report(orjson.dumps(document)).state
        assert self._state is not None
        return self._state


def report_of_kubelet(
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
