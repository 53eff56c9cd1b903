"""One node, its kubelet, an API server, and an extender that hears of both late.

The kubelet may lose its watch and then learn of several pods at once, and so may the extender. The reply to a binding
may be lost, and the binding itself may come late. Where `sudden`, pods also end without having been asked to, one at a
time.

Each step is a method. Its arguments make every choice, so a story repeats exactly; *which* counts modulo the number of
candidates.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from extender.cluster.events import BindingInDoubt, PodForgotten, PodGone, PodSeen, PodTerminating, Watching
from extender.cluster.node import Observation, OutdatedError
from extender.cluster.pod_tracker import Timeouts
from extender.cluster.store import NodeStore
from extender.cluster.sudden_exit import MAX_EXIT_ADMISSIONS
from extender.replay.pod import Pod
from extender.samples.nodes import SampleNode
from extender.scheduling.pod_shape import PodShape
from extender.wire.pods import pod_from_json
from tests.cluster.reading import classes_at
from tests.observations import observation_of
from tests.reports import pod_of, sample, with_init
from tests.subjects import judge
from tests.world.kubelet import Kubelet

EMPTY: Final = sample(version="v1.27.0", topologyManagerPolicy="best-effort")
STRICT: Final = sample(version="v1.34.0", topologyManagerPolicy="restricted")
Shapes = tuple[tuple[int, int], ...]
"""CPUs, and GiB of an init container, 0 for none."""
SHAPES: Final[Shapes] = ((2, 0), (3, 0), (4, 0), (6, 0), (2, 12), (4, 20))
FRAGILE: Final[Shapes] = ((2, 0), (3, 0), (6, 0), (2, 12), (13, 20), (14, 8), (11, 25))
"""Some of these fit only where their init containers find the first NUMA node full."""
MEMORY_GIB: Final = (1, 9, 17)
JUDGE: Final = judge()


def make_pod(number: int, cpus: int, memory_gib: int, init_gib: int, created_at: int) -> dict[str, Any]:
    document = pod_of(cpus, f"{memory_gib}Gi", name=f"p{number}")
    document["metadata"]["creationTimestamp"] = f"2026-01-01T00:{created_at // 60:02}:{created_at % 60:02}Z"
    if init_gib:
        with_init(document, 1, f"{init_gib}Gi")
    return document


@dataclass
class Story:
    """`log`: what the API server says, in order. `kubelet_at`, `extender_at`: how far each of them has read it.

    `ended_at`: where the log tells of the last sudden end, while it may matter to a pod that is bound and not yet
    admitted; `told_at`: how long the log was when the extender had read of it.
    """

    node: SampleNode = EMPTY
    shapes: Shapes = SHAPES
    cluster: NodeStore = field(
        default_factory=lambda: NodeStore(
            stale_after_seconds=1e6, max_nodes=1, timeouts=Timeouts(assume=1e6, finish=3, ghost=1e5, absence=1e6)
        )
    )
    watching: Watching = Watching.LIVE
    now: float = 0.0
    second: int = 0
    pods: int = 0
    kubelet: Kubelet = field(init=False)
    manifests: dict[str, dict[str, Any]] = field(default_factory=dict)
    written: int = 0
    arrived: int = 0
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
    unsent: list[Observation] = field(default_factory=list)
    ended_at: int | None = None
    told_at: int | None = None

    def __post_init__(self) -> None:
        self.kubelet = Kubelet.of(self.node)
        self.cluster.set_watching(self.watching, 0)
        self.write_report()
        self.send_report()

    def create_pod(self, shape: int, memory: int, *, later: bool) -> None:
        """A pod that waits for a node; *later*: created in another second than the one before."""
        self.second += later
        cpus, init_gib = self.shapes[shape % len(self.shapes)]
        gib = MEMORY_GIB[memory % len(MEMORY_GIB)]
        document = make_pod(self.pods, cpus, gib, init_gib, self.second)
        pod = pod_from_json(document)
        self.manifests[pod.uid] = document
        self.waiting.append(pod)
        self.pods += 1

    def bind(self, which: int, reply: str) -> None:
        """The gate judges and binds. *reply* "lost": the extender does not learn of it; "late": nor is it bound yet."""
        pod = self.waiting.pop(which % len(self.waiting))
        (node_class,) = classes_at(self.cluster, ["n"], self.now)
        if JUDGE(PodShape(pod), node_class).refusal is not None:
            return
        if not self.cluster.assume("n", pod, self.now)():
            self.cluster.apply(PodForgotten("n", pod.uid), now=self.now)
            return
        survives = self.cluster.survives_sudden_exit("n", pod.uid, self.now)
        if survives is not None and not survives(MAX_EXIT_ADMISSIONS):
            self.cluster.apply(PodForgotten("n", pod.uid), now=self.now)
            return
        if reply == "received":
            self.log.append(("bind", pod))
            return
        self.cluster.apply(BindingInDoubt("n", pod.uid), now=self.now)
        if reply == "late":
            self.on_wire.append(pod)

    def bind_late(self, which: int) -> None:
        """A binding whose reply was lost comes to pass."""
        self.log.append(("bind", self.on_wire.pop(which % len(self.on_wire))))

    def extender_reads(self) -> None:
        """Its watch delivers one event."""
        self._extender_hears(*self.log[self.extender_at], ordered=True)
        self.extender_at += 1

    def extender_lists(self) -> None:
        """Its watch starts again: it learns of all that it has missed, in no order."""
        missed = self.log[self.extender_at :]
        self.extender_at = len(self.log)
        for kind, pod in sorted(missed, key=lambda event: (event[0] not in ("bind", "started"), event[1].uid)):
            self._extender_hears(kind, pod, ordered=False)

    def _extender_hears(self, kind: str, pod: Pod, *, ordered: bool) -> None:
        match kind:
            case "bind" | "started":
                self.cluster.apply(PodSeen("n", pod, started=kind == "started", ordered=ordered), now=self.now)
            case "leaving":
                self.told_to_leave.add(pod.uid)
                self.cluster.apply(PodTerminating("n", pod.uid), now=self.now)
            case "end":
                self.cluster.apply(PodGone("n", pod.uid), now=self.now)

    def kubelet_reads(self) -> None:
        """Its watch delivers one event."""
        kind, pod = self.log[self.kubelet_at]
        self.kubelet_at += 1
        self._kubelet_hears(kind, pod)

    def kubelet_stops(self) -> None:
        """From now on it reads nothing."""
        self.kubelet_is_down = True

    def kubelet_starts(self, random: Random) -> None:
        """It lists: what it has missed comes at once, older pods first, those of one second in any order."""
        self.kubelet_is_down = False
        missed = self.log[self.kubelet_at :]
        self.kubelet_at = len(self.log)
        random.shuffle(missed)
        for kind, pod in sorted(missed, key=lambda event: (event[0] != "bind", event[1].created_at)):
            self._kubelet_hears(kind, pod)

    def _kubelet_hears(self, kind: str, pod: Pod) -> None:
        if kind == "leaving":
            self.leaving.append(pod)
        if kind != "bind":
            return
        verdict = self.kubelet.admit(self.manifests[pod.uid])
        if not verdict["admit"]:
            self.kubelet_refuses(pod, verdict)
            return
        self.active[pod.uid] = pod
        self.unstarted.append(pod)
        self.log.append(("started", pod))

    def kubelet_refuses(self, pod: Pod, verdict: Mapping[str, Any]) -> None:
        """No bound pod is refused."""
        raise AssertionError(f"{pod.uid} is bound, and refused: {verdict}")

    def start_pod(self, which: int) -> None:
        """The init containers of an admitted pod are over."""
        self.kubelet.start(self.unstarted.pop(which % len(self.unstarted)).uid)

    def delete_pod(self, which: int) -> None:
        """The deletion of a running pod is requested."""
        self.log.append(("leaving", self._pick_active(which)))

    def _pick_active(self, which: int) -> Pod:
        return self.active.pop(sorted(self.active)[which % len(self.active)])

    @property
    def ending(self) -> Pod | None:
        """The next pod to end; the extender has learned of its deletion: else its end would be a sudden one."""
        return next((pod for pod in self.leaving if pod.uid in self.told_to_leave), None)

    def end_pod(self) -> None:
        """A deleted pod ends."""
        pod = self.ending
        assert pod is not None
        self.leaving.remove(pod)
        self._end(pod)

    def _end(self, pod: Pod) -> None:
        self.unstarted = [each for each in self.unstarted if each.uid != pod.uid]
        self.kubelet.end(pod.uid)
        self.log.append(("end", pod))

    @property
    def may_end_suddenly(self) -> bool:
        """Not again before every pod that was judged without knowing of the last sudden end is admitted."""
        if self.told_at is None and self.ended_at is not None and self.extender_at > self.ended_at:
            self.told_at = len(self.log)
        is_past = self.told_at is not None and self.kubelet_at >= self.told_at and not self.on_wire
        return bool(self.active) and not self.kubelet_is_down and (self.ended_at is None or is_past)

    def end_suddenly(self, which: int) -> None:
        """A pod ends that nobody has asked to."""
        pod = self._pick_active(which)
        self.ended_at, self.told_at = len(self.log), None
        self._end(pod)

    def end_suddenly_before(self, which: int, pods: Sequence[tuple[int, int, bool]]) -> None:
        """A pod ends suddenly, new ones are bound without knowing of it, and the kubelet meets all of them.

        *pods*: of each the shape, the memory and whether it is created later; see `create_pod`.
        """
        self.end_suddenly(which)
        for shape, memory, later in pods:
            self.create_pod(shape, memory, later=later)
            self.bind(len(self.waiting) - 1, "received")
        while self.kubelet_at < len(self.log):
            self.kubelet_reads()

    def write_report(self) -> None:
        """The exporter reads the kubelet's state."""
        self.written += 1
        self.unsent.append(observation_of("n", self.node, self.written, self.kubelet.state))

    def send_report(self, which: int = 0, *, lost: bool = False) -> None:
        """A report arrives, unless it is lost. One that a newer one has overtaken must be refused."""
        report = self.unsent.pop(which % len(self.unsent))
        if lost:
            return
        if report.sequence > self.arrived:
            self.arrived = report.sequence
            self.cluster.observe(report, self.now)
            return
        try:
            self.cluster.observe(report, self.now)
        except OutdatedError:
            return
        raise AssertionError("a report that had been overtaken was taken")

    def check(self) -> None:
        """Wherever the kubelet has met all bindings, its state is one of those that the next pod can meet."""
        if any(kind == "bind" for kind, _ in self.log[self.kubelet_at :]):
            return
        (node_class,) = classes_at(self.cluster, ["n"], self.now)
        if node_class.complete:
            assert self.kubelet.state.key in {state.key for state in node_class.states}


