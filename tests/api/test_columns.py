"""Whatever has happened, verbs answer as if every node were judged anew; and what was remembered stays as it was."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.scheduler import SchedulerEndpoints
from extender.app import make_service
from extender.cluster.events import PodForgotten, PodGone, PodSeen, Watching
from extender.cluster.node import Observation, UnknownNodeError
from extender.config.settings import Settings
from extender.replay.pod import Pod
from extender.replay.possible_states import PossibleStates
from extender.samples.nodes import Workload
from extender.scheduling import cached_judge
from extender.scheduling.cached_judge import MAX_AT_ONCE, CachedJudge
from extender.scheduling.filter import PASSED
from extender.scheduling.judgement import Judgement
from extender.scheduling.pod_shape import SHAPE_UID, PodShape
from extender.scheduling.scoring import MAX_SCORE, score_nodes
from extender.wire.pods import pod_from_json
from tests.asking import ask, asked
from tests.cluster.reading import classes_at
from tests.observations import observation_of
from tests.reports import args_of, pod_of, sample
from tests.world.clock import Clock

NAMES: Final = [f"n{i}" for i in range(6)]
NODES: Final = [
    sample(),
    sample(workloads=[Workload(name="w", resources={"cpu": 4, "memory": "1Gi"})]),
    sample(workloads=[Workload(name="w", copies=2, resources={"cpu": 13, "memory": "1Gi"})]),
    sample(version="v1.30.0", topologyManagerPolicy="best-effort"),
]
BOUND: Final = [pod_from_json(pod_of(cpus, name=f"bound-{i}")) for i, cpus in enumerate((2, 6, 12))]
NOTHING_ALIGNED: Final = 0
Event = tuple[str, str, int]
MUCH_TIME: Final = 1000.0


class World:
    """A service, what befalls it, and what its answers should have been."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.meanwhile: list[Event] = []
        settings = Settings(warm_up_seconds=60, filter_seconds=MUCH_TIME)
        self.service = make_service(settings, self.clock, offload=self._elsewhere)
        self.calls_of = SchedulerEndpoints(
            self.service.scheduling, self.service.metrics, self.service.clock, self.service.lifecycle, (1 << 20, 0)
        )
        self.sequence = self.calls = 0
        self.predicted: dict[str, dict[str, Judgement]] = {}
        self.counts: Counter[tuple[str, str]] = Counter()

    async def _elsewhere(self, work: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        for event in self.meanwhile:
            self.befall(*event)
        return work(*args)

    def befall(self, what: str, name: str, which: int) -> None:
        cluster, now = self.service.known.nodes, self.clock()
        pod = BOUND[which % len(BOUND)]
        match what:
            case "report":
                self.sequence += 1
                cluster.observe(_report(name, which, self.sequence), now)
            case "heartbeat" if (held := cluster.get(name)) is not None:
                told = held.observation
                cluster.heartbeat(name, boot_id=told.boot_id, sequence=told.sequence, digest=told.digest, now=now)
            case "time":
                self.clock.now += (1, 40, 90, 200)[which]
            case "assume":
                cluster.assume(name, pod, now)
            case "forget":
                cluster.apply(PodForgotten(name, pod.uid), now=now)
            case "see":
                cluster.apply(PodSeen(name, pod, started=which == 0), now=now)
            case "end":
                cluster.apply(PodGone(name, pod.uid), now=now)
            case "drop":
                cluster.drop_node(name)
            case "distrust":
                try:
                    cluster.set_score_only(name, now, score_only=which % 2 == 0)
                except UnknownNodeError:
                    assert cluster.get(name) is None
            case "watch":
                cluster.set_watching(list(Watching)[which % len(Watching)], now)

    def ask(self, names: Sequence[str], cpus: int) -> None:
        """One filter call, held against the judgement of each node."""
        document, pod = self.pod(cpus)
        judged = self.judged(pod, names)

        reply = ask(self.calls_of.filter_, args_of(document, *names))

        refused = {name: j.refusal.text for name, j in judged.items() if j.refusal is not None and cpus}
        assert sorted(reply["NodeNames"]) == sorted(name for name in names if name not in refused)
        assert reply["FailedAndUnresolvableNodes"] == refused
        assert reply["Error"] == ""
        self.counts.update(
            (refused.get(name, PASSED), judged[name].certainty.value if cpus else "exact") for name in names
        )
        self.predicted[pod.uid] = {name: judged[name] for name in names if cpus}

    def rank(self, names: Sequence[str], cpus: int) -> None:
        """One prioritize call, held against the score of each node."""
        document, pod = self.pod(cpus)
        judged = self.judged(pod, names, self.service.judging.ranking)
        expected = score_nodes([judged[name] for name in names]) if cpus else [MAX_SCORE] * len(names)

        reply = ask(self.calls_of.prioritize, args_of(document, *names))

        assert {each["Host"]: each["Score"] for each in reply} == dict(zip(names, expected, strict=True))

    def pod(self, cpus: int) -> tuple[dict[str, Any], Pod]:
        self.calls += 1
        document = pod_of(cpus or "500m", name=f"asked-{self.calls}")
        document["status"]["qosClass"] = "Guaranteed" if cpus else "Burstable"
        return document, pod_from_json(document)

    def judged(self, pod: Pod, names: Sequence[str], by: CachedJudge | None = None) -> dict[str, Judgement]:
        shape = PodShape(replace(pod, uid=SHAPE_UID))
        classes = classes_at(self.service.known.nodes, names, self.clock())
        judge = (by or self.service.judging).judge
        return {name: judge(shape, each) for name, each in zip(names, classes, strict=True)}

    def check_the_past(self) -> None:
        """Metrics count every answer, and decisions tell each call as it was."""
        (family,) = self.service.metrics.candidates.collect()
        counted = {
            (s.labels["result"], s.labels["certainty"]): s.value for s in family.samples if s.name.endswith("_total")
        }
        assert {key: count for key, count in counted.items() if count} == dict(self.counts)
        for uid, judged in self.predicted.items():
            (call,) = self.service.records.decisions.of_pod(uid)
            told = {name: j for j, names in call.by_judgement().items() for name in names}
            assert _without_amounts(told) == _without_amounts(judged)


def _without_amounts(judged: Mapping[str, Judgement]) -> dict[str, Judgement]:
    """Filter's answers: whether there is a merit counts, but not how large it is."""
    return {name: j if j.merit is None else j._replace(merit=0) for name, j in judged.items()}


def _report(name: str, which: int, sequence: int) -> Observation:
    node = NODES[which]
    return observation_of(name, node, sequence)


EVENTS: Final = ("report", "heartbeat", "time", "assume", "forget", "see", "end", "drop", "distrust", "watch")
_event = st.tuples(st.sampled_from(EVENTS), st.sampled_from(NAMES), st.integers(0, 3))
_asked = st.lists(st.sampled_from([*NAMES, "stranger"]), unique=True)
_call = st.tuples(_asked, st.sampled_from([NOTHING_ALIGNED, 2, 14]), st.lists(_event, max_size=2))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.lists(_event, max_size=4), _call), max_size=12), st.sampled_from([0, MAX_AT_ONCE]))
def test_filter_answers_as_if_every_node_were_judged_anew(
    story: Iterable[tuple[list[Event], tuple[list[str], int, list[Event]]]], max_at_once: int
) -> None:
    """Each call twice: the second one finds judged what the first one learned."""
    world = World()
    for name in NAMES[:4]:
        world.befall("report", name, 0)
    with patch.object(cached_judge, "MAX_AT_ONCE", max_at_once):
        for events, (names, cpus, meanwhile) in story:
            for event in events:
                world.befall(*event)
            world.meanwhile = meanwhile
            world.ask(names, cpus)
            world.ask(names[::-1], cpus)
    world.check_the_past()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.lists(_event, max_size=2), st.sampled_from([2, 14])), max_size=12))
