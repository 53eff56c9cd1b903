"""Make-room on small random clusters, against a brute force over evictions and a scheduler of its own.

The brute force tries every set of up to three pods, every order of them and every destination. A step is allowed if the
pod's replacement has a place when its turn comes, on a node that no later pod has to leave. Pods that only share CPUs
are among them: they count for the node's totals. Nobody comes where required anti-affinity of a pod keeps it away, by
host or by zone. The scheduler carries a plan out as the script of the answer does: it
cordons what the plan says, and puts each replacement on any open node that admits it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations
from random import Random
from typing import Any

from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.resolve import resolve
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.questions.evictions import Evictions
from extender.questions.make_room import MakeRoom, OpenedPlace
from extender.questions.node_context import Subject
from extender.questions.node_pods import NEVER_EVICT, NodePod, pods_of
from extender.replay.alignment import Alignment, alignment_of_outcomes
from extender.samples.machines import Hardware
from extender.samples.nodes import DescriptionError, SampleNode, Workload
from extender.scheduling.victims import DisruptionBudget
from extender.wire.placement_rules import LabelRequirement
from extender.wire.workloads import PodWorkload, workload_from_json
from tests.reports import pod_of, sample
from tests.subjects import judge, subject_of, watched

SMALL = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=4, threads=2, memory_gib=16, distances=(10, 21))
CPUS = 14
"""What pods can request on a node in all: 2 of 16 are reserved."""
MOST = 3
MAX_PRIORITY = 3
BUDGETS = [
    DisruptionBudget(
        namespace="demo",
        name=app,
        requirements=(LabelRequirement(key="app", operator="In", values=frozenset({app})),),
        disruptions_allowed=allowed,
        already_disrupted=frozenset(),
    )
    for app, allowed in (("a", 1), ("b", 0))
]
Size = tuple[int, int, tuple[int, ...], int]
"""The cost of a set of pods: how many, Jobs among them, priorities from the highest, CPUs in thousandths."""
ANTI_AFFINITY: list[dict[str, Any]] = [
    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}},
    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "c"}}},
    {"topologyKey": "kubernetes.io/hostname"},
    {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}},
    {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "c"}}, "namespaces": ["other"]},
    {"topologyKey": "rack", "labelSelector": {}},
    {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "c"}},
        "namespaceSelector": {"matchLabels": {"team": "x"}},
    },
]
"""Nothing is known of the labels of namespaces, so the last one counts for all of them. No node has a rack."""
SPREAD = [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]


@dataclass(frozen=True)
class World:
    """The nodes as they are: what their kubelets hold, what their pods request in all, and whom these keep away.

    `away`: by node, its zone and the required anti-affinity of its pods, which are all in the namespace `demo`.
    """

    kubelets: Mapping[str, Kubelet]
    states: Mapping[str, ManagerState]
    requested: Mapping[str, int]
    away: Mapping[str, tuple[str, Sequence[Mapping[str, Any]]]]

    def keeps_away(self, name: str, workload: PodWorkload) -> bool:
        """Whether a pod on this node, or in its zone, keeps the pod away."""
        zone, app = self.away[name][0], workload.pod.metadata.labels.get("app")
        for other, (its_zone, terms) in self.away.items():
            for term in terms:
                selector = term.get("labelSelector")
                there = its_zone == zone if term["topologyKey"] == "zone" else other == name
                apps = None if selector == {} else "a" if "matchExpressions" in (selector or {}) else "c"
                meant = workload.namespace in term.get("namespaces", ["demo"]) or "namespaceSelector" in term
                if there and term["topologyKey"] != "rack" and selector is not None and meant and apps in (None, app):
                    return True
        return False

    def without(self, pod: NodePod, name: str) -> "World":
        states = {**self.states, name: release_pods(self.states[name], [pod.uid])}
        return replace(
            self, states=states, requested={**self.requested, name: self.requested[name] - _cpus(pod.workload)}
        )

    def place(self, name: str, workload: PodWorkload, number: int, *, aligned: bool) -> "World | None":
        """With one more pod on the node; None if it does not go there."""
        kubelet, state, wanted = self.kubelets[name], self.states[name], _cpus(workload)
        if self.requested[name] + wanted > CPUS * 1000 or self.keeps_away(name, workload):
            return None
        request = resolve(workload.copy(number), kubelet.rules)
        outcome = admit(kubelet, state, request)
        if not isinstance(outcome.verdict, Admitted):
            return None
        alignment = alignment_of_outcomes(kubelet, (outcome,))
        if aligned and (alignment is None or alignment.alignment is not Alignment.ALIGNED):
            return None
        states = {**self.states, name: start_pod(outcome.state, request)}
        return replace(self, states=states, requested={**self.requested, name: self.requested[name] + wanted})


def _cpus(workload: PodWorkload) -> int:
    return sum(c.requests_milli.get("cpu", 0) for c in workload.pod.containers)


def cluster(rng: Random) -> tuple[World, list[Subject]]:
    """Three nodes of 2 x 8 CPUs with up to four pods that hold CPUs and two that do not."""
    kubelets, states, requested, away, subjects = {}, {}, {}, {}, []
    for number in range(3):
        node = _node(rng, f"node-{number}")
        shared = [_shared(rng, f"shared-{number}-{i}") for i in range(rng.choice((0, 0, 1, 2)))]
        pods = [_decorated(rng, pod) for pod in [*node.pods, *shared]]
        taken = sum(int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for pod in pods)
        while taken > CPUS:
            gone = pods.pop()
            assert gone["metadata"]["name"].startswith("shared")
            taken -= int(gone["spec"]["containers"][0]["resources"]["requests"]["cpu"])
        subject = subject_of(node, requested_milli={"cpu": 1000 * taken})
        zone = rng.choice(("z0", "z1"))
        around = replace(subject.around, pods=watched(pods), labels={"kubernetes.io/hostname": node.name, "zone": zone})
        subjects.append(replace(subject, around=around))
        away[node.name] = zone, [term for pod in pods for term in _terms(pod)]
        kubelets[node.name], states[node.name], requested[node.name] = node.kubelet, node.state, 1000 * taken
    return World(kubelets, states, requested, away), subjects


def _terms(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rules = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    terms: list[Mapping[str, Any]] = rules.get("requiredDuringSchedulingIgnoredDuringExecution", [])
    return terms


def _node(rng: Random, name: str) -> SampleNode:
    while True:
        sizes = [rng.choice((1, 2, 3, 4, 5)) for _ in range(rng.randint(2, 4))]
        if sum(sizes) > CPUS:
            continue
        work = [Workload(name=f"{name}-w{i}", resources={"cpu": n, "memory": "1Gi"}) for i, n in enumerate(sizes)]
        policy = rng.choice(("single-numa-node", "restricted", "best-effort"))
        try:
            return sample(name, hardware=SMALL, topologyManagerPolicy=policy, workloads=work)
        except DescriptionError:
            continue


def _shared(rng: Random, name: str) -> dict[str, Any]:
    amounts = {"cpu": str(rng.choice((1, 2, 3, 5)))}
    container = {"name": "app", "resources": {"requests": amounts}}
    return {"metadata": {"name": name, "namespace": "demo", "uid": name}, "spec": {"containers": [container]}}


def _decorated(rng: Random, pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with an owner, a priority, labels of budgets, and sometimes what forbids to move it."""
    owner = rng.choice(("ReplicaSet", "ReplicaSet", "ReplicaSet", "StatefulSet", "Job", "DaemonSet", ""))
    labels = {"app": rng.choice(("a", "a", "b", "c", "c", "c", "c"))}
    if rng.random() < 0.05:
        labels["jobset.sigs.k8s.io/jobset-name"] = "set"
    metadata = {
        **pod["metadata"],
        "labels": labels,
        "ownerReferences": [{"kind": owner, "controller": True}] if owner else [],
        "annotations": {NEVER_EVICT[0]: "false"} if rng.random() < 0.05 else {},
    }
    spec = {**pod["spec"], "priority": rng.choice((0, 0, 0, 2, 5))}
    if rng.random() < 0.1:
        term = rng.choice(ANTI_AFFINITY)
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if rng.random() < 0.05:
        spec["topologySpreadConstraints"] = SPREAD
    if rng.random() < 0.05:
        spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    return {**pod, "metadata": metadata, "spec": spec}