def _replies(random: Random) -> str:
    return random.choices(("received", "late", "lost"), (85, 10, 5))[0]


WEIGHTS: Final[Mapping[str, float]] = {
    "create_pod": 2,
    "bind": 3,
    "bind_late": 3,
    "extender_reads": 3,
    "extender_lists": 0.3,
    "kubelet_reads": 3,
    "kubelet_stops": 0.4,
    "kubelet_starts": 1,
    "start_pod": 1,
    "delete_pod": 0.7,
    "end_pod": 2,
    "write_report": 1,
    "send_report": 1.5,
}
"""How often each step happens in a story that is drawn at random."""


def random_step(story: Story, random: Random) -> None:
    """One step that is possible now, drawn by `WEIGHTS`: for statistics of what stories are like."""
    is_up = not story.kubelet_is_down
    which = random.randrange(1000)
    steps: dict[str, tuple[bool, Callable[[], None]]] = {
        "create_pod": (True, lambda: story.create_pod(which, random.randrange(3), later=random.random() < 0.3)),
        "bind": (bool(story.waiting), lambda: story.bind(which, _replies(random))),
        "bind_late": (bool(story.on_wire), lambda: story.bind_late(which)),
        "extender_reads": (story.extender_at < len(story.log), story.extender_reads),
        "extender_lists": (story.extender_at < len(story.log), story.extender_lists),
        "kubelet_reads": (is_up and story.kubelet_at < len(story.log), story.kubelet_reads),
        "kubelet_stops": (is_up, story.kubelet_stops),
        "kubelet_starts": (not is_up, lambda: story.kubelet_starts(random)),
        "start_pod": (is_up and bool(story.unstarted), lambda: story.start_pod(which)),
        "delete_pod": (bool(story.active), lambda: story.delete_pod(which)),
        "end_pod": (is_up and story.ending is not None, story.end_pod),
        "write_report": (True, story.write_report),
        "send_report": (bool(story.unsent), lambda: story.send_report(which % 7 // 5, lost=which % 5 == 0)),
    }
    possible = [name for name, (is_possible, _) in steps.items() if is_possible]
    (name,) = random.choices(possible, [WEIGHTS[name] for name in possible])
    story.now += 0.1
    steps[name][1]()
