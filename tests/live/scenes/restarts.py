"""Kubelets restarted under load.

Two kinds of refused pods are left out of "refused after binding is 0". Pods that a first list refused and that were
bound before their kubelet had stopped, or less than a second after it, are at most a share: no report could say so in
time. Pods that ran before the restart and are refused again are bounded by a share, and their reasons are shown.
"""

import math
import threading
from concurrent.futures import Future
from random import Random

from tests.live.alone import try_alone
from tests.live.binaries import Binaries
from tests.live.bounds import show_binds, show_load, show_spared
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import Disturb, audit_of, counted, feed
from tests.live.report import Findings

NODES, PODS, LIFE_SECONDS = 12, 300, 12.0
PAUSE_SECONDS = (0.5, 3.0)
"""Between two restarts on so many nodes as the scene has by itself; with fewer nodes restarts are rarer."""
AWAY_SECONDS = (0.5, 8.0)
AGAIN = 0.1
"""At most this share of the pods ran before a restart and is refused by it. Most of these a kubelet refuses whatever
the scheduler did: with `full-pcpus-only` it compares all CPUs of a running pod with those that are free beside it, and
device plugins register after its first list."""
STARTING = 0.05
"""At most this share of the bind calls meets a kubelet that is starting: filter leaves such nodes out."""


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Pods that end while their kubelet is away are stale in its managers when it admits its first list."""
    findings = Findings("restarts")
    pods, life = plan.pods or PODS, plan.seconds or LIFE_SECONDS
    with cluster(binaries, plan, say, nodes=NODES) as running:
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            found = feed(
                running,
                "restarts",
                seed=plan.seed,
                pods=pods,
                life_seconds=life,
                disturb=restarting(running, plan.seed, usual=NODES),
            )
        audit, binds = audit_of(running.extender, say), running.extender.binds()
        try_alone(running, found)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {pods}")
    findings.must("restarts of kubelets", found.tally.restarts, "at least 1", ok=found.tally.restarts > 0)
    show_load(findings, found, audit, excuses_unforeseen=True)
    show_binds(findings, binds, found)
    show_spared(findings, binds, "starting", STARTING)
    again = found.tally.refused_again
    most = math.floor(AGAIN * pods)
    findings.must("ran before a restart and refused by it", counted(again), f"at most {most}", ok=again.total() <= most)
    lines = []
    for each in found.entries:
        stopped_at = found.tally.refused_first.get(each.uid)
        if stopped_at is not None and each.bound_at is not None:
            lines.append(f"{each.name}: bound {each.bound_at - stopped_at:+.2f} s after its kubelet stopped")
    findings.details[:0] = lines
    return findings


def restarting(running: Cluster, seed: int, *, usual: int) -> Disturb:
    """Kubelets end and come back, each as often however many there are. *usual*: nodes for which `PAUSE_SECONDS` is."""
    random, nodes = Random(seed), running.nodes
    rarer = usual / len(nodes.all)

    def disturb(enough: threading.Event) -> None:
        away: dict[str, Future[None]] = {}
        while not enough.wait(rarer * random.uniform(*PAUSE_SECONDS)):
            node = random.choice(nodes.all)
            if node.name not in away or away[node.name].done():
                away[node.name] = nodes.loop.submit(node.kubelet.restart(random.uniform(*AWAY_SECONDS)))
        for restart in away.values():
            restart.result(90)

    return disturb
