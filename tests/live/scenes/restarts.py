"""Kubelets restarted under load."""

import threading
from concurrent.futures import Future
from random import Random

from tests.live.binaries import Binaries
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import Disturb, audit_of, feed, show_audit
from tests.live.report import Findings

NODES, PODS, LIFE_SECONDS = 12, 300, 12.0
PAUSE_SECONDS = (0.5, 3.0)
"""Between two restarts."""
AWAY_SECONDS = (0.5, 8.0)


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Pods that end while their kubelet is away are stale in its managers when it admits its first list."""
    findings = Findings("restarts")
    pods, life = plan.pods or PODS, plan.seconds or LIFE_SECONDS
    with cluster(binaries, plan, say, nodes=NODES) as running:
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            found = feed(
                running, "restarts", seed=plan.seed, pods=pods, life_seconds=life, disturb=_restart(running, plan.seed)
            )
        audit = audit_of(running.extender, say)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {pods}")
    findings.show("restarts of kubelets", found.tally.restarts)
    findings.show("admitted", found.tally.admitted)
    findings.show("refused after binding", found.refused)
    unforeseen = found.refused_unforeseen
    others = found.tally.refused.total() - len(unforeseen)
    findings.must("but for those bound less than 1 s after their kubelet stopped", others, "0", ok=not others)
    findings.show("ran before a restart and refused by it", found.tally.refused_again.total())
    findings.show("not placed within 45 s", found.fed.given_up)
    findings.show("seconds to binding, median and highest", found.bind_times)
    show_audit(findings, audit)
    for each in found.entries:
        stopped_at = found.tally.refused_first.get(each.uid)
        if stopped_at is not None and each.bound_at is not None:
            findings.details.append(f"{each.name}: bound {each.bound_at - stopped_at:+.2f} s after its kubelet stopped")
    findings.details += found.tally.refusals
    return findings


def _restart(running: Cluster, seed: int) -> Disturb:
    random, nodes = Random(seed), running.nodes

    def disturb(enough: threading.Event) -> None:
        away: dict[str, Future[None]] = {}
        while not enough.wait(random.uniform(*PAUSE_SECONDS)):
            node = random.choice(nodes.all)
            if node.name not in away or away[node.name].done():
                away[node.name] = nodes.loop.submit(node.kubelet.restart(random.uniform(*AWAY_SECONDS)))
        for restart in away.values():
            restart.result(60)

    return disturb
