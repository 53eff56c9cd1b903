"""Filter's work for a new pod shape where every node is in a state of its own: coarse replay against full replay.

    python -m tests.bench distinct_states

1,000 and 5,000 nodes of four machine types. Each node is filled with random pods until three in a row do not fit, and
then some pods leave. 20 pod shapes are judged on every node by the coarse replay, and on a sample of the nodes by the
full replay too, in turns in one process; every pair of answers is compared. The table shows:

- `answered`: nodes that the coarse replay decides. The others need the full replay.
- `distinct answers`: different answers of the coarse replay to one pod shape, of all nodes of the type.
- `coarse / full`: time of a coarse replay as a part of the time of a full one.
- `work / today`: time for all nodes of the type, with full replays where ids decide, as a part of full replays of all.
- `amounts / full`: the work at each change of a node's state.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from extender.replay.admission import admit, release_pods
from extender.replay.coarse.admission import CoarseReplay
from extender.replay.coarse.amounts import FreeAmounts
from extender.replay.coarse.layout import layout_of
from extender.replay.coarse.verdict import CoarseAdmitted, CoarseVerdict
from extender.replay.kubelet import Kubelet
from extender.replay.pod import PodRequest, resolve
from extender.replay.startup import initial_state, start
from extender.replay.state import ManagerState
from extender.replay.verdict import Admitted
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import devices_from_json, kubelet_config_from_json, machine_from_json
from tests.replay.coarse_law import differences

Json = dict[str, Any]
NODES = (1000, 5000)
SHAPES = 20
SAMPLE = 100
"""Nodes of each type that the full replay judges as well, for every pod shape."""
GIB = 1 << 30
GPU, NIC = "vendor.example/gpu", "vendor.example/nic"


@dataclass(frozen=True)
class Type:
    """A machine type and its configuration."""

    name: str
    numa_nodes: int
    cores_per_node: int
    policy: str
    scope: str = "container"
    cpu_options: tuple[str, ...] = ()
    topology_options: tuple[str, ...] = ()
    gpus: int = 0
    page_size: str | None = None


TYPES = (
    Type("2 NUMA nodes, restricted", 2, 32, "restricted", page_size="1Gi"),
    Type("2 NUMA nodes, 8 GPUs, single-numa-node, pod", 2, 32, "single-numa-node", scope="pod", gpus=8),
    Type(
        "4 NUMA nodes, 4 GPUs, restricted, closest",
        4,
        16,
        "restricted",
        topology_options=("prefer-closest-numa-nodes",),
        gpus=4,
    ),
    Type("8 NUMA nodes, best-effort, full cores", 8, 16, "best-effort", cpu_options=("full-pcpus-only",)),
)


@dataclass
class Tally:
    """What was counted and measured of one type; times in seconds of this thread."""

    asked: int = 0
    unanswered: int = 0
    admitted: int = 0
    distinct: int = 0
    coarse_seconds: float = 0.0
    sampled: int = 0
    full_seconds: float = 0.0
    states: int = 0
    amounts_seconds: float = 0.0
    faults: list[object] = field(default_factory=list)


def run(console: Console) -> None:
    """Measure and print."""
    for nodes in NODES:
        table = Table(title=f"distinct states: {nodes} nodes, {SHAPES} new pod shapes")
        for column in ("machine type", "admitted", "answered", "distinct answers", "coarse / full", "work / today"):
            table.add_column(column, justify="right" if column != "machine type" else "left")
        table.add_column("amounts / full", justify="right")
        for kind in TYPES:
            tally = measure(kind, nodes // len(TYPES), console)
            assert not tally.faults, tally.faults[0]
            table.add_row(kind.name, *_row(tally))
        console.print(table)


def _row(tally: Tally) -> Iterator[str]:
    full = tally.full_seconds / tally.sampled
    coarse = tally.coarse_seconds / tally.asked
    yield f"{100 * tally.admitted / tally.asked:.0f} %"
    yield f"{100 - 100 * tally.unanswered / tally.asked:.1f} %"
    yield f"{tally.distinct / SHAPES:.0f}"
    yield f"1/{full / coarse:.0f}"
    yield f"1/{full / (coarse + full * tally.unanswered / tally.asked):.0f}"
    yield f"{tally.amounts_seconds / tally.states / full:.2f}"


def measure(kind: Type, nodes: int, console: Console) -> Tally:
    """Judge all shapes on nodes of one type."""
    random, tally = Random(kind.name), Tally()
    states = list(track(distinct_nodes(kind, nodes), kind.name, nodes, console=console, transient=True))
    layout = layout_of(states[0][0])
    began = time.thread_time()
    amounts = [FreeAmounts.of(kubelet, layout, state) for kubelet, state in states]
    tally.amounts_seconds, tally.states = time.thread_time() - began, len(states)
    rules = states[0][0].rules
    for number in range(SHAPES):
        request = resolve(pod_from_json(random_pod(kind, f"new-{number}", random)), rules)
        replay = CoarseReplay(request)
        began = time.thread_time()
        answers = [replay.admit(each) for each in amounts]
        tally.coarse_seconds += time.thread_time() - began
        tally.asked += len(answers)
        tally.unanswered += answers.count(None)
        tally.admitted += sum(isinstance(each, CoarseAdmitted) for each in answers)
        tally.distinct += len({_answer(each) for each in answers})
        for index in random.sample(range(nodes), min(nodes, SAMPLE)):
            _compare(tally, states[index], request, answers[index])
    return tally


def _compare(
    tally: Tally, node: tuple[Kubelet, ManagerState], request: PodRequest, answer: CoarseVerdict | None
) -> None:
    kubelet, state = node
    began = time.thread_time()
    full = admit(kubelet, state, request)
    tally.full_seconds += time.thread_time() - began
    tally.sampled += 1
    if answer is not None and (found := differences(answer, kubelet, state, full)):
        tally.faults.append(found)


def _answer(verdict: CoarseVerdict | None) -> object:
    return tuple(verdict.placements.items()) if isinstance(verdict, CoarseAdmitted) else verdict


def distinct_nodes(kind: Type, count: int) -> Iterator[tuple[Kubelet, ManagerState]]:
    """Nodes of a type, each in another state."""
    seen: set[object] = set()
    random = Random(kind.name)
    kubelet = _kubelet(kind)
    while len(seen) < count:
        state = _filled(kind, kubelet, random)
        if state.key not in seen:
            seen.add(state.key)
            yield kubelet, state


def _filled(kind: Type, kubelet: Kubelet, random: Random) -> ManagerState:
    """Random pods until three in a row do not fit; then every fifth leaves."""
    gpus = [{"id": f"gpu-{i}", "numa": [i * kind.numa_nodes // kind.gpus]} for i in range(kind.gpus)]
    nics = [{"id": f"nic-{i}", "numa": [i * kind.numa_nodes // kind.gpus]} for i in range(kind.gpus)]
    state = initial_state(kubelet, devices_from_json({GPU: gpus, NIC: nics} if kind.gpus else {}))
    refused = number = 0
    while refused < 3:
        number += 1
        outcome = admit(
            kubelet,
            state,
            resolve(pod_from_json(random_pod(kind, f"pod-{number}", random)), kubelet.rules),
            max_replays=1,
        )
        refused = 0 if isinstance(outcome.verdict, Admitted) else refused + 1
        state = outcome.state
    return release_pods(state, [uid for uid in sorted(state.pod_uids) if random.random() < 0.2])


def random_pod(kind: Type, name: str, random: Random) -> Json:
    """One or two containers, now and then a sidecar or an init container; a few CPUs, and GPUs where there are any."""
    containers = [_container(kind, "app", random)]
    inits: list[Json] = []
    extra = random.random()
    if extra < 0.15:
        inits.append({**_plain("proxy", "1", "1Gi"), "restartPolicy": "Always"})
    elif extra < 0.3:
        inits.append(_plain("init", "500m", "2Gi"))
    elif extra < 0.4:
        containers.append(_plain("logs", "1", "1Gi"))
    spec = {"containers": containers, "initContainers": inits}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}


def _container(kind: Type, name: str, random: Random) -> Json:
    cpus = random.choice((2, 2, 4, 4, 4, 6, 8, 8, 12, 16, 24))
    container = _plain(name, str(cpus), f"{cpus * random.choice((1, 2, 2, 4))}Gi")
    amounts = container["resources"]["limits"]
    if kind.page_size and random.random() < 0.2:
        amounts[f"hugepages-{kind.page_size}"] = f"{random.choice((1, 2, 4))}Gi"
    if kind.gpus and random.random() < 0.5:
        amounts[GPU] = str(random.choice((1, 1, 1, 2, 4)))
        if random.random() < 0.4:
            amounts[NIC] = "1"
    return container


def _plain(name: str, cpu: str, memory: str) -> Json:
    amounts = {"cpu": cpu, "memory": memory}
    return {"name": name, "resources": {"requests": amounts, "limits": amounts}}


def _kubelet(kind: Type) -> Kubelet:
    cores = kind.numa_nodes * kind.cores_per_node
    cpus = [[c + t * cores, c, 2 * c // cores, c // kind.cores_per_node, c // 8] for c in range(cores) for t in (0, 1)]
    ids = range(kind.numa_nodes)
    half = max(1, kind.numa_nodes // 2)
    numa = [
        {
            "id": i,
            "memory": 256 * GIB // kind.numa_nodes * 2,
            "hugepages": {kind.page_size: 16} if kind.page_size else {},
            "distances": [10 if i == j else 12 if i // half == j // half else 32 for j in ids],
        }
        for i in ids
    ]
    document = {
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": dict.fromkeys(kind.cpu_options, "true"),
        "memoryManagerPolicy": "Static",
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
        "topologyManagerPolicy": kind.policy,
        "topologyManagerScope": kind.scope,
        "topologyManagerPolicyOptions": dict.fromkeys(kind.topology_options, "true"),
        "reservation": {"cpu": "2", "memory": "1Gi"},
    }
    return start(machine_from_json({"cpus": cpus, "numa": numa}), kubelet_config_from_json("1.36", document))
