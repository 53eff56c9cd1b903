"""Reports drawn from all that the wire takes, replayed with random pods by the real program while a scheduler waits.

A round: some nodes send reports that no good exporter would, then filter calls with new pod shapes name them beside
honest nodes. The honest ones must be offered as if they were alone, in time, whatever the others reported.
"""

import json
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import orjson

from extender.kubelet.admission import admit
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Admitted, Certainty
from extender.samples.nodes import SampleNode
from extender.wire.pods import pod_from_json
from tests.faults.hostile_inputs import bend_value
from tests.faults.parts import Extender
from tests.reports import args_of, report_of, sample
from tests.waiting import PATIENCE_SECONDS, until

JSON = Any
MIB: Final = 1 << 20
GIB: Final = 1 << 30
NIC: Final = "vendor.example/nic"
GPU: Final = "vendor.example/gpu"
HONEST: Final = (
    sample("honest-single"),
    sample("honest-best", topologyManagerPolicy="best-effort", devices={GPU: [0, 1]}),
    sample("honest-none", cpuManagerPolicy="none", memoryManagerPolicy="None", topologyManagerPolicy="none"),
)
HOSTILE_NAMES: Final = tuple(f"hostile-{number}" for number in range(8))
UNJUDGED: Final = 'numa_extender_unjudged_total{trouble="%s"}'
VERSIONS: Final = (*(f"v1.{minor}.2" for minor in range(27, 38)), *("v1.36.2",) * 10)
CPU_OPTIONS: Final = (
    (), ("full-pcpus-only",), ("distribute-cpus-across-numa",), ("distribute-cpus-across-numa", "full-pcpus-only"),
    ("distribute-cpus-across-numa",), ("align-by-socket",), ("distribute-cpus-across-cores",),
    ("strict-cpu-reservation", "distribute-cpus-across-numa"), ("prefer-align-cpus-by-uncorecache",),
    ("full-pcpus-only", "strict-cpu-reservation"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What the program is held to; going beyond is a fault. `calls`: for one pod, until honest nodes are offered."""

    calls: int = 1
    call_seconds: float = 1.7
    report_seconds: float = 1.5
    alive_seconds: float = 0.5
    rss_bytes: int = 700 * MIB


@dataclass
class Story:
    """What came of a drill. `wrong`: each fault in words; none is good."""

    reports: int = 0
    taken: int = 0
    replayable: int = 0
    calls: int = 0
    slowest_call: float = 0.0
    slowest_report: float = 0.0
    slowest_alive: float = 0.0
    rss_bytes: int = 0
    unjudged: float = 0.0
    wrong: list[str] = field(default_factory=list)


def play(directory: Path, *, seed: int, rounds: int, bounds: Bounds | None = None, **settings: object) -> Story:
    """The drill; *settings* are the extender's. The same seed draws the same reports and pods."""
    chance, story, bounds = random.Random(seed), Story(), bounds or Bounds()
    with (
        Extender(directory / "extender.log", **settings) as program,
        httpx.Client(timeout=PATIENCE_SECONDS, trust_env=False) as http,
    ):
        until(program.is_ready, "the extender")
        for number in range(rounds):
            _tell(
                program, http, [report_of(node, sequence=number + 1) for node in HONEST], story, bounds, is_honest=True
            )
            drawn = [draw_report(chance, name, number + 1) for name in chance.sample(HOSTILE_NAMES, 3)]
            _tell(program, http, drawn, story, bounds)
            for copy in range(3):
                _call(program, http, draw_pod(chance, f"{number}-{copy}"), story, bounds)
            _look(program, http, story, bounds)
        story.unjudged = program.metric(UNJUDGED % "steps") + program.metric(UNJUDGED % "time")
        if program.metric(UNJUDGED % "defect"):
            story.wrong.append(f"defects, see {program.log}")
    return story


def _tell(
    program: Extender,
    http: httpx.Client,
    reports: Iterable[JSON],
    story: Story,
    bounds: Bounds,
    *,
    is_honest: bool = False,
) -> None:
    for report in reports:
        name = report["node_name"] if isinstance(report, dict) else HOSTILE_NAMES[0]
        started = time.monotonic()
        reply = http.put(f"{program.url}/v1/nodes/{name}/report", content=json.dumps(report).encode())
        seconds = time.monotonic() - started
        story.slowest_report = max(story.slowest_report, seconds)
        if seconds > bounds.report_seconds:
            story.wrong.append(f"a report of {name} took {seconds:.2f} s")
        if reply.status_code >= 500 or (is_honest and reply.status_code != 200):
            story.wrong.append(f"a report of {name} was answered {reply.status_code}: {reply.text[:200]}")
        if not is_honest:
            story.reports += 1
            story.taken += reply.status_code == 200
            story.replayable += reply.status_code == 200 and reply.json()["certainty"] == "exact"


def _call(program: Extender, http: httpx.Client, pod: JSON, story: Story, bounds: Bounds) -> None:
    story.calls += 1
    wanted = {node.name for node in HONEST if takes(node, pod)}
    missing = wanted
    for _ in range(bounds.calls):
        missing = wanted - _offered(program, http, pod, story, bounds)
        if not missing:
            return
    what = orjson.dumps(pod["spec"]).decode()[:300]
    story.wrong.append(f"honest nodes not offered: {sorted(missing)} for {what}")


def _offered(program: Extender, http: httpx.Client, pod: JSON, story: Story, bounds: Bounds) -> set[str]:
    """The nodes that one call offers for the pod."""
    names = [*HOSTILE_NAMES, *(node.name for node in HONEST)]
    started = time.monotonic()
    reply = http.post(f"{program.url}/scheduler/filter", content=orjson.dumps(args_of(pod, *names)))
    seconds = time.monotonic() - started
    story.slowest_call = max(story.slowest_call, seconds)
    if seconds > bounds.call_seconds:
        story.wrong.append(f"a filter call took {seconds:.2f} s")
    answer = reply.json()
    if reply.status_code != 200 or (answer["Error"] and bounds.calls == 1):
        story.wrong.append(f"a filter call was answered {reply.status_code} {answer.get('Error')}")
    return set(answer["NodeNames"] or ())


def _look(program: Extender, http: httpx.Client, story: Story, bounds: Bounds) -> None:
    started = time.monotonic()
    is_alive = http.get(f"{program.url}/livez").status_code == 200
    seconds = time.monotonic() - started
    story.slowest_alive = max(story.slowest_alive, seconds)
    story.rss_bytes = max(story.rss_bytes, program.note_memory())
    if not is_alive or seconds > bounds.alive_seconds:
        story.wrong.append(f"/livez took {seconds:.2f} s")
    if story.rss_bytes > bounds.rss_bytes:
        story.wrong.append(f"{story.rss_bytes // MIB} MiB resident")


def takes(node: SampleNode, pod: JSON) -> bool:
    """Whether the node surely admits the pod, by the replay in this process."""
    request = resolve(pod_from_json(pod), node.kubelet.rules)
    verdict = admit(node.kubelet, node.state, request).verdict
    return isinstance(verdict, Admitted) and verdict.certainty is Certainty.EXACT


def draw_report(chance: random.Random, name: str, sequence: int) -> JSON:
    """A report that holds together and describes a node that need not exist; some are bent."""
    machine = _machine(chance)
    version, cpus = chance.choice(VERSIONS), [row[0] for row in machine["cpus"]]
    kubelet = _kubelet(chance, machine, version)
    holders = {f"uid-{n}": chance.sample(cpus, min(len(cpus) // 8, n + 1)) for n in range(chance.choice((0, 0, 3)))}
    held: set[int] = set()
    entries = {}
    for uid, wanted in holders.items():
        mine = set(wanted) - held - {cpus[0]}
        held |= mine
        if mine:
            entries[uid] = {"app": _list(mine)}
    state: JSON = {"kubelet_internal_checkpoint": {"Data": {"PodDeviceEntries": None}}}
    if kubelet["cpuManagerPolicy"] == "static":
        shared = set(cpus) - held
        if "strict-cpu-reservation" in kubelet["cpuManagerPolicyOptions"]:
            shared -= {cpus[0]}
        state["cpu_manager_state"] = {"policyName": "static", "defaultCpuSet": _list(shared), "entries": entries}
    if kubelet["memoryManagerPolicy"] == "Static":
        state["memory_manager_state"] = {"policyName": "Static", "machineState": _memory_state(machine, kubelet)}
    report = {
        "schema_version": 1, "node_name": name, "boot_id": "b", "sequence": sequence, "observed_at": 1.0,
        "kubelet_version": version, "machine": machine, "kubelet": kubelet,
        "devices": _devices(chance, [node["id"] for node in machine["numa"]]), "state": state,
        "pods": [], "zones": [], "problems": [],
    }  # fmt: skip
    if chance.random() < 0.25:
        for _ in range(chance.choice((1, 2))):
            bent = bend_value(report, chance)
            report = bent if isinstance(bent, dict) and bent.get("node_name") == name else report
    return report


def _machine(chance: random.Random) -> JSON:
    nodes = chance.choice((1, 2, 2, 3, 4, 8, 8, 12, 16, 16, 17, 20, 24, 28, 32, 48, 64))
    ids = list(range(nodes))
    if chance.random() < 0.2:
        ids = sorted(chance.sample(range(chance.choice((nodes + 3, 63, 200)) + nodes), nodes))
    threads, is_even = chance.choice((1, 1, 2, 4)), chance.random() < 0.5
    cores_even, cpu, rows = chance.choice((1, 1, 2, 4, 8, 16)), 0, []
    for position, numa in enumerate(ids):
        cores = cores_even if is_even else chance.randint(0 if position else 1, 2 * cores_even)
        for core in range(cores):
            socket = position * chance.choice((1, 2)) // nodes if chance.random() < 0.05 else position * 2 // nodes
            for _ in range(threads):
                rows.append([cpu, core, socket, numa, chance.choice((None, core // 4 + 100 * position))])
                cpu += 1
    return {
        "cpus": rows,
        "numa": [
            {
                "id": numa,
                "memory": chance.choice((0, 4 * GIB, 64 * GIB, 64 * GIB + position * 4096)),
                "hugepages": chance.choice(({}, {"2Mi": 64}, {"2Mi": 0, "1Gi": 2})),
                "distances": [10 if a == b else chance.choice((12, 20, 32)) for b, a in enumerate([position] * nodes)],
            }
            for position, numa in enumerate(ids)
        ],
        "num_sockets": chance.choice((0, 1, 2, 2, 4, nodes)),
    }


def _kubelet(chance: random.Random, machine: JSON, version: str) -> JSON:
    options = dict.fromkeys(chance.choice(CPU_OPTIONS), "true")
    is_static = chance.random() < 0.8
    topology = {"max-allowable-numa-nodes": "64"} if version > "v1.30" else {}
    if version > "v1.30" and chance.random() < 0.3:
        topology["prefer-closest-numa-nodes"] = "true"
    first = machine["numa"][0]
    has_memory = first["memory"] > 2 * GIB and chance.random() < 0.5
    return {
        "cpuManagerPolicy": "static" if is_static else "none",
        "cpuManagerPolicyOptions": options if is_static else {},
        "memoryManagerPolicy": "Static" if has_memory else "None",
        "reservedMemory": [{"numaNode": first["id"], "limits": {"memory": "1Gi"}}] if has_memory else [],
        "topologyManagerPolicy": chance.choice(
            ("none", "best-effort", "best-effort", "restricted", "single-numa-node")
        ),
        "topologyManagerScope": chance.choice(("container", "pod")),
        "topologyManagerPolicyOptions": topology,
        "featureGates": {"CPUManagerPolicyAlphaOptions": True, "TopologyManagerPolicyAlphaOptions": True},
        "reservedSystemCPUs": "0" if chance.random() < 0.9 else "",
        "reservation": {"cpu": chance.choice(("1", "1", "3500m")), "memory": "1Gi"},
    }


def _memory_state(machine: JSON, kubelet: JSON) -> JSON:
    state = {}
    sizes = {"2Mi": 2 << 20, "1Gi": 1 << 30}
    for node in machine["numa"]:
        kinds, pages = {}, 0
        for size, count in node["hugepages"].items():
            kinds[f"hugepages-{size}"] = _amounts(count * sizes[size], 0, count * sizes[size])
            pages += count * sizes[size]
        reserved = GIB if node["id"] == kubelet["reservedMemory"][0]["numaNode"] else 0
        kinds["memory"] = _amounts(node["memory"], reserved, (node["memory"] - reserved - pages) % (1 << 64))
        state[str(node["id"])] = {"numberOfAssignments": 0, "memoryMap": kinds, "cells": [node["id"]]}
    return state


def _amounts(total: int, reserved: int, free: int) -> JSON:
    return {"total": total, "systemReserved": reserved, "allocatable": free, "reserved": 0, "free": free}


def _devices(chance: random.Random, ids: list[int]) -> JSON:
    devices = {}
    for resource in (NIC, GPU):
        width = chance.choice((1, 1, 2, len(ids)))
        devices[resource] = [
            {
                "id": f"{resource}-{number}",
                "numa": None if chance.random() < 0.05 else chance.sample(ids, chance.randint(1, min(width, len(ids)))),
                "healthy": chance.random() < 0.95,
            }
            for number in range(chance.choice((0, 4, 16, 64, 300, 1500)))
        ]
    return devices


def draw_pod(chance: random.Random, name: str) -> JSON:
    """A pod of a shape that was not there before, nearly always."""

    def container(number: int, *, is_init: bool) -> JSON:
        amounts = {
            "cpu": chance.choice(("250m", "1", "2", "3", "4", "6", "8", "11", "16", "24", "40")),
            "memory": f"{chance.randint(16, 2000)}Mi",
        }
        if chance.random() < 0.1:
            amounts["hugepages-2Mi"] = "4Mi"
        for resource in (NIC, GPU):
            if chance.random() < 0.25:
                amounts[resource] = str(chance.choice((1, 1, 2, 5, 9)))
        always = {"restartPolicy": "Always"} if is_init and chance.random() < 0.3 else {}
        return {
            "name": f"{'i' if is_init else 'c'}{number}",
            "resources": {"limits": amounts, "requests": amounts},
            **always,
        }

    return {
        "metadata": {"name": f"pod-{name}", "namespace": "default", "uid": f"uid-pod-{name}"},
        "spec": {
            "initContainers": [container(i, is_init=True) for i in range(chance.choice((0, 0, 0, 1, 2)))],
            "containers": [container(i, is_init=False) for i in range(chance.choice((1, 1, 2, 4)))],
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }


def _list(ids: Iterable[int]) -> str:
    return ",".join(map(str, sorted(ids)))
