"""Random groups of unequal pods, brought by a scheduler of our own, against a search through the naive kubelet.

A case has 1 to 4 nodes with a few pods, and a group of 2 to 8 pods of 1 to 4 shapes. The truth is whether any order of
any assignment is admitted by `tests.oracle`, which shares no code with the product. The scheduler brings the pods one
by one in a random order, again and again, to the real filter and bind; kubelets admit what is bound.

Run `python -m tests.features.groups.unequal_groups --cases 500 --seed 1` for as long as you like.
"""

import argparse
import asyncio
import copy
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from extender.kubelet.admission import admit, start_pod
from extender.kubelet.resolve import resolve
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.samples.machines import Hardware
from extender.samples.nodes import DescriptionError, SampleNode, Workload
from extender.scheduling.binder import PodBound
from extender.wire.groups import GROUP, SIZE
from extender.wire.pods import pod_from_json
from tests.features.groups.gang_world import GangWorld
from tests.observations import observation_of
from tests.oracle.kubelet import NaiveKubelet
from tests.reports import DUAL, pod_of, sample
from tests.world.kubelet import Kubelet

Json = dict[str, Any]
GPU = "vendor.example/gpu"
SMALL = Hardware(sockets=1, numa_per_socket=2, cores_per_numa=4, threads=1, memory_gib=16, distances=(10, 12))
EIGHT = Hardware(sockets=2, numa_per_socket=2, cores_per_numa=4, threads=2, memory_gib=16, distances=(10, 32))
ROUNDS = 14
MAX_ADMISSIONS = 4_000
"""Admissions of the naive kubelet for one case. What needs more is not decided."""


@dataclass
class Case:
    """One group and its nodes."""

    seed: int
    nodes: list[SampleNode]
    pods: list[Json]
    kubelets: list[NaiveKubelet] = field(default_factory=list)

    @property
    def shapes(self) -> list[str]:
        """The resources of the pods as text, in order."""
        return [str([c["resources"] for c in _containers(pod)]) for pod in self.pods]


def _containers(pod: Json) -> list[Json]:
    spec = pod["spec"]
    return [*spec.get("initContainers", []), *spec["containers"]]


def make_case(seed: int) -> Case:
    """A random case; the same for the same seed."""
    random = Random(seed)
    nodes: list[SampleNode] = []
    while len(nodes) < random.randint(1, 4):
        workloads = [
            Workload(
                name=f"w{i}",
                copies=random.randint(1, 3),
                resources={"cpu": random.randint(1, 5), "memory": "1Gi"},
                gone=[0] if random.random() < 0.5 else [],
            )
            for i in range(random.randint(0, 2))
        ]
        try:
            nodes.append(
                sample(
                    f"n{len(nodes)}",
                    hardware=random.choice([SMALL, DUAL, EIGHT]),
                    workloads=workloads,
                    devices={GPU: sorted(random.choices([0, 1], k=random.randint(1, 4)))}
                    if random.random() < 0.6
                    else {},
                    topologyManagerPolicy=random.choice(
                        ["single-numa-node", "single-numa-node", "restricted", "best-effort"]
                    ),
                    topologyManagerScope=random.choice(["container", "pod"]),
                )
            )
        except DescriptionError:
            continue
    kubelets = [Kubelet.of(node).naive for node in nodes]
    shapes = [_shape(random) for _ in range(random.randint(1, 4))]
    pods = _just_fitting(random, kubelets, shapes) if random.random() < 0.5 else []
    if len(pods) < 2:
        count = random.randint(2, 8)
        pods = [copy.deepcopy(shapes[i] if i < len(shapes) else random.choice(shapes)) for i in range(count)]
    for i, pod in enumerate(pods):
        pod["metadata"] = {
            **pod["metadata"],
            "name": f"g{i}",
            "uid": f"uid-g{i}",
            "annotations": {GROUP: "g", SIZE: str(len(pods))},
        }
    return Case(seed, nodes, pods, kubelets)


