"""The preempt verb without HTTP: 100 nodes in different states; and the strategies on 300.

CPU time, so that others on the machine count less. `kept`: the victims suffice. `few`, `many`: nobody is proposed, with
at most 8 and with 30 to 59 pods that may go. `hopeless`: two of three pods may not go.
"""

import random
import statistics
import time
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from extender.cluster.node_class import ClassTable
from extender.features.preemption.plan import MAX_REPLAYS, CandidateNode, Plan, Preemptor, ReplayBudget, plan_preemption
from extender.replay.possible_states import PossibleStates
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode, Workload
from extender.scheduling.judge import BoundedJudge, judge_all
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.placement import least_numa
from extender.scheduling.ranking.strategies import STRATEGIES, Weights, make_strategy
from extender.scheduling.victims import NodePods, RunningPod
from extender.wire.pods import pod_from_json
from extender.wire.preemption import Proposal
from tests.reports import pod_of, sample

NODES, STATES = 100, 300
HARDWARE = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=32, threads=2, memory_gib=256, distances=(10, 21))
WANTED_CPUS = 48
Case = tuple[dict[str, CandidateNode], dict[str, Proposal]]


def run(console: Console) -> None:
    """Measure and print."""
    table = Table(title=f"preempt, {NODES} nodes of 128 CPUs, {WANTED_CPUS} wanted")
    for heading in ("case", "ms", "replays", "ms a replay", "nodes answered", "victims added"):
        table.add_column(heading, justify="left" if heading == "case" else "right")
    few, many = _sites(range(6, 9)), _sites(range(30, 60))
    hopeless = {name: _protected(node) for name, node in many.items()}
    for name, case in {
        "kept": (few, {name: Proposal(victims=tuple(_uids(node))) for name, node in few.items()}),
        "few": (few, dict.fromkeys(few, Proposal(victims=()))),
        "many": (many, dict.fromkeys(many, Proposal(victims=()))),
        "hopeless": (hopeless, dict.fromkeys(many, Proposal(victims=()))),
    }.items():
        table.add_row(name, *_measured(case))
    console.print(table)
    console.print(_strategies())


def _node(seed: int, pods: range) -> SampleNode:
    """A node as full as can be with so many pods."""
    random_ = random.Random(seed)
    count = random_.choice(pods)
    cpus = [120 // count + random_.choice((0, 0, -1)) for _ in range(count)]
    return sample(
        f"n{seed}",
        hardware=HARDWARE,
        topologyManagerPolicy="best-effort",
        workloads=[
            Workload(name=f"w{i}", resources={"cpu": max(1, cpu), "memory": f"{random_.randint(1, 3)}Gi"})
            for i, cpu in enumerate(cpus)
        ],
    )


def _sites(pods: range) -> dict[str, CandidateNode]:
    table = ClassTable()
    candidates = {}
    for seed in range(NODES):
        node = _node(seed, pods)
        config = replace(node.kubelet, policy=type(node.kubelet.policy)("single-numa-node"))
        running = {p["metadata"]["uid"]: RunningPod(uid=p["metadata"]["uid"], priority=0) for p in node.pods}
        held = table.hold(config, PossibleStates((node.state,)), frozenset(), stale=False)
        candidates[node.name] = CandidateNode(node_class=held, states=(node.state,), pods=NodePods(pods=running))
    return candidates


def _uids(node: CandidateNode) -> list[str]:
    return [] if node.pods is None else list(node.pods.pods)


def _protected(node: CandidateNode) -> CandidateNode:
    """Every third pod may not go: there is no room for the preemptor between them."""
    pods = {uid: RunningPod(uid=uid, priority=100 if i % 3 else 0) for i, uid in enumerate(_uids(node))}
    return replace(node, pods=NodePods(pods=pods))


def _measured(case: Case) -> list[str]:
    candidates, proposals = case
    shape = PodShape(pod_from_json(pod_of(WANTED_CPUS, "8Gi")))
    budget = ReplayBudget(BoundedJudge(least_numa, UncertaintyPolicy()), shape)
    started = time.process_time()
    answers = plan_preemption(Preemptor(shape=shape, priority=10), proposals, candidates, budget)
    millis = (time.process_time() - started) * 1000
    plans = [answer for answer in answers.values() if isinstance(answer, Plan)]
    spent = MAX_REPLAYS - budget.left
    added = f"{statistics.mean(plan.added for plan in plans):.1f}" if plans else "-"
    return [f"{millis:.0f}", str(spent), f"{millis / spent:.2f}", str(len(plans)), added]


def _strategies() -> Table:
    """A new pod shape over so many states, with each strategy."""
    table = Table(title=f"a new pod shape over {STATES} states")
    table.add_column("strategy")
    table.add_column("ms", justify="right")
    classes = ClassTable()
    held = []
    for seed in range(STATES):
        node = _node(seed, range(1, 16))
        held.append(classes.hold(node.kubelet, PossibleStates((node.state,)), frozenset(), stale=False))
    for name in STRATEGIES:
        judge = BoundedJudge(make_strategy(name, Weights({})), UncertaintyPolicy())
        times = []
        for cpus in range(2, 12):
            shape = PodShape(pod_from_json(pod_of(cpus, "4Gi")))
            started = time.process_time()
            judge_all(judge, shape, held)
            times.append((time.process_time() - started) * 1000)
        table.add_row(name, f"{statistics.median(times):.1f}")
    return table
