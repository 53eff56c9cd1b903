"""Nodes with the NRI policy whose machine the kubelet and the plugin see alike, and pods that the policy has placed."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from extender.kubelet.budget import MAX_STEPS, Budget
from extender.kubelet.machine import Machine
from extender.kubelet.resolve import resolve
from extender.kubelet.rules import Rules
from extender.kubelet.sets import format_list, iter_bits
from extender.nri.state import NriState
from extender.replay.nri_pod import nri_pod
from extender.samples.machines import Hardware
from extender.wire.nri_reports import nri_facts, nri_policy, nri_state
from extender.wire.pods import pod_from_json
from node_exporter.nri_plugin import read_state_file
from node_exporter.report import ReportedNriMachine, ReportedNriNode, ReportedNriPolicy
from tests.node_exporter.nri_trees import write_state_file
from tests.nri_states import IN_MEMORY, state_file_of
from tests.reports import DUAL, report_of, sample

EIGHT = Hardware(sockets=2, numa_per_socket=4, cores_per_numa=8, threads=2, memory_gib=48)
"""8 NUMA nodes of 16 CPUs and 48 GiB."""
UNALIGNED: Mapping[str, Any] = {
    "cpuManagerPolicy": "none",
    "memoryManagerPolicy": "None",
    "topologyManagerPolicy": "none",
}
CONFIG = {"pinCPU": True, "pinMemory": True, "reservedResources": {"cpu": "2"}, "preferIsolatedCPUs": True}


def nri_report(
    name: str = "node-a",
    pods: Sequence[Mapping[str, Any]] = (),
    *,
    hardware: Hardware = DUAL,
    caches_per_numa: int = 1,
    cxl_gib: int = 0,
    devices: dict[str, list[int]] | None = None,
    **changes: object,
) -> dict[str, Any]:
    """The report of a node on which the policy has created the containers of *pods*, one pod after another.

    *cxl_gib*: of a NUMA node without CPUs. *changes*: of the section, such as `grants=None`.
    """
    node = sample(name, hardware=hardware, devices=devices, **UNALIGNED)
    section = ReportedNriPolicy(
        machine=_machine(node.kubelet.machine, caches_per_numa, cxl_gib),
        config=CONFIG,
        config_source="default",
        config_status="Success",
        grants=(),
    )
    facts = nri_facts(section)
    state = nri_state(nri_policy(facts), facts.grants)
    for pod in pods:
        request = nri_pod(resolve(pod_from_json(pod), Rules.of("v1.36.2", {}, {})))
        verdict, state = state.admit(request, Budget(MAX_STEPS))
        assert verdict.reason is None, verdict.detail
    return report_of(node) | {
        "nri": {**asdict(section), "release": "v0.14.0", "grants": _grants(state), **changes},
        "pods": [_listed(pod["metadata"]) for pod in pods],
    }


def placed_pod(
    name: str, cpu: str, memory: str = "", *, containers: int = 1, limit: bool = True, **extra: object
) -> dict[str, Any]:
    """A pod with equal containers; *limit* False: Burstable. *extra*: of the metadata."""
    requests = {"cpu": cpu, **({"memory": memory} if memory else {})}
    resources = {"requests": requests, **({"limits": requests} if limit else {})}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}", **extra},
        "spec": {"containers": [
            {"name": "app" if i == 0 else f"side-{i}", "image": "i", "resources": resources} for i in range(containers)
        ]},
    }  # fmt: skip


def _listed(metadata: Mapping[str, Any]) -> dict[str, Any]:
    names = {key: metadata[key] for key in ("namespace", "name", "uid")}
    return {**names, "counted": True, "containers": []}


def _grants(state: NriState) -> list[dict[str, Any]]:
    with TemporaryDirectory(dir=IN_MEMORY) as root:
        file = state_file_of(state.node.books)
        write_state_file(Path(root), file.pop("grants"), **file)
        found = read_state_file(Path(root))
    assert found is not None
    grants = found.grants
    return [asdict(grant) for grant in grants]


def _machine(machine: Machine, caches_per_numa: int, cxl_gib: int) -> ReportedNriMachine:
    """What the plugin's discovery makes of the machine, with one L3 cache or more for each NUMA node."""
    caches: list[tuple[int, int, str]] = []
    position: dict[int, int] = {}
    threads = {cpu: core for core in machine.core_cpus.values() for cpu in iter_bits(core)}
    for numa, cpus in machine.numa_cpus.items():
        cores = [core for core in machine.core_cpus.values() if core & cpus]
        size = -(-len(cores) // caches_per_numa)
        for start in range(0, len(cores), size):
            members = sum(cores[start : start + size])
            position |= dict.fromkeys(iter_bits(members), len(caches))
            caches.append((3, numa * caches_per_numa + start // size, format_list(members)))
    nodes = [
        ReportedNriNode(
            id=node.id,
            cpus=format_list(machine.numa_cpus.get(node.id, 0)),
            memory=node.memory_bytes,
            has_memory=True,
            has_normal_memory=True,
            is_online=True,
            distances=(*node.distances, *([28] if cxl_gib else [])),
        )
        for node in machine.numa_nodes
    ]
    if cxl_gib:
        to_cxl = (17, *[28] * (len(nodes) - 1), 10)
        nodes = [
            *(ReportedNriNode(**{**asdict(n), "distances": (*n.distances[:-1], to_cxl[n.id])}) for n in nodes),
            ReportedNriNode(
                id=len(nodes), cpus="", memory=cxl_gib << 30, has_memory=True, has_normal_memory=True, is_online=True,
                distances=to_cxl,
            ),
        ]  # fmt: skip
    return ReportedNriMachine(
        cpus=tuple(
            (c.cpu, c.socket, 0, 0, c.numa, format_list(threads[c.cpu]), 0, "", (position[c.cpu],))
            for c in machine.cpus
        ),
        caches=tuple(caches),
        nodes=tuple(nodes),
        present=format_list(machine.all_cpus),
        isolated="",
        performance=None,
        efficient=None,
        memory_total=sum(node.memory for node in nodes),
    )
