"""States of nodes for the benchmarks: some that many nodes share, or one of its own for each node."""

import itertools
import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import iter_bits
from extender.kubelet.verdict import Rejected
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode, Workload
from extender.wire.pods import pod_from_json
from tests.reports import pod_of, report_of, sample

SHARED_STATES = 300
HARDWARE = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=32, threads=2, memory_gib=256, distances=(10, 21))
"""Usual dual-socket servers: 128 CPUs, 2 NUMA nodes."""
_NODES_A_START = 200
"""Distinct states that follow one after another from one start."""


def full_report_of(node: SampleNode, **fields: Any) -> dict[str, Any]:
    """As `report_of`, with what podresources lists of each container, and the amounts of each NUMA node."""
    report = report_of(node, **fields)
    cpu, memory = node.state.cpu, node.state.memory
    for pod in report["pods"]:
        blocks = memory.entries.get(pod["uid"], {})
        pod["containers"] = [
            {
                "name": name,
                "cpus": list(iter_bits(cpus)),
                "memory": [
                    {"type": b.type, "size": b.size, "numa": list(iter_bits(b.mask))} for b in blocks.get(name, ())
                ],
                "devices": {},
            }
            for name, cpus in cpu.entries.get(pod["uid"], {}).items()
        ]
    machine = node.kubelet.machine
    report["zones"] = [
        {
            "name": f"node-{numa.id}",
            "type": "Node",
            "numa": [numa.id],
            "costs": {f"node-{other}": distance for other, distance in enumerate(numa.distances)},
            "resources": {
                "cpu": _amount(64, (machine.numa_cpus[numa.id] & cpu.default).bit_count()),
                "memory": _amount(numa.memory_bytes, held.amounts[0][1].free),
            },
        }
        for numa, held in zip(machine.numa_nodes, memory.nodes, strict=True)
    ]
    return report


def _amount(capacity: int, free: int) -> dict[str, int]:
    return {"capacity": capacity, "allocatable": capacity, "free": free}


def shared_states() -> list[SampleNode]:
    """Nodes of one shape, each with other pods: 300 states that answer differently."""
    return list(itertools.islice(_distinct(map(_start, itertools.count())), SHARED_STATES))


def own_states() -> Iterator[SampleNode]:
    """As many nodes of that shape as are taken, each in a state of its own: pods leave and others come."""
    return _distinct(itertools.chain.from_iterable(map(_story, itertools.count())))


def _distinct(nodes: Iterator[SampleNode]) -> Iterator[SampleNode]:
    seen: set[int] = set()
    for node in nodes:
        key = hash(node.state.key)
        if key not in seen:
            seen.add(key)
            yield node


def admitted(node: SampleNode, pod: Mapping[str, Any]) -> SampleNode | Rejected:
    """The node once the replay has admitted the pod and its containers run, or the refusal.

    The naive kubelet would take as long as the benchmark.
    """
    request = resolve(pod_from_json(pod), node.kubelet.rules)
    outcome = admit(node.kubelet, node.state, request)
    if isinstance(outcome.verdict, Rejected):
        return outcome.verdict
    return replace(node, state=start_pod(outcome.state, request), pods=(*node.pods, pod))


def ended(node: SampleNode, uid: str) -> SampleNode:
    """The node once the pod is gone."""
    left = tuple(pod for pod in node.pods if pod["metadata"]["uid"] != uid)
    return replace(node, state=release_pods(node.state, (uid,)), pods=left)


def _start(seed: int) -> SampleNode:
    dice = random.Random(seed)
    workloads = [
        Workload(name=f"w{i}", resources={"cpu": dice.randint(1, 10), "memory": f"{dice.randint(1, 16)}Gi"})
        for i in range(dice.randint(1, 16))
    ]
    return sample(hardware=HARDWARE, workloads=workloads)


def _story(seed: int) -> Iterator[SampleNode]:
    dice, node = random.Random(seed), _start(seed)
    for step in range(_NODES_A_START):
        yield node
        if node.pods and dice.random() < 0.6:
            node = ended(node, dice.choice(node.pods)["metadata"]["uid"])
        pod = pod_of(dice.randint(1, 10), f"{dice.randint(1, 16)}Gi", name=f"s{seed}-{step}")
        after = admitted(node, pod)
        node = node if isinstance(after, Rejected) else after
