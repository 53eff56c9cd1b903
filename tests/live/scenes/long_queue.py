"""Hundreds of jobs at once on few nodes: most are refused again and again until there is room. Then with an echo.

Refused pods are requeued by a write of the extender (`wake_up`), which kube-scheduler answers with an attempt for each
of them. So the load of the API server is compared as well. Left out: pods that kubelets refuse with the echo. They
leave its queue early, so that the others wait less.
"""

from dataclasses import dataclass

from tests.live.binaries import Binaries
from tests.live.bounds import show_binds, show_load
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import Round, audit_of
from tests.live.report import Findings
from tests.live.scenes.beside_echo import shown
from tests.live.scenes.jobs import STALL_SECONDS, feed_jobs, longest_stall

NODES, PODS = 8, 400
LOAD = 1000.0
"""All jobs are there from the beginning."""
LONGER, LONGER_SECONDS = 1.5, 20.0
"""The longest wait, which is that for the whole queue, may be so many times the echo's, and so many seconds."""
CPU_OF_ECHO = 1.5
"""The API server's CPU time for each pod may be so many times the echo's."""


@dataclass(frozen=True, slots=True)
class Queue:
    """One load. `api_ms`: CPU of the API server for each pod that was bound."""

    found: Round
    api_ms: float

    @property
    def waits(self) -> list[float]:
        """Seconds to binding, in their order."""
        return sorted(self.found.seconds_to_bind)


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Every job is bound at last, and waking the queue does not load the API server much."""
    findings = Findings("long-queue")
    with cluster(binaries, plan, say, nodes=NODES) as running:
        ours = _played(running, plan, "ours", running.extender.url)
        audit, binds = audit_of(running.extender, say), running.extender.binds()
        touched = running.extender.metrics().get('numa_extender_wake_ups_total{outcome="touched"}', 0)
        with running.extender.echo() as echo:
            theirs = _played(running, plan, "echo", echo.url)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {plan.pods or PODS}")
    findings.must("times that pods were requeued", f"{touched:.0f}", "at least 1", ok=touched >= 1)
    stall, echo_stall = longest_stall(ours.found.entries), longest_stall(theirs.found.entries)
    what = "seconds without a binding while pods waited, longest: ours, echo"
    ok = stall <= max(STALL_SECONDS, echo_stall)
    findings.must(what, f"{stall:.1f}, {echo_stall:.1f}", f"at most {STALL_SECONDS:.0f}, or as the echo", ok=ok)
    limit = LONGER * max(theirs.waits, default=0.0) + LONGER_SECONDS
    what = "seconds to binding, their median, p90, longest: ours; echo"
    ok = max(ours.waits, default=limit + 1) <= limit
    findings.must(what, f"{shown(ours.waits)}; {shown(theirs.waits)}", f"longest at most {limit:.0f}", ok=ok)
    limit = CPU_OF_ECHO * theirs.api_ms
    what, value = "CPU of the API server, ms a pod: ours, echo", f"{ours.api_ms:.1f}, {theirs.api_ms:.1f}"
    findings.must(what, value, f"at most {limit:.1f}", ok=ours.api_ms <= limit)
    total = theirs.found.tally.refused.total()
    findings.must("refused after binding with the echo", theirs.found.refused, "at least 1", ok=total > 0)
    show_load(findings, ours.found, audit)
    show_binds(findings, binds, ours.found)
    return findings


def _played(running: Cluster, plan: Plan, name: str, url: str) -> Queue:
    before = running.plane.apiserver.cpu_seconds()
    found = feed_jobs(running, plan, name, url, pods=PODS, load=LOAD)
    used = running.plane.apiserver.cpu_seconds() - before
    return Queue(found, 1000 * used / max(1, len(found.seconds_to_bind)))
