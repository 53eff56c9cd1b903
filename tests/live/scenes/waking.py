"""A pod that was refused for now is tried again when its room is there, not five minutes later.

kube-scheduler always sees the end of a pod first: the extender's watch of pods is 3 s behind. Nothing that
kube-scheduler sees follows. A pod that is not placed ends the scene. Left out: several nodes, and other events that
would wake the pod.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from tests.live.binaries import Binaries
from tests.live.book import Book
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import audit_of, counted, show_audit
from tests.live.processes import SceneError
from tests.live.report import Findings
from tests.live.scenes.preemption import is_refused
from tests.live.workload import create, delete, simple_pod

ROUNDS = 5
BOUND_SECONDS = 20.0
"""The watch (3), `FINISH_SECONDS` (3), a look a second, the scheduler's back-off of up to 10 s."""
PATIENCE_SECONDS = 60.0


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """One node of 6 and 8 CPUs on two NUMA nodes; pods of 4 CPUs on both leave 6 in total, and no NUMA node has 5."""
    findings, rounds = Findings("waking"), plan.rounds or ROUNDS
    seconds: list[float] = []
    changes = ",".join(filter(None, ("hears_late", plan.mutant)))
    with cluster(binaries, replace(plan, nodes=1, mutant=changes), say, nodes=1) as running:
        running.scheduler.configure(running.extender.url)
        with Book(running.plane.url, running.plane.admin_context) as book, running.scheduler:
            for number in range(rounds):
                seconds.append(_round(running, book, number))
                say(f"round {number}: bound {seconds[-1]:.1f} s after the end of the other pod was published")
        audit, tally = audit_of(running.extender, say), running.nodes.tally
        touched = running.extender.metrics().get('numa_extender_wake_ups_total{outcome="touched"}', 0)
        findings.show("kube-apiserver", running.plane.version)
    findings.show("rounds", rounds)
    longest = max(seconds)
    findings.must("seconds to binding, longest", f"{longest:.1f}", f"{BOUND_SECONDS:.0f}", ok=longest <= BOUND_SECONDS)
    findings.must("times that pods were requeued", f"{touched:.0f}", "at least 1", ok=touched >= 1)
    pods = 3 * rounds
    findings.must("admitted", tally.admitted, f"{pods}", ok=tally.admitted == pods)
    findings.must("refused after binding", counted(tally.refused), "0", ok=not tally.refused)
    show_audit(findings, audit, pods)
    return findings


def _round(running: Cluster, book: Book, number: int) -> float:
    """Two holders, a pod that waits, the end of a holder; seconds from that to the binding."""
    api, (node,) = running.plane.api, running.nodes.all
    holders = [create(api, simple_pod(f"holder-{number}-{i}", 4))["metadata"]["uid"] for i in range(2)]
    _wait(book, lambda: all((entry := book.entry(uid)) and entry.running for uid in holders), "the holders run")
    waiter = create(api, simple_pod(f"waiter-{number}", 5))["metadata"]["uid"]
    _wait(book, lambda: (entry := book.entry(waiter)) and is_refused(entry.pod), "the waiting pod is refused")
    running.nodes.loop.submit(node.kubelet.finish(holders[0]))
    _wait(book, lambda: (entry := book.entry(holders[0])) and entry.is_over, "the end of a holder is published")
    started = time.monotonic()
    _wait(book, lambda: (entry := book.entry(waiter)) and entry.node, "the waiting pod is bound")
    seconds = time.monotonic() - started
    names = [entry.name for uid in (*holders, waiter) if (entry := book.entry(uid))]
    for name in names:
        delete(api, name)
    _wait(book, lambda: all((e := book.entry(uid)) and e.deleted for uid in (*holders, waiter)), "all are gone")
    return seconds


def _wait(book: Book, condition: Callable[[], object], what: str) -> None:
    if not book.wait(condition, PATIENCE_SECONDS):
        raise SceneError(f"{what}: not within {PATIENCE_SECONDS:.0f} s")
