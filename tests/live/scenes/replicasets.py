"""ReplicaSets of 2,000 pods on 1,000 nodes, scaled up, to nothing, and up again at once: ours and an echo extender.

The pods of a ReplicaSet are created as fast as its controller does it. Their sizes leave places that only some nodes
have. Left out: exporters and files of kubelets, nodes of several shapes, the status of running pods, and new pods for
those that kubelets refuse with the echo.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from random import Random

from tests.live.api import AsyncApi
from tests.live.binaries import Binaries
from tests.live.book import Book, Entry
from tests.live.bounds import show_binds
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.fake_nodes import FakeNodes
from tests.live.installing import forget
from tests.live.load import Round, audit_of, show_audit
from tests.live.processes import SceneError, until
from tests.live.report import Findings
from tests.live.scenes.beside_echo import p90, shown
from tests.live.tally import Tally
from tests.live.workload import PODS as PATH
from tests.live.workload import Fed, create, delete, simple_pod

NODES, PODS = 1000, 2000
SETS = ((4, 0.5), (6, 0.3), (8, 0.15), (2, 0.05))
"""CPUs of a pod, and the share of the pods. A node offers 6 and 8 CPUs on two NUMA nodes; a pod gets those of one."""
AT_ONCE = 10
"""Pods that are created or deleted at the same time."""
PATIENCE_SECONDS = 900.0
"""Pods that wait longer end the scene."""
WORSE = 1.5
"""The wait of the slowest tenth, most of which is the queue, may be so many times the echo's, and 2 s."""


@dataclass(frozen=True, slots=True)
class Scaled:
    """What became of the pods of both scalings. `refused`: by kubelets."""

    entries: Sequence[Entry]
    refused: Sequence[str]

    @property
    def waits(self) -> list[float]:
        """Seconds from creation to binding, in their order."""
        return sorted(each.bound_at - each.created_at for each in self.entries if each.bound_at is not None)


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """No pod is refused, none waits for ever, and the queue is nearly as fast as with an extender that only answers."""
    findings, count, pods = Findings("replicasets"), plan.nodes or NODES, plan.pods or PODS
    with cluster(binaries, replace(plan, nodes=0), say, nodes=0) as running:
        loop = running.nodes.loop
        fakes = FakeNodes(AsyncApi(running.plane.url, running.plane.admin_context), count)
        try:
            loop.run(fakes.register(), 900)
            say(f"{count} Node objects are there")
            ours = _scale(running, fakes, "ours", pods, running.extender.url, plan.seed)
            binds, audit = running.extender.binds(), audit_of(running.extender, say)
            with running.extender.echo() as echo:
                theirs = _scale(running, fakes, "echo", pods, echo.url, plan.seed)
        finally:
            loop.run(fakes.close())
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{count}, {pods} twice")
    findings.must("refused after binding", len(ours.refused), "0", ok=not ours.refused)
    findings.must("refused after binding with the echo", len(theirs.refused), "at least 1", ok=bool(theirs.refused))
    missing = 2 * pods - len(ours.waits)
    findings.must("not placed", missing, "0", ok=not missing)
    limit = WORSE * p90(theirs.waits) + 2
    what = "seconds to binding, their median, p90, longest: ours; echo"
    ok = p90(ours.waits) <= limit
    findings.must(what, f"{shown(ours.waits)}; {shown(theirs.waits)}", f"p90 at most {limit:.1f}", ok=ok)
    show_audit(findings, audit, 2 * pods)
    show_binds(findings, binds, Round(Fed(2 * pods), Tally(), list(ours.entries)))
    findings.details += ours.refused[:5]
    return findings


def _scale(running: Cluster, fakes: FakeNodes, name: str, pods: int, url: str, seed: int) -> Scaled:
    """Up, down to nothing, and up again before the last pod is gone."""
    loop, api, before = running.nodes.loop, running.plane.api, len(fakes.refused)
    loop.run(fakes.begin(url), 900)
    if url == running.extender.url:
        running.extender.wait_for_nodes(len(fakes.names))
    running.scheduler.configure(url)
    with Book(running.plane.url, running.plane.admin_context) as book, running.scheduler:
        first = _names(f"{name}-first", pods)
        _up(running, first)
        _wait(running, book, first)
        Random(seed).shuffle(first)
        started = time.monotonic()
        with ThreadPoolExecutor(AT_ONCE) as several:
            list(several.map(lambda pod: delete(api, pod[0]), first))
        running.say(f"{name}: all were deleted within {time.monotonic() - started:.0f} s")
        second = _names(f"{name}-second", pods)[::-1]
        _up(running, second)
        _wait(running, book, second)
        entries = book.entries()
    forget(api, PATH)
    until(lambda: not api.items(PATH), 120, "all pods are gone")
    return Scaled(entries, fakes.refused[before:])


def _names(name: str, pods: int) -> list[tuple[str, int]]:
    """The name and the CPUs of each pod, ReplicaSet by ReplicaSet."""
    return [(f"{name}-{cpus}-{number}", cpus) for cpus, share in SETS for number in range(round(share * pods))]


def _up(running: Cluster, wanted: Sequence[tuple[str, int]]) -> None:
    with ThreadPoolExecutor(AT_ONCE) as several:
        list(several.map(lambda pod: create(running.plane.api, simple_pod(pod[0], pod[1], "64Mi")), wanted))
    running.say(f"{len(wanted)} pods were created")


def _wait(running: Cluster, book: Book, wanted: Sequence[tuple[str, int]]) -> None:
    names = {name for name, _ in wanted}

    def are_placed() -> bool:
        return sum(entry.node is not None and entry.name in names for entry in book.entries()) == len(names)

    if not book.wait(are_placed, PATIENCE_SECONDS):
        raise SceneError(f"not all of {len(names)} pods were bound within {PATIENCE_SECONDS:.0f} s")
    running.say(f"{len(names)} pods are bound")
