"""Mixed pods near capacity: with the extender, and then the same pods without it."""

from tests.live.binaries import Binaries
from tests.live.cluster import Plan, Say, cluster
from tests.live.load import audit_of, feed, show_audit
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
        running.scheduler.configure(None)
        with running.scheduler:
            without = feed(running, "without", seed=plan.seed, pods=pods, life_seconds=life)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {pods}")
    findings.show("admitted: with us, without", f"{with_us.tally.admitted}, {without.tally.admitted}")
    findings.must("refused after binding, with us", with_us.refused, "0", ok=not with_us.tally.refused)
    findings.show("refused after binding, without us", without.refused)
    findings.show("not placed within 45 s: with us, without", f"{with_us.fed.given_up}, {without.fed.given_up}")
    findings.show("seconds to binding, median and highest, with us", with_us.bind_times)
    findings.show("seconds to binding, median and highest, without us", without.bind_times)
    findings.show("pods/s until all had ended: with us, without", f"{with_us.rate}, {without.rate}")
    show_audit(findings, audit)
    findings.details += with_us.tally.refusals
    return findings
