"""Every part killed with SIGKILL under load, one after another, and started again.

Left out: kubelets, which `restarts` restarts, and predictions that an extender had not settled when it was killed.
"""

import itertools
import threading
from collections import Counter
from random import Random

from tests.live.alone import try_alone
from tests.live.binaries import Binaries
from tests.live.bounds import show_load
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import Disturb, audit_of, counts_of, feed
from tests.live.processes import Program
from tests.live.report import Findings

NODES, PODS, LIFE_SECONDS = 12, 300, 12.0
PAUSE_SECONDS = (3.0, 6.0)
"""Between two kills."""
AWAY_SECONDS = (0.1, 2.0)
"""Until it is started again, as a kubelet or systemd would."""
PATIENCE_SECONDS = 180.0
"""Within which every pod must be placed that a kubelet admits, near capacity and while parts are away."""


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """No kill may lead to a refused pod, and every pod is placed in the end."""
    findings = Findings("kills")
    audit: Counter[str] = Counter()
    pods, life = plan.pods or PODS, plan.seconds or LIFE_SECONDS
    with cluster(binaries, plan, say, nodes=NODES) as running:
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            found = feed(
                running,
                "kills",
                seed=plan.seed,
                pods=pods,
                life_seconds=life,
                disturb=_kill(running, plan.seed, audit),
                patience=PATIENCE_SECONDS,
            )
        running.extender.wait_for_nodes(len(running.nodes.all))
        audit += audit_of(running.extender, say)
        try_alone(running, found)
        exporters = [node.exporter for node in running.nodes.all if node.exporter]
        parts = [running.extender, running.plane.apiserver, running.plane.etcd, running.scheduler]
        kills = [(part.name, part.kills) for part in parts] + [("exporters", sum(each.kills for each in exporters))]
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {pods}")
    for name, count in kills:
        findings.must(f"kills of {name}", count, "at least 1", ok=count > 0)
    show_load(findings, found, audit, not_placed=0.0)
    return findings


def _kill(running: Cluster, seed: int, audit: Counter[str]) -> Disturb:
    """*audit*: what each extender had counted just before it was killed."""
    random = Random(seed)

    def disturb(enough: threading.Event) -> None:
        for what in itertools.cycle(("extender", "exporter", "apiserver", "scheduler", "etcd")):
            if enough.wait(random.uniform(*PAUSE_SECONDS)):
                return
            part = _part(running, what, random)
            running.say(f"kill -9 {part.name}")
            if part is running.extender:
                audit.update(counts_of(running.extender.get("/v1/audit")))
            part.kill()
            enough.wait(random.uniform(*AWAY_SECONDS))
            part.start()
            if what in {"apiserver", "etcd"}:
                running.plane.wait_until_ready()

    return disturb


def _part(running: Cluster, what: str, random: Random) -> Program:
    exporter = random.choice(running.nodes.all).exporter
    assert exporter is not None
    return {
        "extender": running.extender,
        "exporter": exporter,
        "apiserver": running.plane.apiserver,
        "scheduler": running.scheduler,
        "etcd": running.plane.etcd,
    }[what]
