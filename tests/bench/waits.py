"""How long pods wait, by strategy and size, in clusters where pods come and end: `python -m tests.bench.waits`.

    python -m tests.bench.waits [--kind GPU] [--load 0.85] [--seeds 4] [--pods 800]

Time is simulated; admissions are those of the replayed kubelet. The same pods come under every strategy. A pod that no
node takes waits until another one ends. kube-scheduler's own score (least allocated, balanced) counts with the weight
that the manifests give the extender. `kube-scheduler`: it alone places pods by the totals of nodes; what a kubelet then
refuses comes again after the back-off of a Job. `bound`: one node with one NUMA node has the resources of all, so that
nothing is fragmented; pods are placed by totals. `wait`: mean hours of the pods of the largest size, which a single
NUMA node just serves, with those of all pods behind it. `use`: how much of the scarcest resource is in use.
"""

import heapq
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.resolve import resolve
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Certainty
from extender.samples.machines import GPU, Hardware
from extender.samples.nodes import SampleNode
from extender.scheduling.judgement import Judgement
from extender.scheduling.ranking.placement import AdmissionOutcome, Strategy
from extender.scheduling.ranking.strategies import STRATEGIES, Weights, make_strategy
from extender.scheduling.scoring import score_nodes
from extender.wire.pods import pod_from_json
from tests.reports import pod_of, sample

BOUND: Final = "bound"
ALONE: Final = "kube-scheduler"
WEIGHT: Final = 50
"""Points of kube-scheduler for one point of the extender: `weight: 5` in the manifests."""
WARM_UP: Final = 4
"""One pod of so many comes before pods are counted: the cluster is empty at first."""
BACK_OFF_HOURS: Final = 10 / 3600
MAX_BACK_OFF_HOURS: Final = 0.1
JITTER: Final = 1.0
"""Sigma of the lognormal lengths: a tenth of the pods take half of the time."""


@dataclass(frozen=True)
class Size:
    """Pods of one size. `share`: how many of the pods that come are so. `hours`: how long they run in the mean."""

    cpus: int
    gib: int
    share: float
    hours: float
    gpus: int = 0
    hugepages_gib: int = 0

    @property
    def amounts(self) -> Mapping[str, int]:
        """What kube-scheduler counts."""
        found = {"cpu": self.cpus, "memory": self.gib, GPU: self.gpus, "hugepages-1Gi": self.hugepages_gib}
        return {name: amount for name, amount in found.items() if amount}

    def document(self, name: str) -> dict[str, Any]:
        """The pod."""
        amounts = {GPU: str(self.gpus), "hugepages-1Gi": f"{self.hugepages_gib}Gi"}
        pod = pod_of(self.cpus, f"{self.gib}Gi", name=name)
        for listed in pod["spec"]["containers"][0]["resources"].values():
            listed.update({each: amount for each, amount in amounts.items() if each in self.amounts})
        return pod


@dataclass(frozen=True)
class Kind:
    """A cluster and its pods. The last size is the largest."""

    nodes: int
    hardware: Hardware
    sizes: tuple[Size, ...]
    gpus: int = 0
    """On each NUMA node."""
    policy: str = "single-numa-node"
    """Of the Topology Manager."""


def _machine(numa: int, cores: int, gib: int, *, sockets: int = 2, threads: int = 1, pages: int = 0) -> Hardware:
    return Hardware(
        sockets=sockets,
        numa_per_socket=numa // sockets,
        cores_per_numa=cores,
        threads=threads,
        memory_gib=gib,
        hugepages_1gi=pages,
    )