def _just_fitting(random: Random, kubelets: list[NaiveKubelet], shapes: list[Json]) -> list[Json]:
    """Pods that the nodes admit in this order, and as large ones as they admit."""
    shapes = sorted(
        shapes, key=lambda pod: str(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"]), reverse=True
    )
    found: list[Json] = []
    for kubelet in random.sample(kubelets, random.randint(1, len(kubelets))):
        filled = copy.deepcopy(kubelet)
        while len(found) < 8:
            for shape in random.sample(shapes, len(shapes)) if random.random() < 0.3 else shapes:
                pod = copy.deepcopy(shape)
                pod["metadata"]["uid"] = f"fill-{len(found)}"
                if filled.admit(pod)["admit"]:
                    filled.start(pod["metadata"]["uid"])
                    found.append(pod)
                    break
            else:
                break
    return found


def _shape(random: Random) -> Json:
    gpus = {GPU: 1} if random.random() < 0.3 else None
    pod = pod_of(random.choice([1, 2, 3, 4, 6, 8]), random.choice(["1Gi", "2Gi", "6Gi"]), devices=gpus)
    if random.random() < 0.2:
        pod["spec"]["containers"].append({**pod_of(random.randint(1, 3))["spec"]["containers"][0], "name": "side"})
    return pod


def fits(case: Case) -> bool | None:
    """Whether there is an order of the pods and nodes for them that the kubelets admit. None: too much to try."""
    kinds = sorted(set(case.shapes))
    pod_of_kind = {kind: case.pods[case.shapes.index(kind)] for kind in kinds}
    wanted = Counter(case.shapes)
    known: dict[tuple[int, tuple[str, ...]], NaiveKubelet | None] = {
        (i, ()): kubelet for i, kubelet in enumerate(case.kubelets)
    }
    left = [MAX_ADMISSIONS]
    seen: set[tuple[tuple[str, ...], ...]] = set()

    def after(node: int, row: tuple[str, ...]) -> NaiveKubelet | None:
        if (node, row) not in known:
            before = after(node, row[:-1])
            assert before is not None
            left[0] -= 1
            kubelet = copy.deepcopy(before)
            pod = copy.deepcopy(pod_of_kind[row[-1]])
            pod["metadata"]["uid"] = f"try-{len(row)}"
            is_admitted = kubelet.admit(pod)["admit"]
            kubelet.start(pod["metadata"]["uid"])
            known[node, row] = kubelet if is_admitted else None
        return known[node, row]

    def place(rows: tuple[tuple[str, ...], ...], remaining: Counter[str]) -> bool:
        if not any(remaining.values()):
            return True
        if rows in seen or left[0] < 0:
            return False
        seen.add(rows)
        for kind in kinds:
            if not remaining[kind]:
                continue
            for node in range(len(rows)):
                row = (*rows[node], kind)
                if after(node, row) is not None and place(
                    (*rows[:node], row, *rows[node + 1 :]), remaining - Counter([kind])
                ):
                    return True
        return False

    found = place(((),) * len(case.nodes), wanted)
    return found if found or left[0] >= 0 else None


@dataclass
class Played:
    """What the scheduler has done. `attempts`: filter calls."""

    bound: dict[str, str]
    attempts: int
    refusals: list[str]


async def play(case: Case, rounds: int = ROUNDS) -> Played:
    """Bring the pods in random order, again and again. What is bound is admitted by both kubelets."""
    random, world = Random(case.seed + 1), GangWorld()
    for node in case.nodes:
        world.add(node)
    kubelets = {node.name: copy.deepcopy(kubelet) for node, kubelet in zip(case.nodes, case.kubelets, strict=True)}
    states = {node.name: node.state for node in case.nodes}
    played = Played({}, 0, [])
    comes_at = {pod["metadata"]["name"]: random.choice([0, 0, 0, 1, 2]) for pod in case.pods}
    for number in range(rounds):
        for pod in random.sample(case.pods, len(case.pods)):
            name = pod["metadata"]["name"]
            if name in played.bound or comes_at[name] > number:
                continue
            world.clock.now += 0.1
            played.attempts += 1
            filtered = await world.filter(pod, *random.sample(world.names, len(world.names)))
            if not filtered.feasible:
                played.refusals.append(str(set(filtered.refused.values())))
                continue
            target = random.choice(list(filtered.feasible))
            if await world.bind(pod, target) == PodBound():
                played.bound[name] = target
                assert kubelets[target].admit(pod)["admit"], f"{name} is refused on {target}"
                kubelets[target].start(pod["metadata"]["uid"])
                _admit(world, case, states, pod, target)
        world.clock.now += random.choice([0.5, 1.5, 4.0])
    return played


def _admit(world: GangWorld, case: Case, states: dict[str, ManagerState], pod: Json, name: str) -> None:
    """The node's kubelet admits the pod, and its report comes."""
    node = next(each for each in case.nodes if each.name == name)
    request = resolve(pod_from_json(pod), node.kubelet.rules)
    outcome = admit(node.kubelet, states[name], request)
    assert isinstance(outcome.verdict, Admitted)
    states[name] = start_pod(outcome.state, request)
    observation = observation_of(name, node, sequence=2 + len(states[name].pod_uids), state=states[name])
    world.service.known.nodes.observe(observation, world.clock())


def judge(seed: int) -> str:
    """What became of a case: `placed`, `none fits`, `undecided`, or what is wrong."""
    case = make_case(seed)
    truth = fits(case)
    played = asyncio.run(play(case))
    bound, size = len(played.bound), len(case.pods)
    if bound not in (0, size):
        return f"WRONG: half placed, {bound} of {size}"
    if truth is None:
        return "undecided"
    if truth and not bound:
        return f"WRONG: it fits, and none was bound in {played.attempts} attempts: {played.refusals[-1:]}"
    if bound and not truth:
        return "WRONG: it was placed where nothing fits"
    return "placed" if bound else "none fits"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print what became of each kind of case, and every wrong one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    counted: Counter[str] = Counter()
    for seed in range(asked.seed * 1_000_000, asked.seed * 1_000_000 + asked.cases):
        result = judge(seed)
        counted[result.split(",")[0]] += 1
        if result.startswith("WRONG"):
            print(seed, result, flush=True)
        print(f"{counted.total()}: {dict(counted)}", file=sys.stderr, flush=True)
    print(dict(counted))


if __name__ == "__main__":
    main()
