"""Judgements that are kept are those of a store that was built afresh, and those of the full replay, after any events.

The world has nodes of unlike kubelets. Its events are kept, and a new store that hears of them and is read only once
has the same classes. Where a call waits for replays, more events happen: the answer is that of the moment of the call.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any, Final
from unittest.mock import patch

import pytest

from extender.cluster.events import PodForgotten, PodGone, PodSeen, PodTerminating, Watching
from extender.cluster.node import Observation
from extender.cluster.pod_tracker import Timeouts
from extender.cluster.store import NodeStore
from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.resolve import resolve
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Provider
from extender.observability.metrics import Metrics
from extender.replay.alignment_demand import NO_DEMAND, AlignmentDemand, Demand
from extender.replay.pod import Pod
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode
from extender.scheduling import cached_judge
from extender.scheduling.cached_judge import CachedJudge
from extender.scheduling.effects import Effects
from extender.scheduling.filter import filtered_by_judgements
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import Action, Judgement, UncertaintyPolicy
from extender.scheduling.pod_shape import SHAPE_UID, JudgementCache, NodeAnswers, PodShape
from extender.scheduling.ranking.placement import least_numa
from extender.scheduling.ranking.strategies import STRATEGIES, Weights, make_strategy
from extender.scheduling.records.unjudged import UnjudgedClasses
from extender.scheduling.scoring import scale_of, score_nodes, score_of_one
from extender.wire.pods import pod_from_json
from tests.reports import DUAL, pod_of, sample

GPU: Final = "vendor.example/gpu"
STALE_AFTER, STEPS, READ_EVERY, NAMES = 60.0, 120, 12, 36
QUAD: Final = Hardware(sockets=2, numa_per_socket=2, cores_per_numa=4, threads=2, memory_gib=32, distances=(12, 21))
DEMANDS: Final = (NO_DEMAND, NO_DEMAND, Demand(AlignmentDemand.SINGLE_NUMA_NODE), Demand(AlignmentDemand.PREFERRED))
HIDDEN: Final = (*(frozenset[Provider]() for _ in range(6)), frozenset({Provider.MEMORY}), frozenset({Provider.DEVICE}))


@cache
def kinds_of_nodes() -> tuple[SampleNode, ...]:
    """Empty nodes. Some differ in nothing but their memory, or in one option."""
    gpus = {GPU: [0, 0, 1, 1]}
    return (
        sample(),
        sample(hardware=replace(DUAL, memory_gib=64)),
        sample(memory_gib_reserved=12),
        sample(topologyManagerPolicy="restricted"),
        sample(topologyManagerPolicy="restricted", hardware=replace(DUAL, memory_gib=12)),
        sample(topologyManagerScope="pod", devices=gpus),
        sample(topologyManagerPolicy="best-effort", devices=gpus),
        sample(cpuManagerPolicyOptions={"full-pcpus-only": "true"}),
        sample(version="v1.99.0"),
        sample(hardware=QUAD, topologyManagerPolicy="restricted"),
        sample(memoryManagerPolicy="None"),
    )


def random_pod(random: Random) -> Pod:
    devices = {GPU: random.choice((1, 2, 3))} if random.random() < 0.15 else None
    document = pod_of(
        random.choice((1, 2, 3, 4, 6, 8, 16, 20)), f"{random.choice((1, 4, 9, 20, 40))}Gi", devices=devices
    )
    containers = document["spec"]["containers"]
    if random.random() < 0.25:
        other = pod_of(random.choice((1, 2, 5)), "2Gi")["spec"]["containers"][0]
        containers.append({**other, "name": "other"})
    if random.random() < 0.1:
        document["spec"]["initContainers"] = [{**containers[0], "name": "init"}]
    return replace(pod_from_json(document), uid=f"u{random.getrandbits(48):012x}", demand=random.choice(DEMANDS))


def changed(random: Random, node: SampleNode, state: ManagerState) -> ManagerState:
    """The state after a pod has come or left."""
    held = sorted(state.pod_uids)
    if held and random.random() < 0.4:
        return release_pods(state, [random.choice(held)])
    request = resolve(random_pod(random), node.kubelet.rules)
    outcome = admit(node.kubelet, state, request)
    return start_pod(outcome.state, request) if isinstance(outcome.verdict, Admitted) else state


def observation_of(
    name: str, sequence: int, node: SampleNode, state: ManagerState, hidden: frozenset[Provider]
) -> Observation:
    return Observation(
        node_name=name,
        boot_id="b",
        sequence=sequence,
        digest=str(sequence),
        kubelet=node.kubelet,
        state=state,
        hidden=hidden,
    )


class Counted(Metrics):
    """`count`: judgements that were made."""

    count = 0

    def replayed(self, count: int) -> None:
        self.count += count


async def at_once(work: Callable[..., Any], /, *args: Any) -> Any:  # noqa: ANN401
    return work(*args)


def cached(
    judge: BoundedJudge, store: NodeStore, metrics: Metrics, clock: Callable[[], float], **of: Any
) -> CachedJudge:
    cache = JudgementCache(of.get("remembered", 100_000))
    effects = Effects(clock=clock, sleep=asyncio.sleep, offload=of.get("offload", at_once), metrics=metrics)
    return CachedJudge(judge, cache, store, UnjudgedClasses(), effects)


@dataclass
class World:
    """`log`: what was done to the store since each node came last, so that another store can hear of it."""

    random: Random
    now: float = 0.0
    names: list[str] = field(default_factory=lambda: [f"node-{i}" for i in range(NAMES)])
    log: list[tuple[str | None, Callable[[NodeStore], object]]] = field(default_factory=list)
    truth: dict[str, tuple[SampleNode, ManagerState]] = field(default_factory=dict)
    sequence: int = 0

    def __post_init__(self) -> None:
        self.store = self.new_store()
        self.kinds = self.random.sample(kinds_of_nodes(), 3)
        for name in self.names:
            self.report(name)

    @staticmethod
    def new_store(max_nodes: int = 2 * NAMES) -> NodeStore:
        timeouts = Timeouts(assume=40, finish=5, ghost=20, absence=15)
        return NodeStore(stale_after_seconds=STALE_AFTER, max_nodes=max_nodes, timeouts=timeouts)

    def fresh(self) -> NodeStore:
        """A store that hears of everything, and is read only now."""
        store = self.new_store()
        for _, act in self.log:
            act(store)
        store.expire(self.now)
        return store

    def do(self, name: str | None, act: Callable[[NodeStore], object]) -> None:
        self.log.append((name, act))
        act(self.store)

    def report(self, name: str) -> None:
        node, state = self.truth.get(name) or (self.random.choice(self.kinds), None)
        state = node.state if state is None else state
        for _ in range(self.random.randrange(4)):
            state = changed(self.random, node, state)
        self.truth[name], self.sequence = (node, state), self.sequence + 1
        observation, now = observation_of(name, self.sequence, node, state, self.random.choice(HIDDEN)), self.now
        self.do(name, lambda store: store.observe(observation, now))

    def step(self) -> None:
        """One event, of a random kind."""
        random, store, now = self.random, self.store, self.now
        self.now += random.choice((0.0, 0.1, 1.0, 4.0))
        name, record = random.choice(self.names), None
        held = sorted(self.truth[name][1].pod_uids) if name in self.truth else []
        what = random.choices(tuple(_EVENTS), tuple(_EVENTS.values()))[0]
        if what == "report":
            self.report(name)
        elif what == "heartbeat" and (record := store.observation(name)) is not None:
            boot, number, digest = record.identity
            self.do(name, lambda s: s.heartbeat(name, boot_id=boot, sequence=number, digest=digest, now=now))
        elif what == "bind":
            pod = random_pod(random)
            held.append(pod.uid)
            self.do(name, lambda s: s.assume(name, pod, now))
            if random.random() < 0.5:
                self.do(name, lambda s: s.apply(PodSeen(name, pod, started=False), now=now))
            elif random.random() < 0.3:
                self.do(name, lambda s: s.apply(PodForgotten(name, pod.uid), now=now))
        elif what in ("terminating", "gone") and held:
            event = (PodTerminating if what == "terminating" else PodGone)(name, random.choice(held))
            self.do(name, lambda s: s.apply(event, now=now))
        elif what == "removed":
            self.drop(name)
        elif what == "score-only" and name in self.truth:
            is_score_only = random.random() < 0.5
            self.do(name, lambda s: s.set_score_only(name, now, score_only=is_score_only))
        elif what == "watch":
            watching = random.choice((Watching.NOT, Watching.NOT, Watching.LIVE, Watching.SILENT))
            self.do(None, lambda s: s.set_watching(watching, now))

    def drop(self, name: str) -> None:
        self.store.drop_node(name)
        self.truth.pop(name, None)
        self.log = [(of, act) for of, act in self.log if of != name]

    def request(self) -> list[str]:
        names = [*self.names, "unknown"]
        self.random.shuffle(names)
        return names


_EVENTS: Final[Mapping[str, float]] = {
    "report": 4, "heartbeat": 2, "bind": 3, "terminating": 2, "gone": 2, "removed": 1, "score-only": 0.5, "watch": 0.3,
}  # fmt: skip


def random_policy(random: Random) -> UncertaintyPolicy:
    return UncertaintyPolicy(
        unknown=random.choice((Action.PASS, Action.REFUSE)),
        stale=random.choice((Action.REPLAY, Action.REPLAY, Action.PASS, Action.REFUSE)),
        possible=random.choice((Action.REFUSE, Action.REPLAY, Action.PASS)),
        newer=random.choice((Action.REPLAY, Action.PASS, Action.REFUSE)),
    )


class Reader:
    """Asks for judgements as filter and prioritize do. Events happen while a call waits for replays."""

    def __init__(self, world: World, *, at_once: int) -> None:
        self.world, self.random = world, world.random
        strategy = make_strategy(self.random.choice((STRATEGIES[0], *STRATEGIES)), Weights({}))
        self.judge = BoundedJudge(strategy, random_policy(self.random))
        self.at_once = at_once
        remembered, metrics = self.random.choice((200, 100_000)), Metrics()
        self.cached = cached(
            self.judge, world.store, metrics, lambda: world.now, remembered=remembered, offload=self.offload
        )
        self.shapes = [random_pod(self.random) for _ in range(4)]

    async def offload(self, work: Callable[..., Any], /, *args: Any) -> Any:  # noqa: ANN401
        done = work(*args)
        for _ in range(self.random.randrange(4)):
            self.world.step()
        return done

    def check(self) -> None:
        pod, names = self.random.choice((*self.shapes, random_pod(self.random))), self.world.request()
        expected = self.expected(pod, names)
        now = self.world.now
        with patch.object(cached_judge, "MAX_AT_ONCE", self.at_once):
            answers = asyncio.run(self.cached.answer_nodes(self.cached.entry(pod), names, now))
        assert answers.names == names
        found = [answers.kinds.judgements[code] for code in answers.codes.tolist()]
        assert dict(zip(names, found, strict=True)) == expected
        self.check_verbs(names, answers, expected)

    def check_verbs(self, names: Sequence[str], answers: NodeAnswers, expected: Mapping[str, Judgement]) -> None:
        filtered = filtered_by_judgements(answers)
        refused = {name: each.refusal.text for name, each in expected.items() if each.refusal is not None}
        assert dict(filtered.refused) == refused
        assert list(filtered.feasible) == [name for name in names if name not in refused]
        scale = scale_of(judgement for _, judgement, _ in answers.counts)
        scores = answers.kinds.scores_of(answers.codes, scale, score_of_one).tolist()
        assert scores == score_nodes([expected[name] for name in names])

    def expected(self, pod: Pod, names: Sequence[str]) -> Mapping[str, Judgement]:
        """By the full replay on a store that was built afresh."""
        shape = PodShape(replace(pod, uid=SHAPE_UID))
        classes = self.world.fresh().classes_of(names)
        judgements = {each: self.judge(shape, each) for each in set(classes)}
        return {name: judgements[each] for name, each in zip(names, classes, strict=True)}


@pytest.mark.parametrize("seed", range(6))
def test_after_any_events_the_judgements_are_those_of_a_fresh_store_and_of_the_full_replay(seed: int) -> None:
    random = Random(seed)
    world = World(random)
    readers = [Reader(world, at_once=0), Reader(world, at_once=16)]
    for number in range(STEPS):
        world.step()
        if number % READ_EVERY == 0:
            random.choice(readers).check()


@pytest.mark.parametrize("trait", ["none", "stale", "score-only", "hidden", "newer", "in doubt"])
def test_one_of_the_nodes_that_are_alike_is_judged_whatever_else_is_known_of_them(trait: str) -> None:
    random, store = Random(2), World.new_store(max_nodes=200)
    node = sample(topologyManagerPolicy="restricted", version="v1.99.0" if trait == "newer" else "v1.36.2")
    state, states = node.state, dict[object, ManagerState]()
    while len(states) < 200:
        state = changed(random, node, state)
        if len(state.pod_uids) >= 3:
            states[state.key] = state
    for number, each in enumerate(states.values()):
        hidden = frozenset({Provider.DEVICE}) if trait == "hidden" else frozenset[Provider]()
        name = f"node-{number}"
        store.observe(observation_of(name, 1, node, each, hidden), 0)
        if trait == "score-only":
            store.set_score_only(name, 0, score_only=True)
        elif trait == "in doubt":
            store.apply(*(PodTerminating(name, uid) for uid in sorted(each.pod_uids)[:2]), now=0)
    now, metrics = STALE_AFTER + 1 if trait == "stale" else 0, Counted()
    judge = cached(BoundedJudge(least_numa, UncertaintyPolicy()), store, metrics, lambda: now)
    names = sorted(each.name for each in store)

    asyncio.run(judge.answer_nodes(judge.entry(pod_from_json(pod_of(4, "4Gi"))), names, now))

    assert metrics.count <= 40
