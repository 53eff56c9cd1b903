"""The scheduler's own rule for extenders that may be ignored: is every refusal by bind honoured?

kube-scheduler goes past the bind error of an extender with `ignorable: true` and binds the pod itself. So the recipe
for the control plane's own scheduler is played as it is shipped, with an extender that refuses bindings under load, and
with pods that carry the mark of that recipe: those are bound by the extender or not at all. Left out: pods without the
mark.
"""

from extender.scheduling.node_totals import ALIGNED
from tests.live.binaries import Binaries
from tests.live.bounds import show_load
from tests.live.cluster import Plan, Say, cluster
from tests.live.load import audit_of, counted, feed
from tests.live.report import Findings

NODES, PODS, LIFE_SECONDS = 6, 200, 6.0
RECIPE = "overlays/control-plane"


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Pods that are bound although the extender did not bind them are counted."""
    findings = Findings("ignorable")
    pods, life = plan.pods or PODS, plan.seconds or LIFE_SECONDS
    with cluster(binaries, plan, say, nodes=NODES) as running:
        running.scheduler.configure_as(RECIPE, running.extender.url)
        with running.scheduler:
            found = feed(running, "recipe", seed=plan.seed, pods=pods, life_seconds=life, mark=ALIGNED)
        audit, binds = audit_of(running.extender, say), running.extender.binds()
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods, recipe", f"{len(running.nodes.all)}, {pods}, {RECIPE}")
    deferred = binds["unsettled"] + binds["refused"] + binds["busy"]
    unknown = binds["unsure"] + binds["conflict"]
    behind_us = len(found.seconds_to_bind) - binds["bound"]
    what = "bind calls by outcome"
    findings.must(what, counted(binds), "at least 1 refused, or nothing was tried", ok=deferred > 0)
    findings.must("bind calls that may have bound the pod", unknown, "0, or the next row is not known", ok=not unknown)
    findings.must("pods bound behind our back", behind_us, "0", ok=behind_us == 0)
    show_load(findings, found, audit)
    return findings
