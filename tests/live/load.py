"""A load of mixed pods near capacity, with something that disturbs it."""

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.live.api import Json
from tests.live.book import Book, Entry
from tests.live.cluster import Cluster, Say
from tests.live.node import Given
from tests.live.processes import Program, until
from tests.live.report import Findings
from tests.live.scheduling import Extender
from tests.live.tally import Tally
from tests.live.workload import Fed, Feeder, drill_pod

Disturb = Callable[[threading.Event], None]
"""Runs in a thread of its own until the event is set."""
PREDICTED = 0.5
"""Of the pods of a load, at least this share has a prediction that came true. Kubelets align most of the pods."""
OTHERWISE = 0.02
"""Of the pods of a load, at most this share is placed otherwise than predicted: two pods may come in either order."""
REPORTED_SECONDS = 1.0
"""From the end of a kubelet until its exporter's report of it has been read, on a busy machine."""


@dataclass
class Round:
    """What became of one load. `given`: what its containers were created with; empty: there is no runtime.

    `refused_reports`: lines of the exporters' logs. `alone`: by the names of pods that were given up and of nodes, why
    the kubelet refuses the pod; "" if it admits it.
    """

    fed: Fed
    tally: Tally
    entries: list[Entry] = field(default_factory=list)
    given: Sequence[Given] = ()
    refused_reports: Sequence[str] = ()
    alone: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def refused_by_all(self) -> list[str]:
        """The pods given up that every kubelet refuses when nothing else runs."""
        return [name for name, reasons in self.alone.items() if all(reasons.values())]

    @property
    def seconds_to_bind(self) -> list[float]:
        """From creation to binding, for each pod that was bound."""
        return [each.bound_at - each.created_at for each in self.entries if each.bound_at is not None]

    @property
    def refused_unforeseen(self) -> list[Entry]:
        """Pods that a kubelet's first list refused, bound before a report could say that the kubelet had stopped."""
        stopped = self.tally.refused_first
        return [
            each
            for each in self.entries
            if each.uid in stopped and (each.bound_at or 0.0) < stopped[each.uid] + REPORTED_SECONDS
        ]

    @property
    def refused(self) -> str:
        """How many kubelets refused, and why."""
        return counted(self.tally.refused)

    @property
    def bind_times(self) -> str:
        """Median and highest seconds from creation to binding."""
        times = sorted(self.seconds_to_bind)
        return f"{times[len(times) // 2]:.2f}, {times[-1]:.1f}" if times else "none"


def feed(
    running: Cluster,
    name: str,
    *,
    seed: int,
    pods: int,
    life_seconds: float,
    disturb: Disturb | None = None,
    mark: str = "",
    prepare: Callable[[list[Json]], None] = lambda _pods: None,
    load: float = 0.95,
    patience: float = 45.0,
    every: float = 0.0,
) -> Round:
    """Feed the pods of a seed to the scheduler that runs, and disturb that; until the last pod has ended.

    *mark*: a resource of which every pod asks for one. *prepare*: changes the pods before the first is created. *load*,
    *patience* and *every*: of `Feeder`.
    """
    random, nodes = Random(seed), running.nodes
    wanted = [drill_pod(f"{name}-{number}", number, random) for number in range(pods)]
    for pod in wanted if mark else ():
        resources = pod["spec"]["containers"][0].setdefault("resources", {})
        for kind in ("requests", "limits"):
            resources[kind] = {**resources.get(kind, {}), mark: "1"}
    prepare(wanted)
    before = nodes.tally.copy()
    nodes.live_for(life_seconds)
    enough = threading.Event()
    faults: list[BaseException] = []
    thread = threading.Thread(target=_guarded, args=(disturb, enough, faults), name="disturb")
    with Book(running.plane.url, running.plane.admin_context) as book:
        thread.start()
        try:
            cpus = sum(node.allocatable["cpu"] for node in nodes.all) / 1000
            feeder = Feeder(running.plane.api, book, cpus, load=load, patience=patience, every=every)
            parts = (running.plane.etcd, running.plane.apiserver, running.scheduler, *running.extenders)
            fed = feeder.feed(wanted, _Progress(pods, name, running.say, parts))
        finally:
            enough.set()
            thread.join()
        mine = [entry for entry in book.entries() if entry.name.startswith(f"{name}-")]
    if faults:
        raise faults[0]
    return Round(fed, nodes.tally.since(before), mine, nodes.given, nodes.refused_reports())


def _guarded(disturb: Disturb | None, enough: threading.Event, faults: list[BaseException]) -> None:
    if disturb is not None:
        try:
            disturb(enough)
        except Exception as error:  # noqa: BLE001 - raised again by the scene's thread
            faults.append(error)


def counted(reasons: Counter[str]) -> str:
    """A total, and what it consists of."""
    parts = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    return f"{reasons.total()}{f' ({parts})' if parts else ''}"


def audit_of(extender: Extender, say: Say) -> Counter[str]:
    """What the extender's audit says once no pod is in flight."""
    until(lambda: (extender.get("/v1/audit") or {}).get("pods_in_flight") == 0, 90, "no pod in flight")
    view = extender.get("/v1/audit")
    for each in view["recent"][:5]:
        say(f"audit: {each['pod_name']} on {each['node_name']}: {each['predicted']} / {each['reported']}")
    return counts_of(view)


def counts_of(view: Json | None) -> Counter[str]:
    """Predictions by how they came out; *view*: the answer of /v1/audit."""
    counts: Counter[str] = Counter()
    for each in view["counts"] if view else ():
        counts[each["result"]] += each["count"]
    return counts


def show_audit(findings: Findings, audit: Counter[str], pods: int, *, share_otherwise: float = OTHERWISE) -> None:
    """The audit's counts: of half of the pods a prediction came true, and no pod was refused against it.

    Almost none was placed otherwise than predicted. Pods without a prediction that was settled are left out.
    """
    shown = ", ".join(f"{name} {count}" for name, count in sorted(audit.items()))
    least, otherwise = math.ceil(PREDICTED * pods), math.floor(share_otherwise * pods)
    ok = audit["agreed"] >= least > 0 and not audit["false_admit"] and audit["placement"] <= otherwise
    what = "predictions against the kubelets (/v1/audit)"
    bound = f"no false_admit, at least {least} agreed, at most {otherwise} placement"
    findings.must(what, shown or "none", bound, ok=ok)


class _Progress:
    """Prints a line for each fifth of the pods. Raises an error if a part has ended that the scene did not kill."""

    def __init__(self, total: int, name: str, say: Say, parts: Sequence[Program]) -> None:
        self._total, self._name, self._say, self._next = total, name, say, total // 5
        self._parts = parts

    def __call__(self, done: int) -> None:
        for part in self._parts:
            part.check()
        if done >= self._next:
            self._next = done + max(1, self._total // 5)
            self._say(f"{self._name}: {done} of {self._total} pods have ended")
