"""State files over an upgrade from 1.36 to 1.37 and back, with the gate PodLevelResourceManagers on and off.

Each case goes through the exporter, the report and the replay: first with the file as the old kubelet left it, then as
the new one writes it when it starts. The two kubelets are restated here, from the facts about their files.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.kubelet.admission import admit
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import format_list
from extender.kubelet.verdict import Admitted
from extender.wire.pods import pod_from_json
from extender.wire.reports import ReadReport, read_report
from node_exporter.checkpoints import fnv32a, parse_files, read_files
from tests.reports import pod_of

Json = dict[str, Any]
GIB = 1 << 30
KUBELETS = tuple(product(("v1.36.2", "v1.37.0"), (False, True)))
"""Version, and whether the gate is on."""
CASES = [(old, new) for old, new in product(KUBELETS, KUBELETS) if old[0] != new[0]]

CPU: Json = {
    "policyName": "static",
    "defaultCpuSet": "0-1,4-7",
    "entries": {"uid-held": {"app": "2-3"}},
    "podEntries": {"uid-held": {"cpuSet": "2-3"}},
}
BLOCK = {"numaAffinity": [0], "type": "memory", "size": GIB}
MEMORY: Json = {
    "policyName": "Static",
    "machineState": {
        str(numa): {
            "numberOfAssignments": 1 - numa,
            "memoryMap": {
                "memory": {
                    "total": 8 * GIB,
                    "systemReserved": GIB,
                    "allocatable": 7 * GIB,
                    "reserved": (1 - numa) * GIB,
                    "free": (6 + numa) * GIB,
                }
            },
            "cells": [numa],
        }
        for numa in (0, 1)
    },
    "entries": {"uid-held": {"app": [BLOCK]}},
    "podEntries": {"uid-held": {"memoryBlocks": [BLOCK]}},
}


def _written(kubelet: tuple[str, bool], content: Json) -> Json:
    """The file of a kubelet: 1.36 has one copy, 1.37 a second one that alone has the pods' own entries.

    A checksum of 0 is accepted in the first copy.
    """
    version, gate = kubelet
    without = {name: value for name, value in content.items() if name != "podEntries"}
    whole = content if gate else without
    if version == "v1.36.2":
        return {**whole, "checksum": 0}
    data = json.dumps(whole)
    return {**without, "checksum": 0, "data": data, "dataChecksum": fnv32a(b"(string)" + data.encode())}


def _restored(kubelet: tuple[str, bool], document: Json) -> Json:
    """What a kubelet has in memory after its start with a file of the other version."""
    version, gate = kubelet
    content = {name: value for name, value in document.items() if name not in ("checksum", "data", "dataChecksum")}
    if version == "v1.37.0" and "data" in document:
        content = json.loads(document["data"])
    return content if gate else {name: value for name, value in content.items() if name != "podEntries"}


def _read(tmp_path: Path, kubelet: tuple[str, bool], cpu: Json, memory: Json) -> ReadReport:
    """The report of a node with these state files, as the extender reads it."""
    (tmp_path / "cpu_manager_state").write_text(json.dumps(cpu))
    (tmp_path / "memory_manager_state").write_text(json.dumps(memory))
    state, problems = parse_files(read_files(tmp_path))
    assert [p for p in problems if "manager_state" in p.path] == []
    return read_report(
        orjson.dumps(
            {
                "schema_version": 1,
                "node_name": "n",
                "boot_id": "b",
                "sequence": 1,
                "observed_at": 0.0,
                "kubelet_version": kubelet[0],
                "machine": {
                    "cpus": [[cpu, cpu, cpu // 4, cpu // 4, None] for cpu in range(8)],
                    "numa": [{"id": n, "memory": 8 * GIB, "hugepages": {}, "distances": [10, 20]} for n in (0, 1)],
                    "num_sockets": 2,
                },
                "kubelet": {
                    "cpuManagerPolicy": "static",
                    "memoryManagerPolicy": "Static",
                    "topologyManagerPolicy": "single-numa-node",
                    "topologyManagerScope": "pod",
                    "reservedSystemCPUs": "0,4",
                    "reservedMemory": [{"numaNode": n, "limits": {"memory": "1Gi"}} for n in (0, 1)],
                    "reservation": {"cpu": "2", "memory": "2Gi"},
                    "featureGates": {"PodLevelResourceManagers": kubelet[1]},
                },
                "devices": {},
                "state": {
                    "cpu_manager_state": state.cpu_manager_state,
                    "memory_manager_state": state.memory_manager_state,
                },
                "pods": [],
                "zones": [],
                "problems": [],
            }
        )
    )


def test_these_are_the_eight_cases() -> None:
    assert len(set(CASES)) == 8


@pytest.mark.parametrize(
    ("old", "new"), CASES, ids=lambda kubelet: f"{kubelet[0][1:5]}-{'on' if kubelet[1] else 'off'}"
)
def test_a_file_survives_the_change_of_the_kubelet(
    old: tuple[str, bool], new: tuple[str, bool], tmp_path: Path
) -> None:
    files = [_written(old, content) for content in (CPU, MEMORY)]
    rewritten = [_written(new, _restored(new, file)) for file in files]
    keeps_pod_entries = old[1] and new[1] and new[0] == "v1.37.0"

    for cpu, memory in (files, rewritten):
        report = _read(tmp_path, new, cpu, memory)
        assert (report.problems, report.hidden) == ([], frozenset())
        assert report.kubelet is not None
        assert report.state is not None
        assert report.state.cpu.entries == {"uid-held": {"app": 0b1100}}
        assert format_list(report.state.cpu.default) == "0-1,4-7"
        assert {uid: list(held) for uid, held in report.state.memory.entries.items()} == {"uid-held": ["app"]}
        verdict = admit(
            report.kubelet, report.state, resolve(pod_from_json(pod_of(2, "1Gi")), report.kubelet.rules)
        ).verdict
        assert isinstance(verdict, Admitted)
        assert format_list(verdict.placements["app"].cpus) == "5-6"

    assert report.state is not None
    assert bool(report.state.cpu.pod_entries) is keeps_pod_entries
    assert bool(report.state.memory.pod_entries) is keeps_pod_entries


def test_without_the_gate_a_bubble_that_no_container_names_is_a_contradiction(tmp_path: Path) -> None:
    """A kubelet does not start there: CPU 3 is in no set once the pods' own entries are dropped."""
    bubble = {**CPU, "entries": {"uid-held": {"app": "2"}}}
    kept = _written(("v1.37.0", True), bubble)
    dropped = _written(("v1.36.2", False), _restored(("v1.36.2", False), kept))

    assert _read(tmp_path, ("v1.37.0", True), kept, _written(("v1.37.0", True), MEMORY)).state is not None
    read = _read(tmp_path, ("v1.36.2", False), dropped, _written(("v1.36.2", False), MEMORY))
    assert read.contradictory
    assert any("CPUs 3 are neither in it nor in any entry" in problem.reason for problem in read.problems)
