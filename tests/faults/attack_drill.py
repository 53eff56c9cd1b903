"""One attack at a time on a running extender, beside honest traffic: what honest callers see, against idle.

Each attack gets a cluster and an extender of its own. The honest half (`honest`) is measured while nobody attacks, then
in several windows with the attack at the beginning of each. The best of these windows counts for times: other work on
the machine makes single windows worse, and what the attack does it does in every window.
"""

import contextlib
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import orjson

from tests.fakes.apiserver import FakeApiServer
from tests.fakes.k8s.resources import ApiProblem
from tests.faults.honest import CANARY, NODES, Honest, Line, Window, honest_half
from tests.faults.parts import Extender, kubeconfig
from tests.faults.people import MIB, cpu_seconds, family_of, memory_mib
from tests.reports import pod_of
from tests.waiting import PATIENCE_SECONDS

JSON = dict[str, Any]
SETTINGS: Final = {
    "unknown_nodes": "refuse", "gangs": "on", "dra": "on", "topologies": "on", "namespace_demands": "on",
    "sibling_labels": "kind", "read_rate": 1000, "stale_after_seconds": 7200,
}  # fmt: skip
"""Everything that can be switched on is on."""
SEEN_SECONDS: Final = 10.0
"""Within this time a running extender must have heard of a pod."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What fails an attack's drill. The 99th percentile may be so many times the idle one, and so much in any case."""

    p99_ratio: float = 3.0
    p99_floor_ms: float = 50.0
    noise_ms: float = 1000.0
    """Calls that are slow by less than this, while the extender uses no more CPU than idle, waited for the machine."""
    noise_cpu_ratio: float = 1.25
    stolen: float = 0.1
    """A soak's window in which the extender waited for a CPU for more than this part of the time says no times."""
    alive_seconds: float = 0.5
    rss_mib: float = 100.0
    own_seconds: float = 4.0
    """A filter call of the attacker's own: `filter_seconds`, and what else a call takes on a busy machine."""
    log_mib: float = 0.25


