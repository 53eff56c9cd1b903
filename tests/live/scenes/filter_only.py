"""Mixed pods near capacity with an extender that does not bind: kube-scheduler's configuration has no `bindVerb`.

Left out: the pods that are still waiting when the feeder gives them up, within their bound.
"""

from tests.live.binaries import Binaries
from tests.live.bounds import show_load, show_without
from tests.live.cluster import Plan, Say, cluster
from tests.live.load import audit_of, feed
from tests.live.report import Findings

NODES, PODS, LIFE_SECONDS = 12, 200, 12.0
BARRIER_SECONDS = 0.02
"""As docs/settings.md recommends where the scheduler binds."""


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Filter alone waits for earlier pods; see `extender/scheduling/barrier.py`."""
    findings = Findings("filter-only")
    pods, life = plan.pods or PODS, plan.seconds or LIFE_SECONDS
    with cluster(binaries, plan, say, nodes=NODES, barrier_seconds=BARRIER_SECONDS) as running:
        running.scheduler.configure(running.extender.url, bindVerb=None)
        with running.scheduler:
            with_us = feed(running, "with", seed=plan.seed, pods=pods, life_seconds=life)
        audit, binds = audit_of(running.extender, say), running.extender.binds()
        running.scheduler.configure(None)
        with running.scheduler:
            without = feed(running, "without", seed=plan.seed, pods=pods, life_seconds=life)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {pods}")
    findings.must("bind calls", binds.total(), "0", ok=not binds.total())
    show_load(findings, with_us, audit, whose=", with us")
    show_without(findings, without)
    return findings