KINDS: Final[Mapping[str, Kind]] = {
    "GPU training": Kind(
        8,
        _machine(2, 32, 256),
        (Size(7, 32, 0.5, 2, gpus=1), Size(14, 64, 0.3, 3, gpus=2), Size(28, 128, 0.2, 4, gpus=4)),
        gpus=4,
    ),
    "GPU training, best-effort": Kind(
        8,
        _machine(2, 32, 256),
        (Size(7, 32, 0.5, 2, gpus=1), Size(14, 64, 0.3, 3, gpus=2), Size(28, 128, 0.2, 4, gpus=4)),
        gpus=4,
        policy="best-effort",
    ),
    "GPU inference": Kind(
        12, _machine(4, 16, 128), (Size(6, 24, 0.8, 10, gpus=1), Size(12, 48, 0.2, 10, gpus=2)), gpus=2
    ),
    "telco": Kind(
        12,
        _machine(2, 24, 128, threads=2, pages=64),
        (
            Size(4, 2, 0.4, 12, hugepages_gib=4),
            Size(8, 4, 0.3, 12, hugepages_gib=8),
            Size(16, 8, 0.2, 24, hugepages_gib=16),
            Size(40, 16, 0.1, 24, hugepages_gib=32),
        ),
    ),
    "HPC": Kind(
        12, _machine(8, 16, 64), (Size(2, 4, 0.4, 1), Size(4, 8, 0.3, 2), Size(8, 16, 0.2, 4), Size(14, 48, 0.1, 6))
    ),
    "services": Kind(
        20, _machine(2, 16, 64), (Size(1, 2, 0.5, 6), Size(2, 4, 0.3, 6), Size(4, 8, 0.15, 6), Size(12, 24, 0.05, 6))
    ),
    "16 NUMA nodes": Kind(4, _machine(16, 8, 32), (Size(1, 4, 0.4, 2), Size(2, 8, 0.4, 2), Size(6, 24, 0.2, 4))),
}


@dataclass
class Node:
    """A node, and the admission of each size in its present state."""

    kubelet: Kubelet
    state: ManagerState
    free: dict[str, int]
    capacity: Mapping[str, int]
    known: dict[int, tuple[bool, int]] = field(default_factory=dict)

    def changed(self, state: ManagerState, amounts: Mapping[str, int], sign: int) -> None:
        """A pod has come (*sign* -1) or ended (1)."""
        self.state = state
        self.known.clear()
        for name, amount in amounts.items():
            self.free[name] += sign * amount

    def has_room(self, amounts: Mapping[str, int]) -> bool:
        """As kube-scheduler counts."""
        return all(self.free.get(name, 0) >= amount for name, amount in amounts.items())

    def score(self, amounts: Mapping[str, int]) -> float:
        """kube-scheduler's score, 0 to 200: least allocated and balanced over CPU and memory."""
        shares = [1 - (self.free[name] - amounts.get(name, 0)) / self.capacity[name] for name in ("cpu", "memory")]
        return 100 * (1 - statistics.mean(shares)) + 100 * (1 - statistics.pstdev(shares))


@dataclass
class Waits:
    """What one simulation saw. `hours`: of each pod that was counted, by size."""

    hours: list[list[float]]
    refused: int = 0
    split: int = 0
    use: float = 0.0


def coming(kind: Kind, load: float, count: int, seed: int) -> list[tuple[float, int, float]]:
    """When pods come, their sizes, and how long they run. *load*: of the scarcest resource."""
    chance = random.Random(seed)
    scarce, capacity = _scarce(kind)
    a_pod = sum(size.share * size.hours * size.amounts.get(scarce, 0) for size in kind.sizes)
    rate = load * capacity / a_pod
    now, pods = 0.0, []
    for _ in range(count):
        now += chance.expovariate(rate)
        (number,) = chance.choices(range(len(kind.sizes)), [size.share for size in kind.sizes])
        length = kind.sizes[number].hours * chance.lognormvariate(-(JITTER**2) / 2, JITTER)
        pods.append((now, number, length))
    return pods


def _scarce(kind: Kind) -> tuple[str, int]:
    """The resource that is used up first, and how much of it the cluster has."""
    node = _node(kind)
    shares = {
        name: sum(size.share * size.hours * size.amounts.get(name, 0) for size in kind.sizes) / amount
        for name, amount in node.capacity.items()
    }
    scarce = max(shares, key=shares.__getitem__)
    return scarce, kind.nodes * node.capacity[scarce]