class World:
    """What an attack can touch: the API server by what its author may do, the extender by its doors."""

    def __init__(self, directory: Path, settings: dict[str, object], mutant: str = "") -> None:
        """*mutant*: the property that the extender lacks, by the name of its function in `mutants`; "" for none."""
        self._mutant = mutant
        self.directory, self.settings = directory, {**SETTINGS, **settings}
        self.server = FakeApiServer(bookmark_seconds=2.0)
        self.extender: Extender
        self.honest: Honest
        self.line: Line
        self.names: list[str] = [*NODES, CANARY]
        self.own_seconds: list[float] = []
        """How long filter calls for pods of the attacker took; the scheduler makes them, one after another."""
        self.pods: deque[tuple[str, str]] = deque()
        """Name and namespace of the attacker's pods, the oldest first."""
        self._scheduling = threading.Lock()

    @contextmanager
    def running(self) -> Iterator["World"]:
        with ExitStack() as stack:
            stack.enter_context(self.server)
            for name in self.names:
                self.register(name)
            self.extender = Extender(
                self.directory / "extender.log", kubeconfig=kubeconfig(self.directory, self.server.url), **self.settings
            )
            if self._mutant:
                self.extender.command = ("-m", "tests.faults.mutants", self._mutant, *self.extender.command[2:])
            stack.enter_context(self.extender)
            self.line = stack.enter_context(Line(self.extender.port))
            self.await_ready()
            api_port = int(self.server.url.rpartition(":")[2])
            self.honest = stack.enter_context(honest_half(self.extender.port, api_port, self.names))
            self.await_known(len(NODES))
            yield self

    def register(self, name: str, *, kind: str = "", cpu: int = 32, age: int = 0) -> None:
        """Create a Node object."""
        metadata = {"name": name, "labels": {"kind": kind} if kind else {}}
        amounts = {"cpu": str(cpu), "memory": "64Gi", "pods": "110"}
        created = {"creationTimestamp": f"2026-01-01T00:00:{age:02}Z"} if age else {}
        self.server.nodes.create(
            {
                "metadata": {**metadata, **created},
                "status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}, "capacity": amounts, "allocatable": amounts},
            }
        )

    def join(self, name: str, **node: Any) -> None:
        """A node comes, unless it is there, and is a candidate of every call."""
        if name in self.names:
            return
        self.register(name, **node)
        self.names = [*self.names, name]
        self.honest.candidates(self.names)

    def create(self, pod: JSON) -> JSON:
        """A pod of the attacker."""
        created = self.server.pods.create(pod)
        self.pods.append((created["metadata"]["name"], created["metadata"]["namespace"]))
        return created

    def delete(self, name: str, namespace: str) -> None:
        """Delete a pod at once, if there is one."""
        with contextlib.suppress(ApiProblem):
            self.server.pods.delete(name, namespace)

    def trim(self, kept: int) -> None:
        """Delete the oldest pods of the attacker."""
        while len(self.pods) > kept:
            self.delete(*self.pods.popleft())

    def report(self, document: JSON) -> int:
        """A node reports; the status of the reply, 0 for none."""
        with Line(self.extender.port) as line:
            return line.call("PUT", f"/v1/nodes/{document['node_name']}/report", orjson.dumps(document))[0]

    def filter(self, pod: JSON, *names: str) -> list[str]:
        """kube-scheduler asks about a pod of the attacker; the nodes that are offered."""
        with self._scheduling:
            began = time.monotonic()
            with Line(self.extender.port) as line:
                answer = line.filter(pod, names or self.names)
            self.own_seconds.append(time.monotonic() - began)
        return answer[1] if answer else []

    def is_ready(self) -> bool:
        return self.line.call("GET", "/readyz")[0] == 200

    def await_ready(self, seconds: float = PATIENCE_SECONDS) -> bool:
        is_over = within(seconds, lambda: self.is_ready() or not self.extender.is_running)
        assert self.extender.is_running, "the extender has ended"
        return is_over

    def await_known(self, nodes: int) -> None:
        assert within(PATIENCE_SECONDS, lambda: self.exact() >= nodes), "the honest nodes were never known"

    def exact(self) -> float:
        return self.extender.metric('numa_extender_nodes{certainty="exact"}')

    def sees_pods(self) -> str:
        """Why the extender does not follow the pods of the cluster; "" if it does. Asked on the canary node."""
        pod = pod_of(14, name=f"canary-{time.monotonic_ns()}")
        pod["metadata"]["namespace"], pod["metadata"]["uid"] = "canary", f"uid-{time.monotonic_ns()}"
        probe = pod_of(14, name="canary-probe")
        if not within(SEEN_SECONDS, lambda: bool(self._offered(probe))):
            return "the canary node is not offered although it is empty"
        for number in range(2):
            name = f"{pod['metadata']['name']}-{number}"
            bound = {**pod, "metadata": {**pod["metadata"], "name": name, "uid": f"uid-{name}"}}
            self.server.pods.create({**bound, "spec": {**pod["spec"], "nodeName": CANARY}})
        is_seen = within(SEEN_SECONDS, lambda: not self._offered(probe))
        for number in range(2):
            self.server.pods.delete(f"{pod['metadata']['name']}-{number}", "canary")
        if not is_seen:
            return f"pods that are on a node were not seen within {SEEN_SECONDS:g} s"
        is_gone = within(SEEN_SECONDS, lambda: bool(self._offered(probe)))
        return "" if is_gone else f"the end of pods was not seen within {SEEN_SECONDS:g} s"

    def open_watches(self, plural: str) -> int:
        """How many watches of this resource the API server serves."""
        return sum(
            len(watchers)
            for resource, collection in self.server.store.collections.items()
            if resource.plural == plural
            for watchers in list(collection.watchers.values())
        )

    def _offered(self, pod: JSON) -> list[str]:
        answer = self.line.filter(pod, [CANARY])
        return answer[1] if answer else []


