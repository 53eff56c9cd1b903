"""Mixed pods near capacity: with the extender, and then the same pods without it.

Left out: the pods that are still waiting when the feeder gives them up, within their bound.
"""

from tests.live.alone import try_alone
from tests.live.binaries import Binaries
from tests.live.bounds import show_load, show_without
from tests.live.cluster import Plan, Say, cluster
from tests.live.load import audit_of, counted, feed
from tests.live.report import Findings

NODES, PODS, LIFE_SECONDS = 12, 300, 12.0


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Refusals after binding are counted: none with the extender, whatever there is without."""
    findings = Findings("mixed")
    pods, life = plan.pods or PODS, plan.seconds or LIFE_SECONDS
    with cluster(binaries, plan, say, nodes=NODES) as running:
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            with_us = feed(running, "with", seed=plan.seed, pods=pods, life_seconds=life)
        audit = audit_of(running.extender, say)
        try_alone(running, with_us)
        running.scheduler.configure(None)
        with running.scheduler:
            without = feed(running, "without", seed=plan.seed, pods=pods, life_seconds=life)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("kubelets", counted(running.nodes.versions()))
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {pods}")
    show_load(findings, with_us, audit, whose=", with us")
    show_without(findings, without)
    return findings
