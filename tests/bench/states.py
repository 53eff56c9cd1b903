"""States of nodes for the benchmarks: some that many nodes share, or one of its own for each node."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

from extender.replay.admission import admit, release_pods, start_pod
from extender.replay.pod import resolve
from extender.replay.verdict import Admitted
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode, Workload
from extender.wire.pods import pod_from_json
from tests.reports import pod_of, sample

SHARED_STATES = 300
HARDWARE = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=32, threads=2, memory_gib=256, distances=(10, 21))
"""Usual dual-socket servers: 128 CPUs, 2 NUMA nodes."""
_NODES_A_START = 200
"""Distinct states that follow one after another from one start."""


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
            gone = dice.choice(node.pods)["metadata"]["uid"]
            left = tuple(pod for pod in node.pods if pod["metadata"]["uid"] != gone)
            node = replace(node, state=release_pods(node.state, [gone]), pods=left)
        pod = pod_of(dice.randint(1, 10), f"{dice.randint(1, 16)}Gi", name=f"s{seed}-{step}")
        request = resolve(pod_from_json(pod), node.kubelet.rules)
        outcome = admit(node.kubelet, node.state, request)
        if isinstance(outcome.verdict, Admitted):
            node = replace(node, state=start_pod(outcome.state, request), pods=(*node.pods, pod))