def within(seconds: float, condition: Callable[[], object]) -> bool:
    """Whether the condition holds, at the latest after so many seconds."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.05)
    return True


class Attack:
    """What somebody does. A subclass overrides what it needs; its docstring's first line is shown.

    `settings`: of the extender, beside `SETTINGS`. `restarts`: whether the extender is restarted under attack.
    """

    name: str = ""
    settings: dict[str, object] = {}  # noqa: RUF012 - read only
    restarts = False

    def prepare(self, world: World) -> None:
        """What is there before anybody attacks, such as a node that still behaves."""

    def strike(self, world: World, number: int) -> None:
        """Attack; called at the beginning of each window."""

    def check(self, world: World) -> list[str]:  # noqa: ARG002 - for subclasses
        """What else must hold, in sentences where it does not."""
        return []


@dataclass
class Seen:
    """What one attack did. Times are of the best window; `cpu_ms`: of the extender's processes for each honest call."""

    name: str
    idle_p99_ms: float = 0.0
    p99_ms: float = 0.0
    p50_ms: float = 0.0
    idle_cpu_ms: float = 0.0
    cpu_ms: float = 0.0
    alive_seconds: float = 0.0
    stolen: float = 0.0
    grown_mib: float = 0.0
    own_seconds: float = 0.0
    calls: int = 0
    unanswered: int = 0
    refused: int = 0
    placed: int = 0
    waiting: list[str] = field(default_factory=list)
    log_mib: float = 0.0
    wrong: list[str] = field(default_factory=list)
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def line(self) -> str:
        """The figures, for people."""
        return (
            f"{self.name:22} p99 {self.idle_p99_ms:4.0f} ms idle, {self.p99_ms:5.0f} under attack; "
            f"CPU a call {self.idle_cpu_ms:4.1f}, {self.cpu_ms:5.1f} ms; /livez {self.alive_seconds:.2f} s; "
            f"CPU taken by others {self.stolen:.0%}; {self.grown_mib:+5.0f} MiB; own call {self.own_seconds:4.1f} s; "
            f"{self.calls} calls, {self.refused} without a node; {self.placed} placed"
        )

    @property
    def broken(self) -> list[str]:
        """The bounds that do not hold, in sentences; empty: the attack did no harm."""
        bounds = self.bounds
        p99 = max(bounds.p99_floor_ms, bounds.p99_ratio * self.idle_p99_ms)
        is_noise = self.p99_ms < bounds.noise_ms and self.cpu_ms < bounds.noise_cpu_ratio * self.idle_cpu_ms
        faults = (
            (not self.calls, "no honest call was made"),
            (self.unanswered, f"{self.unanswered} honest calls were not answered, or with an error"),
            (
                self.refused > self.calls / 50,
                f"{self.refused} of {self.calls} honest calls were offered no honest node",
            ),
            (self.p99_ms > p99 and not is_noise, f"honest filter p99 was {self.p99_ms:.0f} ms, more than {p99:.0f}"),
            (self.alive_seconds > bounds.alive_seconds, f"/livez took {self.alive_seconds:.2f} s"),
            (self.grown_mib > bounds.rss_mib, f"memory grew by {self.grown_mib:.0f} MiB"),
            (self.own_seconds > bounds.own_seconds, f"a call for the attacker's own pod took {self.own_seconds:.1f} s"),
            (self.waiting, f"{len(self.waiting)} honest pods were not placed"),
            (self.log_mib > bounds.log_mib, f"the log grew by {self.log_mib:.1f} MiB"),
        )
        return [*(text for is_so, text in faults if is_so), *self.wrong]


class Memory:
    """The most memory of the extender's processes since `reset`, MiB; looked at ten times a second."""

    def __init__(self, extender: Extender) -> None:
        self._extender, self.peak = extender, 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def reset(self) -> int:
        """The memory now, from which on the peak counts."""
        self.peak = memory_mib(family_of(self._extender.pid))
        return self.peak

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            self.peak = max(self.peak, memory_mib(family_of(self._extender.pid)))


