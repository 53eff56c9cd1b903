"""Capacity of a cluster for common pods: seconds of processor time on one core.

Nodes of 128 CPUs, 2 NUMA nodes and 256 GiB, half full, in 300 distinct states or in a state of their own each.
Everything is measured from the parsed question to the rendered reply; the sharing of what follows from equal states
begins anew with each question.
"""

import itertools
import time
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from extender.cluster.node_class import ClassTable
from extender.questions.asked import Asked, QuestionKind
from extender.questions.capacity import Capacity, counted
from extender.questions.node_context import NodeContext, Subject
from extender.replay.possible_states import PossibleStates
from extender.samples.machines import GPU
from extender.samples.nodes import SampleNode
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.node_totals import node_allocatable
from extender.scheduling.ranking.strategies import Weights, make_strategy
from extender.wire.workloads import workload_from_json
from tests.bench.states import own_states, shared_states
from tests.reports import pod_of

CLUSTERS = (1000, 5000)
PODS = {
    "4 CPUs, 8Gi": [pod_of(4, "8Gi")],
    "8 CPUs, 16Gi": [pod_of(8, "16Gi")],
    "24 CPUs, 64Gi": [pod_of(24, "64Gi")],
    "2 CPUs, 2Gi": [pod_of(2, "2Gi")],
    "mix: 8 CPUs, 1 CPU": [pod_of(8, "16Gi"), pod_of(1, "1Gi", name="q")],
    "8 CPUs, 1 GPU that no node has": [pod_of(8, "16Gi", devices={GPU: 1})],
}


def run(console: Console) -> None:
    """Measure and print."""
    states = shared_states()
    table = Table(title="Capacity, one core")
    columns = [f"{nodes:,} nodes" for nodes in CLUSTERS] + [f"{CLUSTERS[-1]:,} nodes, own states"]
    for column in ("pods", *columns, "replays", "copies"):
        table.add_column(column, justify="left" if column == "pods" else "right")
    clusters = [subjects_of(states, nodes) for nodes in CLUSTERS]
    clusters.append(subjects_of(list(itertools.islice(own_states(), CLUSTERS[-1])), CLUSTERS[-1]))
    for name, pods in PODS.items():
        measured = [_measure(subjects, pods) for subjects in clusters]
        copies, replays = measured[-1][1:]
        table.add_row(name, *(f"{seconds:.2f} s" for seconds, _, _ in measured), f"{replays:,}", f"{copies:,}")
    console.print(table)


def subjects_of(states: Sequence[SampleNode], nodes: int) -> list[Subject]:
    """So many nodes, which have these states in turns."""
    classes = ClassTable()
    subjects = []
    for number in range(nodes):
        node = states[number % len(states)]
        node_class = classes.hold(node.kubelet, PossibleStates((node.state,)), frozenset(), stale=False)
        around = NodeContext(allocatable_milli=node_allocatable(node.kubelet, node.state.devices))
        subjects.append(Subject(name=f"node-{number:04}", node_class=node_class, states=(node.state,), around=around))
    return subjects


def _measure(subjects: Sequence[Subject], pods: Sequence[object]) -> tuple[float, int, int]:
    """Seconds, copies, replays."""
    judge = BoundedJudge(make_strategy("least-numa", Weights.parse("")), UncertaintyPolicy())
    started = time.process_time()
    capacity = Capacity([workload_from_json(pod) for pod in pods], judge, 1000)
    reply = [
        msgspec.json.encode(document) for document in counted(capacity, subjects, Asked(kind=QuestionKind.CAPACITY))
    ]
    seconds = time.process_time() - started
    assert reply
    copies = sum(capacity.of(subject).copies for subject in subjects)
    return seconds, copies, capacity.replays


if __name__ == "__main__":
    run(Console(width=110))
