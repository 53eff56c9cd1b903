"""Preemption, in rounds: a pod of high priority comes to a full cluster, and its victims are counted.

Left out: pods of low priority that are not placed. The cluster is kept full, so some always wait.
"""

import math
import time
from dataclasses import dataclass, field
from random import Random

from tests.live.api import Json
from tests.live.binaries import Binaries
from tests.live.book import Book, Entry
from tests.live.bounds import ADMITTED
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import audit_of, counted, show_audit
from tests.live.processes import SceneError
from tests.live.report import Findings
from tests.live.workload import create, delete, simple_pod

NODES, ROUNDS = 8, 12
PLACED_SECONDS, FULL_SECONDS = 60.0, 60.0
LOW, HIGH = "live-low", "live-high"


@dataclass
class Rounds:
    """What happened. `elsewhere`: victims on a node to which the pod did not go."""

    placed: int = 0
    preempting: int = 0
    victims: int = 0
    elsewhere: int = 0
    details: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """No victim may be on a node to which the pod does not go."""
    findings = Findings("preemption")
    story, count = Rounds(), plan.rounds or ROUNDS
    with cluster(binaries, plan, say, nodes=NODES) as running:
        for name, value in ((LOW, 0), (HIGH, 1000)):
            metadata = {"name": name}
            kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
            running.plane.api.create({**kind, "metadata": metadata, "value": value})
        running.scheduler.configure(running.extender.url)
        random = Random(plan.seed)
        with Book(running.plane.url, running.plane.admin_context) as book, running.scheduler:
            crowd = _Crowd(running, book, random)
            crowd.fill()
            for number in range(count):
                _round(running, book, crowd, random, number, story)
            bound = sum(entry.bound_at is not None for entry in book.entries())
        audit, admitted = audit_of(running.extender, say), running.nodes.tally.admitted
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes", len(running.nodes.all))
        refused = running.nodes.tally.refused
        findings.details += running.nodes.tally.refusals
    findings.must("rounds with victims", f"{story.preempting} of {count}", "at least 1", ok=story.preempting > 0)
    times = sorted(story.seconds)
    shown = f"{story.placed}; {times[len(times) // 2]:.1f}, {times[-1]:.1f}"
    what = f"pods of high priority that ran within {PLACED_SECONDS:.0f} s; seconds, median and highest"
    findings.must(what, shown, f"{count}", ok=story.placed == count)
    shown = f"{story.victims}; {story.elsewhere}"
    what = "victims; of these on nodes to which the pod did not go"
    findings.must(what, shown, "0 of these", ok=not story.elsewhere)
    least = math.ceil(ADMITTED * bound)
    findings.must("bound; admitted", f"{bound}; {admitted}", f"at least {least} admitted", ok=admitted >= least > 0)
    findings.must("refused after binding", counted(refused), "0", ok=not refused)
    show_audit(findings, audit, bound)
    findings.details[:0] = story.details
    return findings


class _Crowd:
    """Pods of low priority that fill the cluster; one that dies is replaced, as a ReplicaSet would."""

    def __init__(self, running: Cluster, book: Book, random: Random) -> None:
        self._running, self._book, self._random = running, book, random
        self._made = 0
        self._wanted = 0

    def fill(self) -> None:
        """Create pods until some wait and are found unschedulable."""
        cpus = sum(node.allocatable["cpu"] for node in self._running.nodes.all) // 1000
        asked = 0
        while asked < 1.1 * cpus:
            asked += self._create()
            self._wanted += 1
        self.settle()

    def settle(self) -> None:
        """Replace whoever died, and wait until every pod runs or has been refused by the scheduler."""
        alive = [entry for entry in self._entries() if not entry.is_over]
        for _ in range(self._wanted - len(alive)):
            self._create()

        def settled() -> bool:
            entries = [entry for entry in self._entries() if not entry.is_over]
            return len(entries) >= self._wanted and all(entry.running or is_refused(entry.pod) for entry in entries)

        if not self._book.wait(settled, FULL_SECONDS):
            open_ = [e.name for e in self._entries() if not (e.is_over or e.running or is_refused(e.pod))]
            raise SceneError(f"the cluster did not settle; neither running nor refused: {', '.join(open_[:5])}")

    def _create(self) -> int:
        cpus = self._random.choice((2, 2, 3, 4))
        pod = simple_pod(f"low-{self._made}", cpus, f"{self._random.choice((1, 2, 3))}Gi", priorityClassName=LOW)
        create(self._running.plane.api, pod)
        self._made += 1
        return cpus

    def _entries(self) -> list[Entry]:
        return [entry for entry in self._book.entries() if entry.name.startswith("low-")]


def is_refused(pod: Json) -> bool:
    """Whether the scheduler has tried it and found no node."""
    return any(
        condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable"
        for condition in pod["status"].get("conditions", ())
    )


def _round(running: Cluster, book: Book, crowd: _Crowd, random: Random, number: int, story: Rounds) -> None:
    api = running.plane.api
    before = {entry.name for entry in book.entries() if entry.preempted}
    name, started = f"high-{number}", time.monotonic()
    pod = simple_pod(name, random.choice((4, 5, 6, 7)), "2Gi", priorityClassName=HIGH)
    uid = create(api, pod)["metadata"]["uid"]
    placed = book.wait(lambda: (entry := book.entry(uid)) and (entry.running or entry.is_over), PLACED_SECONDS)
    entry = book.entry(uid)
    assert entry is not None
    story.placed += placed and entry.running
    story.seconds.append(time.monotonic() - started)
    victims = [each for each in book.entries() if each.preempted and each.name not in before]
    elsewhere = [each for each in victims if each.node != entry.node]
    story.victims += len(victims)
    story.preempting += bool(victims)
    story.elsewhere += len(elsewhere)
    if elsewhere or not placed:
        where = ", ".join(f"{each.name} on {each.node}" for each in elsewhere)
        story.details.append(f"{name} went to {entry.node}; died elsewhere: {where or 'nobody'}")
    running.say(f"{name}: on {entry.node}, {len(victims)} victims, {len(elsewhere)} of them elsewhere")
    delete(api, name)
    if not book.wait(lambda: (entry := book.entry(uid)) and entry.deleted, 30):
        raise SceneError(f"{name} was not deleted in time")
    crowd.settle()