def play(directory: Path, attack: Attack, *, windows: int = 3, seconds: float = 4.0, mutant: str = "") -> Seen:
    """One attack, from a quiet cluster to the verdict. *mutant*: see `World`."""
    seen = Seen(attack.name)
    world = World(directory, attack.settings, mutant)
    with world.running():
        attack.prepare(world)
        measured(world, lambda: None, seconds / 2)  # caches fill
        idle = [measured(world, lambda: None, seconds / 2) for _ in range(2)]
        seen.idle_p99_ms = min(window.p99_ms for window, _ in idle)
        seen.idle_cpu_ms = statistics.mean(cpu for _, cpu in idle)
        if blind := world.sees_pods():
            seen.wrong.append(f"before the attack: {blind}")
        with Memory(world.extender) as memory:
            before, log = memory.reset(), _size(world)
            under = [measured(world, partial(attack.strike, world, i), seconds) for i in range(windows)]
            _judge(seen, under)
            seen.own_seconds = max(world.own_seconds, default=0.0)
            seen.waiting = world.honest.settle()
            seen.wrong += [f"under attack: {why}" for why in (truth(world),) if why]
            seen.wrong += attack.check(world)
            seen.grown_mib, seen.log_mib = memory.peak - before, (_size(world) - log) / MIB
        if attack.restarts:
            world.extender.kill()
            world.extender.start()
            seen.wrong += [f"after a restart: {why}" for why in (truth(world, PATIENCE_SECONDS / 6),) if why]
    return seen


def _judge(seen: Seen, windows: Sequence[tuple[Window, float]]) -> None:
    best = min((window for window, _ in windows), key=lambda window: window.p99_ms)
    seen.p99_ms, seen.p50_ms = best.p99_ms, best.p50_ms
    seen.alive_seconds = min(window.alive_worst_seconds for window, _ in windows)
    seen.stolen = best.stolen
    seen.cpu_ms = min(cpu for _, cpu in windows)
    seen.calls = sum(len(window.milliseconds) for window, _ in windows)
    seen.unanswered = sum(window.unanswered for window, _ in windows)
    seen.refused = sum(window.refused for window, _ in windows)
    seen.placed = sum(window.placed for window, _ in windows)
    seen.wrong += windows[-1][0].wrong[:5]


def measured(world: World, strike: Callable[[], None], seconds: float) -> tuple[Window, float]:
    """A window, and the milliseconds of CPU that the extender used for each call in it."""
    family = family_of(world.extender.pid)
    cpu, waited = cpu_seconds(family), _waited_seconds(world.extender.pid)
    world.honest.begin()
    ends = time.monotonic() + seconds
    strike()
    time.sleep(max(0.0, ends - time.monotonic()))
    window = world.honest.end()
    used = cpu_seconds(family_of(world.extender.pid)) - cpu
    window.stolen = (_waited_seconds(world.extender.pid) - waited) / window.seconds
    return window, used * 1000 / max(1, len(window.milliseconds))


def _waited_seconds(pid: int) -> float:
    """How long the process's main thread could have run and got no CPU; 0 where the kernel does not count it."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    return 0.0


def truth(world: World, seconds: float = SEEN_SECONDS) -> str:
    """Whether the extender serves and follows the cluster; and what is wrong if it says so and does not."""
    if not world.await_ready(seconds):
        return f"the extender was not ready within {seconds:.0f} s"
    if not within(seconds, lambda: world.exact() >= len(NODES)):
        return f"only {world.exact():.0f} nodes are exact"
    blind = world.sees_pods()
    return f"/readyz says ready, but {blind}" if blind and world.is_ready() else blind


def _size(world: World) -> int:
    with contextlib.suppress(OSError):
        return (world.directory / "extender.log").stat().st_size
    return 0