def _sample(kind: Kind) -> SampleNode:
    per_numa = [numa for numa in kind.hardware.numa_ids for _ in range(kind.gpus)]
    return sample(
        "node",
        hardware=kind.hardware,
        devices={GPU: per_numa} if per_numa else {},
        topologyManagerPolicy=kind.policy,
        topologyManagerPolicyOptions={"max-allowable-numa-nodes": "16"},
    )


def _node(kind: Kind) -> Node:
    made, hardware = _sample(kind), kind.hardware
    pages = hardware.hugepages_1gi * len(hardware.numa_ids)
    capacity = {
        "cpu": hardware.cpus - 2,
        "memory": (hardware.memory_gib - 1 - hardware.hugepages_1gi) * len(hardware.numa_ids),
        GPU: kind.gpus * len(hardware.numa_ids),
        "hugepages-1Gi": pages,
    }
    capacity = {name: amount for name, amount in capacity.items() if amount}
    return Node(made.kubelet, made.state, dict(capacity), capacity)


class Simulation:
    """One cluster under one strategy; *strategy* None: kube-scheduler alone. *is_pooled*: see `bound`."""

    def __init__(self, kind: Kind, strategy: Strategy | None, seed: int, *, is_pooled: bool = False) -> None:
        self._kind, self._strategy, self._chance = kind, strategy, random.Random(seed)
        self._nodes = [_node(kind) for _ in range(kind.nodes)]
        self._is_pooled = is_pooled
        if is_pooled:
            pool = {name: amount * kind.nodes for name, amount in self._nodes[0].capacity.items()}
            self._nodes = [replace(self._nodes[0], free=dict(pool), capacity=pool)]
        self._shapes = [
            resolve(pod_from_json(size.document("shape")), self._nodes[0].kubelet.rules) for size in kind.sizes
        ]

    def run(self, pods: Sequence[tuple[float, int, float]]) -> Waits:
        """Let them come and end."""
        first, ends = len(pods) // WARM_UP, pods[-1][0]
        waits, used, before = Waits([[] for _ in self._kind.sizes]), 0.0, 0.0
        scarce, capacity = _scarce(self._kind)
        events = [(at, number, True) for number, (at, _, _) in enumerate(pods)]  # time, pod, whether it comes
        waiting: dict[int, int] = {}  # the pods, by arrival, with how often kubelets refused them
        refused: dict[int, int] = {}
        placed: dict[int, Node] = {}
        while events and events[0][0] <= ends:
            now, number, comes = heapq.heappop(events)
            used += (now - before) * (1 - sum(node.free[scarce] for node in self._nodes) / capacity)
            before = now
            if comes:
                waiting[number] = refused.pop(number, 0)
            else:
                node, size = placed.pop(number), self._kind.sizes[pods[number][1]]
                node.changed(release_pods(node.state, (str(number),)), size.amounts, 1)
            hopeless = set[int]()
            for each in [number] if comes else list(waiting):
                at, size_number, length = pods[each]
                found = None if size_number in hopeless else self._place(size_number)
                if found is None:
                    hopeless.add(size_number)
                    continue
                times = waiting.pop(each)
                if (split := self._bind(found, each, size_number)) is not None:
                    placed[each] = found
                    heapq.heappush(events, (now + length, each, False))
                    if each >= first:
                        waits.hours[size_number].append(now - at)
                        waits.split += split
                else:
                    waits.refused += 1
                    refused[each] = times + 1
                    heapq.heappush(events, (now + min(MAX_BACK_OFF_HOURS, BACK_OFF_HOURS * 2**times), each, True))
        for each in [*waiting, *refused]:
            if each >= first:
                waits.hours[pods[each][1]].append(ends - pods[each][0])
        waits.use = used / before
        return waits

    def _bind(self, node: Node, pod: int, size_number: int) -> bool | None:
        """Whether the pod is on several NUMA nodes of the node now; None: its kubelet refused the pod."""
        if self._is_pooled:
            node.changed(node.state, self._kind.sizes[size_number].amounts, -1)
            return False
        request = replace(self._shapes[size_number], uid=str(pod))
        outcome = admit(node.kubelet, node.state, request)
        if not isinstance(outcome.verdict, Admitted):
            return None
        placed = AdmissionOutcome(
            kubelet=node.kubelet, before=node.state, after=outcome.state, admitted=outcome.verdict
        )
        node.changed(start_pod(outcome.state, request), self._kind.sizes[size_number].amounts, -1)
        return any(span & (span - 1) for span, _ in placed.spans())

    def _place(self, size_number: int) -> Node | None:
        """The node for the pod; None: it waits."""
        amounts = self._kind.sizes[size_number].amounts
        nodes = [node for node in self._nodes if node.has_room(amounts)]
        points = [node.score(amounts) for node in nodes]
        if self._strategy is not None:
            known = [self._judged(node, size_number) for node in nodes]
            fit = [place for place, (is_admitted, _) in enumerate(known) if is_admitted]
            nodes = [nodes[place] for place in fit]
            scores = score_nodes([Judgement(None, Certainty.EXACT, known[place][1]) for place in fit])
            points = [points[place] + WEIGHT * score for place, score in zip(fit, scores, strict=True)]
        if not nodes:
            return None
        best = max(points)
        return self._chance.choice([node for node, point in zip(nodes, points, strict=True) if point == best])

    def _judged(self, node: Node, size_number: int) -> tuple[bool, int]:
        """Whether the node's kubelet admits a pod of the size, and the merit."""
        found = node.known.get(size_number)
        if found is None:
            assert self._strategy is not None
            outcome = admit(node.kubelet, node.state, self._shapes[size_number])
            merit = 0
            if isinstance(outcome.verdict, Admitted):
                merit = self._strategy(
                    AdmissionOutcome(
                        kubelet=node.kubelet, before=node.state, after=outcome.state, admitted=outcome.verdict
                    )
                )
            found = node.known[size_number] = isinstance(outcome.verdict, Admitted), merit
        return found