def may_leave(pods: Sequence[NodePod]) -> bool:
    """Whether all of these may be evicted, one after another, restated."""
    apps = Counter(pod.labels["app"] for pod in pods)
    return (
        apps["a"] <= 1
        and not apps["b"]
        and all(pod.priority <= MAX_PRIORITY and not pod.forbids_eviction for pod in pods)
        and all(pod.owner not in ("DaemonSet", "") for pod in pods)
        and not any("jobset.sigs.k8s.io/jobset-name" in pod.labels for pod in pods)
        and not any(pod.workload.rules.unread for pod in pods)
    )


def holds(world: World, pod: NodePod, name: str) -> bool:
    """Whether its kubelet has given the pod anything."""
    return pod.uid in world.states[name].pod_uids


def size_of(pods: Sequence[NodePod]) -> Size:
    """See `Size`."""
    jobs = sum(pod.owner == "Job" for pod in pods)
    priorities = tuple(sorted((pod.priority for pod in pods), reverse=True))
    return len(pods), jobs, priorities, sum(pod.requests_milli["cpu"] for pod in pods)


def cheapest(world: World, subjects: Sequence[Subject], workload: PodWorkload, most: Size) -> Sequence[NodePod] | None:
    """A cheaper set of pods than *most* with which some node aligns the pod; None if there is none."""
    pods = [(pod, subject.name) for subject in subjects for pod in pods_of(subject)]
    sets = [chosen for size in range(1, min(most[0], MOST) + 1) for chosen in combinations(pods, size)]
    for chosen in sorted(sets, key=lambda chosen: size_of([pod for pod, _ in chosen])):
        leaving = [pod for pod, _ in chosen]
        if size_of(leaving) >= most:
            return None
        if may_leave(leaving) and any(_opens(world, chosen, target, workload) for target in {n for _, n in chosen}):
            return leaving
    return None