def test_what_is_kept_of_calls_about_the_same_nodes_never_answers_for_nodes_that_have_changed(
    story: Iterable[tuple[list[Event], int]],
) -> None:
    world = World()
    for name in NAMES:
        world.befall("report", name, 0)
    for number, (events, cpus) in enumerate(story):
        for event in events:
            world.befall(*event)
        names = [*NAMES, "stranger"][:: -1 if number % 2 else 1]
        world.ask(names, cpus)
        world.rank(names, cpus)
    world.check_the_past()


def test_prioritize_replays_no_node_that_filter_has_replayed_since_it_changed() -> None:
    world = World()
    for number, name in enumerate(NAMES[:4]):
        world.befall("report", name, number)
    world.ask(NAMES[:4], 2)
    world.rank(NAMES[:4], 2)
    for change in (("assume", "n0", 0), ("report", "n1", 2), ("end", "n0", 0)):
        world.befall(*change)
        document = args_of(world.pod(2)[0], *NAMES[:4])
        ask(world.calls_of.filter_, document)

        with patch.object(PossibleStates, "admit", side_effect=AssertionError("a second replay")):
            reply = ask(world.calls_of.prioritize, document)

        assert len({each["Score"] for each in reply}) > 1
        world.rank(NAMES[:4], 2)


def test_what_one_call_learns_is_not_news_where_another_call_has_come_further() -> None:
    """While the first call replays, its node fills up, and a second call of the same shape sees that."""
    clock = Clock()
    document = args_of(pod_of(14), "n0", "n1", "n2")
    overtaken: list[Any] = []
    twelve = [pod_from_json(pod_of(12, name=name)) for name in ("a", "b")]

    async def elsewhere(work: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        if not overtaken:
            overtaken.append(None)
            for pod in twelve:
                service.known.nodes.assume("n0", pod, clock())
            overtaken[0] = await asked(filter_, document)
        return work(*args)

    service = make_service(Settings(), clock, offload=elsewhere)
    filter_ = SchedulerEndpoints(
        service.scheduling, service.metrics, service.clock, service.lifecycle, (1 << 20, 0)
    ).filter_
    for i in range(3):
        service.known.nodes.observe(_report(f"n{i}", i, 1), clock())

    first, third = ask(filter_, document), ask(filter_, document)

    assert first["NodeNames"] == ["n0", "n1"]
    assert overtaken[0]["NodeNames"] == third["NodeNames"] == ["n1"]
