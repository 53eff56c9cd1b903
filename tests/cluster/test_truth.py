"""The laws of the ledger: what the kubelet has is among what is followed, and no pod that is bound is ever refused.

A kubelet, an API server and an extender that hears of both late, in every order that the seed makes. The kubelet may
lose its watch and be told of several pods at once, and the extender, too; bindings are lost, or come late. Where pods
also end suddenly, one at a time, the truth is not always among what is followed, and still nothing bound is refused.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.in_flight import Timeouts
from extender.cluster.node import Observation
from extender.cluster.store import NodeStore, Watching
from extender.replay.admission import admit, release_pods, start_pod
from extender.replay.pod import Pod, resolve
from extender.replay.state import ManagerState
from extender.replay.verdict import Admitted
from extender.samples.nodes import SampleNode
from extender.scheduling.judge import PodShape
from extender.wire.pods import pod_from_json
from tests.cluster.reading import classes_at
from tests.reports import pod_of, sample
from tests.subjects import judge

EMPTY = sample(version="v1.27.0", topologyManagerPolicy="best-effort")
STRICT = sample(version="v1.34.0", topologyManagerPolicy="restricted")
Shapes = tuple[tuple[int, int], ...]
"""CPUs, and GiB of an init container, 0 for none."""
SHAPES: Shapes = ((2, 0), (3, 0), (4, 0), (6, 0), (2, 12), (4, 20))
FRAGILE: Shapes = ((2, 0), (3, 0), (6, 0), (2, 12), (13, 20), (14, 8), (11, 25))
"""Some of these fit only where their init containers find the first NUMA node full."""
JUDGE = judge()


def _pod(number: int, random: Random, clock: float, shapes: Shapes) -> Pod:
    cpus, init_gib = random.choice(shapes)
    document = pod_of(cpus, f"{random.choice((1, 9, 17))}Gi", name=f"p{number}")
    document["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{int(clock) % 60:02}Z"
    if init_gib:
        amounts = {"cpu": "1", "memory": f"{init_gib}Gi"}
        init = {"name": "init", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
        document["spec"]["initContainers"] = [init]
    return pod_from_json(document)


@dataclass
class Play:
    """`log`: what the API server says, in order. `at`: how far the kubelet and the extender have read it.

    `sudden`: pods may end without having been asked to. `ended_at`: where the log tells of the last that did, while
    this may matter to a pod on its way; `told_at`: how long the log was when the extender heard of it.
    """

    random: Random
    node: SampleNode = EMPTY
    shapes: Shapes = SHAPES
    sudden: bool = False
    cluster: NodeStore = field(
        default_factory=lambda: NodeStore(
            stale_after_seconds=1e6, max_nodes=1, timeouts=Timeouts(assume=1e6, finish=3, ghost=1e5, absence=1e6)
        )
    )
    now: float = 0.0
    truth: ManagerState = field(init=False)
    sequence: int = 0
    log: list[tuple[str, Pod]] = field(default_factory=list)
    kubelet_at: int = 0
    extender_at: int = 0
    kubelet_is_down: bool = False
    waiting: list[Pod] = field(default_factory=list)
    on_wire: list[Pod] = field(default_factory=list)
    active: dict[str, Pod] = field(default_factory=dict)
    unstarted: list[Pod] = field(default_factory=list)
    told_to_leave: set[str] = field(default_factory=set)
    leaving: list[Pod] = field(default_factory=list)
    on_the_way: list[ManagerState] = field(default_factory=list)
    ended_at: int | None = None
    told_at: int | None = None
    held_back: int = 0

    def begin(self) -> None:
        self.truth = self.node.state
        self.cluster.set_watching(Watching.LIVE, 0)
        self.report(self.truth)

    def step(self, number: int) -> None:
        self.now += 0.1
        possible: list[tuple[float, Callable[[], object]]] = [
            (2.0, lambda: self.waiting.append(_pod(number, self.random, self.now / 2, self.shapes))),
            (3.0 * bool(self.waiting), self.bind),
            (3.0 * bool(self.on_wire), self.bind_late),
            (3.0 * (self.extender_at < len(self.log)), self.extender_reads),
            (0.3 * (self.extender_at < len(self.log)), self.extender_lists),
            (3.0 * (self.kubelet_at < len(self.log) and not self.kubelet_is_down), self.kubelet_reads),
            (0.4 if not self.kubelet_is_down else 1.0, self.kubelet_stops_or_starts),
            (1.0 * bool(self.unstarted and not self.kubelet_is_down), self.start),
            (0.7 * bool(self.active), self.ask_to_leave),
            (2.0 * bool(self.leaving and not self.kubelet_is_down), self.tear_down),
            (2.0 * (self.sudden and bool(self.active) and not self.kubelet_is_down), self.end_suddenly),
            (1.0, lambda: self.on_the_way.append(self.truth)),
            (1.5 * bool(self.on_the_way), self.hear_report),
        ]
        weights = [weight for weight, _ in possible]
        (happens,) = self.random.choices([what for _, what in possible], weights)
        happens()

    def bind(self) -> None:
        """The gate judges, and binds; now and then the reply is lost, and the binding comes late, or never."""
        pod = self.waiting.pop(self.random.randrange(len(self.waiting)))
        (node_class,) = classes_at(self.cluster, ["n"], self.now)
        if JUDGE(PodShape(pod), node_class).refusal is not None:
            return
        if not self.cluster.assume("n", pod, self.now):
            self.cluster.forget("n", pod.uid, self.now)
            return
        survives_sudden_exit = self.cluster.survives_sudden_exit("n", pod.uid, self.now)
        if survives_sudden_exit is not None and not survives_sudden_exit():
            self.held_back += 1
            self.cluster.forget("n", pod.uid, self.now)
            return
        if self.random.random() < 0.85:
            self.log.append(("bind", pod))
            return
        self.cluster.doubt("n", pod.uid, self.now)
        if self.random.random() < 0.7:
            self.on_wire.append(pod)

    def bind_late(self) -> None:
        self.log.append(("bind", self.on_wire.pop(self.random.randrange(len(self.on_wire)))))

    def extender_reads(self) -> None:
        self._tell(*self.log[self.extender_at], ordered=True)
        self.extender_at += 1

    def extender_lists(self) -> None:
        """Its watch begins anew: it is told of what it has missed, in no order."""
        missed = self.log[self.extender_at :]
        self.extender_at = len(self.log)
        for kind, pod in sorted(missed, key=lambda event: (event[0] not in ("bind", "started"), event[1].uid)):
            self._tell(kind, pod, ordered=False)

    def _tell(self, kind: str, pod: Pod, *, ordered: bool) -> None:
        match kind:
            case "bind" | "started":
                self.cluster.see_pod("n", pod, self.now, started=kind == "started", ordered=ordered)
            case "leaving":
                self.told_to_leave.add(pod.uid)
                self.cluster.see_leaving("n", pod.uid, self.now)
            case "end":
                self.cluster.see_end("n", pod.uid, self.now)

    def kubelet_reads(self) -> None:
        kind, pod = self.log[self.kubelet_at]
        self.kubelet_at += 1
        self._kubelet_hears(kind, pod)

    def kubelet_stops_or_starts(self) -> None:
        """After a pause it lists: what it has missed comes at once, and older pods first."""
        self.kubelet_is_down = not self.kubelet_is_down
        if self.kubelet_is_down:
            return
        missed = self.log[self.kubelet_at :]
        self.kubelet_at = len(self.log)
        self.random.shuffle(missed)
        for kind, pod in sorted(missed, key=lambda event: (event[0] != "bind", event[1].created_at)):
            self._kubelet_hears(kind, pod)

    def _kubelet_hears(self, kind: str, pod: Pod) -> None:
        if kind == "leaving":
            self.leaving.append(pod)
        if kind != "bind":
            return
        outcome = admit(self.node.kubelet, self.truth, resolve(pod, self.node.kubelet.rules))
        assert isinstance(outcome.verdict, Admitted), "bound, and refused"
        self.truth = outcome.state
        self.active[pod.uid] = pod
        self.unstarted.append(pod)
        self.log.append(("started", pod))

    def start(self) -> None:
        pod = self.unstarted.pop(self.random.randrange(len(self.unstarted)))
        self.truth = start_pod(self.truth, resolve(pod, self.node.kubelet.rules))

    def ask_to_leave(self) -> None:
        uid = self.random.choice(sorted(self.active))
        self.log.append(("leaving", self.active.pop(uid)))

    def tear_down(self) -> None:
        """Only of what the extender has heard: an end that nobody has announced is beyond what can be known."""
        for pod in self.leaving:
            if pod.uid in self.told_to_leave:
                self.leaving.remove(pod)
                self.unstarted = [each for each in self.unstarted if each.uid != pod.uid]
                self.truth = release_pods(self.truth, (pod.uid,))
                self.log.append(("end", pod))
                return

    def end_suddenly(self) -> None:
        """A pod ends, and nobody has told of it; not again before every pod that was judged meanwhile is admitted."""
        if self.told_at is None and self.ended_at is not None and self.extender_at > self.ended_at:
            self.told_at = len(self.log)
        if self.ended_at is not None and (self.told_at is None or self.kubelet_at < self.told_at or self.on_wire):
            return
        pod = self.active.pop(self.random.choice(sorted(self.active)))
        self.unstarted = [each for each in self.unstarted if each.uid != pod.uid]
        self.truth = release_pods(self.truth, (pod.uid,))
        self.ended_at, self.told_at = len(self.log), None
        self.log.append(("end", pod))

    def hear_report(self) -> None:
        state = self.on_the_way.pop(0)
        if self.random.random() < 0.8:
            self.report(state)

    def report(self, state: ManagerState) -> None:
        """What the kubelet writes down: not what the pod admitted last could still reuse."""
        self.sequence += 1
        state = ManagerState(
            cpu=replace(state.cpu, reusable=("", 0)),
            memory=replace(state.memory, reusable=("", {})),
            devices=replace(state.devices, reusable=("", {})),
        )
        observation = Observation(
            node_name="n",
            boot_id="b",
            sequence=self.sequence,
            digest=str(self.sequence),
            observed_at=0.0,
            kubelet=self.node.kubelet,
            state=state,
        )
        self.cluster.observe(observation, self.now)

    def check(self) -> None:
        """Wherever the kubelet has met all bindings, its state is one of those that the next pod can meet."""
        if any(kind == "bind" for kind, _ in self.log[self.kubelet_at :]):
            return
        (node_class,) = classes_at(self.cluster, ["n"], self.now)
        if node_class.complete:
            assert self.truth.key in {state.key for state in node_class.states}


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_truth_is_always_among_the_states_that_are_followed(seed: int) -> None:
    play = Play(Random(seed))
    play.begin()
    for number in range(60):
        play.step(number)
        play.check()


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_no_single_end_that_nobody_told_of_gets_a_bound_pod_refused(seed: int) -> None:
    play = Play(Random(seed), node=STRICT, shapes=FRAGILE, sudden=True)
    play.begin()
    for number in range(60):
        play.step(number)


def test_most_of_the_time_all_that_is_possible_can_be_followed() -> None:
    complete = []
    for seed in range(40):
        play = Play(Random(seed))
        play.begin()
        for number in range(60):
            play.step(number)
            complete.append(classes_at(play.cluster, ["n"], play.now)[0].complete)
    assert sum(complete) > 0.7 * len(complete)


def test_two_pods_of_one_second_may_be_admitted_in_either_order() -> None:
    play = Play(Random(1))
    play.begin()
    document = pod_of(14, name="first"), pod_of(6, name="second")
    first, second = (replace(pod_from_json(each), created_at=7) for each in document)
    play.cluster.assume("n", first, 1)
    play.cluster.assume("n", second, 2)
    (either,) = classes_at(play.cluster, ["n"], 2)

    older = replace(first, created_at=6)
    other = Play(Random(1))
    other.begin()
    other.cluster.assume("n", older, 1)
    other.cluster.assume("n", second, 2)
    (one,) = classes_at(other.cluster, ["n"], 2)

    assert len(one.states) == 1
    assert {state.key for state in one.states} <= {state.key for state in either.states}