def _opens(world: World, chosen: Sequence[tuple[NodePod, str]], target: str, workload: PodWorkload) -> bool:
    after = world
    for pod, source in chosen:
        if source == target:
            after = after.without(pod, source)
    if after.place(target, workload, 99, aligned=True) is None:
        return False
    return any(_in_turn(world, order, target) for order in permutations(chosen))


def _in_turn(world: World, moves: Sequence[tuple[NodePod, str]], target: str) -> bool:
    if not moves:
        return True
    (pod, source), rest = moves[0], moves[1:]
    closed = {target, source, *(name for _, name in rest)}
    left, aligned = world.without(pod, source), holds(world, pod, source)
    for name in world.states.keys() - closed:
        after = left.place(name, pod.workload, len(moves), aligned=aligned)
        if after is not None and _in_turn(after, rest, target):
            return True
    return False


def plan_for(subjects: Sequence[Subject], workload: PodWorkload) -> tuple[Evictions, OpenedPlace | None]:
    """The cheapest plan of make-room."""
    evictions = Evictions(subjects, BUDGETS, judge(), max_priority=MAX_PRIORITY, max_trials=100_000, workload=workload)
    room = MakeRoom(workload, evictions)
    found = room.now()
    if found is None:
        plans = [place for place in room.run(MOST) if place is not None and place.eviction is not None]
        found = min(plans, key=lambda place: place.eviction.cost if place.eviction else 0, default=None)
    return evictions, found


def carried_out(world: World, found: OpenedPlace, workload: PodWorkload, rng: Random | None) -> Iterator[str]:
    """What goes wrong if the plan is carried out step by step. *rng*: places replacements; None: as the plan says."""
    moves = () if found.eviction is None else found.eviction.moves
    if not may_leave([move.pod for move in moves]):
        yield "a pod that may not be evicted"
    cordoned = {found.subject.name, *(move.source for move in moves)}
    for number, move in enumerate(moves):
        aligned = holds(world, move.pod, move.source)
        left = world.without(move.pod, move.source)
        places = {
            name: after
            for name in sorted(world.states.keys() - cordoned)
            if (after := left.place(name, move.pod.workload, number, aligned=False)) is not None
        }
        if not places:
            yield f"{move.pod.name} is lost"
            return
        if move.node not in places or left.place(move.node, move.pod.workload, number, aligned=aligned) is None:
            yield f"{move.pod.name} does not fit on {move.node}"
            return
        name = move.node if rng is None else rng.choice(list(places))
        world = places[name]
        if name != move.node:
            return  # the script ends here, and a person asks again; no pod is lost
        if all(later.source != move.source for later in moves[number + 1 :]) and move.source != found.subject.name:
            cordoned.discard(move.source)
    if world.place(found.subject.name, workload, 99, aligned=True) is None:
        yield "the pod is not aligned after all moves"


def check(seed: int) -> tuple[int, list[str]]:
    """One pod that fits nowhere: its plan is carried out twice, and compared with the brute force. Cases: plans."""
    rng = Random(seed)
    pod = pod_of(rng.choice((4, 5, 6)), "1Gi", name="wanted")
    pod["metadata"] |= {"labels": {"app": rng.choice("ac")}, "namespace": rng.choice(("demo", "other"))}
    workload = workload_from_json(pod)
    while True:
        world, subjects = cluster(rng)
        if not any(world.place(name, workload, 99, aligned=True) for name in world.states):
            break
    evictions, found = plan_for(subjects, workload)
    wrong = []
    if found is not None:
        wrong += list(carried_out(world, found, workload, None))
        wrong += list(carried_out(world, found, workload, rng))
    most: Size = (MOST + 1, 0, (), 0)
    if found is not None and found.eviction is not None:
        most = size_of([move.pod for move in found.eviction.moves])
    cheaper = cheapest(world, subjects, workload, most)
    if cheaper is not None:
        names = ", ".join(pod.name for pod in cheaper)
        kind = "none" if found is None else f"{most}"
        whole = "" if evictions.is_partial else " and complete"
        wrong.append(f"{kind}{whole}, and the brute force moves {names}: {size_of(cheaper)}")
    return int(found is not None), wrong