Results = Mapping[str, list[Waits]]
"""By strategy, one for each seed."""


def simulated(kind: Kind, load: float, pods: int, seeds: int) -> Results:
    """The simulations of one cluster and load."""
    found: dict[str, list[Waits]] = {}
    for name in (BOUND, ALONE, *STRATEGIES):
        strategy = make_strategy(name, Weights.parse("")) if name in STRATEGIES else None
        found[name] = [
            Simulation(kind, strategy, seed, is_pooled=name == BOUND).run(coming(kind, load, pods, seed))
            for seed in range(seeds)
        ]
    return found


def _mean(of: Sequence[Waits], size: int | None = None) -> float:
    """Mean hours that pods waited; *size* None: of all sizes."""
    hours = [each for waits in of for number, some in enumerate(waits.hours) if size in (None, number) for each in some]
    return statistics.mean(hours) if hours else 0.0


def _cell(of: Sequence[Waits], size: int) -> str:
    refused = sum(waits.refused for waits in of)
    use = statistics.mean(waits.use for waits in of)
    split = sum(waits.split for waits in of) / sum(len(hours) for waits in of for hours in waits.hours)
    more = (f", {refused} refused" if refused else "") + (f", {split:.0%} split" if split else "")
    return f"{_mean(of, size):.2f} ({_mean(of):.2f}) {use:.0%}{more}"


@click.command()
@click.option("--kind", default="", help="Only kinds whose names begin so.")
@click.option("--load", "loads", multiple=True, type=float, default=(0.7, 0.85), show_default=True)
@click.option("--seeds", default=4, show_default=True)
@click.option("--pods", default=800, show_default=True)
def main(kind: str, loads: Sequence[float], seeds: int, pods: int) -> None:
    """One row for each cluster and load, one column for each strategy."""
    table = Table(title=f"Hours that the largest pods wait (all pods), and use: {seeds} seeds of {pods} pods")
    table.add_column("cluster, load")
    for name in (BOUND, ALONE, *STRATEGIES):
        table.add_column(name, justify="right")
    rows = [(name, load) for name in KINDS if name.startswith(kind) for load in loads]
    for name, load in track(rows, console=Console(stderr=True)):
        found = simulated(KINDS[name], load, pods, seeds)
        largest = len(KINDS[name].sizes) - 1
        table.add_row(f"{name}, {load:.0%}", *(_cell(found[each], largest) for each in found))
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
