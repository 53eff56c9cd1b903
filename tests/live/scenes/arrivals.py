"""Nodes that come and go under load, as with autoscaling: new ones take pods before they have reported.

Left out of the pods that must be admitted: a fifth, for those whose node vanished before its kubelet had seen them.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.drill.machines import GROUP_LABEL
from tests.live.api import MERGE_PATCH, Json
from tests.live.binaries import Binaries
from tests.live.book import Entry
from tests.live.bounds import show_binds, show_load
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import audit_of, counted, feed
from tests.live.node import LiveNode
from tests.live.report import Findings
from tests.live.workload import PODS as PATH

NODES, GROUPS, PODS, LIFE_SECONDS = 8, 4, 220, 10.0
PAUSE_SECONDS, EXPORTER_SECONDS, AWAY_SECONDS = (0.5, 2.0), (3.0, 8.0), (0.5, 3.0)
"""Between two changes; from a new node to its exporter; without a Node object, where it is deleted and comes again."""
DRAIN_SECONDS = 15.0
ADMITTED = 0.8
"""At least this share; see the file's text."""
CHANGES = ("came", "came back", "drained", "vanished", "registered again")
FINISHED = ("Succeeded", "Failed")


@dataclass
class Arrival:
    """A new machine. Times are monotonic seconds; infinite: not yet."""

    node: LiveNode
    at: float
    exporter_at: float
    reports_from: float = float("inf")

    def took_unseen(self, entry: Entry) -> bool:
        """Whether the pod was bound to it before it could report."""
        bound_at = entry.bound_at
        return entry.node == self.node.name and bound_at is not None and self.at <= bound_at < self.reports_from


class Fleet:
    """Lets nodes leave and others come. `changes`: how many of each kind."""

    def __init__(self, running: Cluster, random: Random) -> None:
        self._running, self._nodes, self._random = running, running.nodes, random
        self._api = running.plane.api
        self._next = len(running.nodes.all)
        self.changes: Counter[str] = Counter()
        self.arrivals: list[Arrival] = []

    def disturb(self, enough: threading.Event) -> None:
        """Until the event is set; then the exporters of all nodes are started."""
        self._join(self._next, self._random.randrange(GROUPS))
        while not enough.wait(self._random.uniform(*PAUSE_SECONDS)):
            self._start_exporters(time.monotonic())
            self._collect()
            reporting = [node for node in self._nodes.all if node.exporter is not None]
            if len(reporting) < NODES // 2:
                continue
            node, chance = self._random.choice(reporting), self._random.random()
            if chance < 0.15:
                self._register_again(node, enough)
            else:
                is_drained = chance < 0.7
                if is_drained:
                    self._drain(node)
                self._leave(node, "drained" if is_drained else "vanished")
                comes_back = self._random.random() < 0.5
                group = self._random.randrange(GROUPS)
                self._join(node.number if comes_back else self._next, group, node.life + 1 if comes_back else 0)
        self._start_exporters(float("inf"))

    def _join(self, number: int, group: int, life: int = 0) -> None:
        self._next = max(self._next, number + 1)
        now = time.monotonic()
        node = self._nodes.join(self._running.objects, number, group, life)
        self.arrivals.append(Arrival(node, now, now + self._random.uniform(*EXPORTER_SECONDS)))
        self._count("came back" if life else "came", node)

    def _start_exporters(self, now: float) -> None:
        for each in self.arrivals:
            if each.node.exporter is None and each.exporter_at <= now and each.node in self._nodes.all:
                each.reports_from = time.monotonic()
                running = self._running
                self._nodes.start_exporter(each.node, running.objects, "--push", running.extender.tls_url)

    def _drain(self, node: LiveNode) -> None:
        """Pods may still be bound to it a moment after it is closed to them."""
        path = f"/api/v1/nodes/{node.name}"
        self._api.call("PATCH", path, {"spec": {"unschedulable": True}}, MERGE_PATCH)
        deadline = time.monotonic() + DRAIN_SECONDS
        while (left := self._pods_on(node)) and time.monotonic() < deadline:
            for name in left:
                self._api.delete(f"{PATH}/{name}")
            threading.Event().wait(0.5)

    def _leave(self, node: LiveNode, how: str) -> None:
        self._count(how, node)
        self._nodes.leave(node)
        self._collect()

    def _collect(self) -> None:
        """Delete the pods of nodes that are gone, as the control plane's garbage collection does."""
        names = {node.name for node in self._nodes.all}
        for pod in self._api.items(PATH):
            if pod["spec"].get("nodeName", "") not in {"", *names}:
                self._api.delete(f"{PATH}/{pod['metadata']['name']}?gracePeriodSeconds=0")

    def _register_again(self, node: LiveNode, enough: threading.Event) -> None:
        """The Node object is deleted, and the kubelet, which runs on with its pods, creates it again."""
        self._count("registered again", node)
        self._api.delete(f"/api/v1/nodes/{node.name}")
        enough.wait(self._random.uniform(*AWAY_SECONDS))
        node.register()

    def _pods_on(self, node: LiveNode) -> list[str]:
        pods: Iterable[Json] = self._api.items(f"{PATH}?fieldSelector=spec.nodeName%3D{node.name}")
        return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") not in FINISHED]

    def _count(self, change: str, node: LiveNode) -> None:
        self.changes[change] += 1
        self._running.say(f"{node.name} (group {node.group}) {change}")


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """No kubelet differs from its siblings, so none may refuse a pod."""
    return _play("arrivals", binaries, plan, say, sibling_labels=GROUP_LABEL, unknown_nodes="refuse")


def play_by_default(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """With the settings as they are: a young node is awaited, and no pod that needs alignment goes there unseen."""
    return _play("arrivals-default", binaries, plan, say)


def _play(name: str, binaries: Binaries, plan: Plan, say: Say, **settings: Any) -> Findings:
    findings = Findings(name)
    pods, life = plan.pods or PODS, plan.seconds or LIFE_SECONDS
    with cluster(binaries, plan, say, nodes=NODES, groups=GROUPS, **settings) as running:
        fleet = Fleet(running, Random(plan.seed))
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            found = feed(running, name, seed=plan.seed, pods=pods, life_seconds=life, disturb=fleet.disturb)
        audit, binds = audit_of(running.extender, say), running.extender.binds()
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes at the end, pods", f"{len(running.nodes.all)}, {pods}")
    unseen = [(a.node, e) for a in fleet.arrivals for e in found.entries if a.took_unseen(e)]
    admitted = sum(entry.pod["metadata"]["uid"] in node.kubelet.placements for node, entry in unseen)
    fewest = min(fleet.changes[kind] for kind in CHANGES)
    findings.must("changes of nodes, under load", counted(fleet.changes), "each kind at least once", ok=fewest > 0)
    if "sibling_labels" in settings:
        shown = f"{len(unseen)}; {admitted}"
        findings.must("bound before the first report; of these admitted", shown, "at least 1", ok=admitted > 0)
    else:
        aligned = sum(entry.has_own_cpus for _, entry in unseen)
        findings.must("pods with whole CPUs bound before the first report", aligned, "0", ok=not aligned)
    show_load(findings, found, audit, admitted=ADMITTED)
    show_binds(findings, binds, found)
    return findings
