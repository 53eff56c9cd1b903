"""Two extenders with a lease behind a Service, and the leader killed under load.

Left out: predictions and bind calls of a leader between the last look at its counts and its end.
"""

import threading
import time
from collections import Counter
from random import Random

from tests.live.binaries import Binaries
from tests.live.bounds import show_load
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import Disturb, audit_of, counted, counts_of, feed
from tests.live.processes import until
from tests.live.report import Findings
from tests.live.scheduling import Extender
from tests.live.service import Service

NODES, PODS, LIFE_SECONDS = 6, 200, 8.0
TAKE_OVER_SECONDS = 10.0
PAUSE_SECONDS = (15.0, 20.0)
RECIPE, CONFIGURATION = "overlays/replicas", "overlays/standalone"


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """The recipe with its Service, its readiness, its lease; the scheduler shows its certificate."""
    findings = Findings("replicas")
    pods, life = plan.pods or PODS, plan.seconds or LIFE_SECONDS
    take_overs: list[float] = []
    lost: Counter[str] = Counter()
    audit: Counter[str] = Counter()
    leaderless: list[int] = []
    with cluster(
        binaries, plan, say, nodes=NODES, recipe=RECIPE, extenders=2, exporter_arguments=("--nrt",)
    ) as running:
        service = Service(running.objects, running.extenders, running.nodes.loop)
        service.start()
        try:
            leader(running)
            until(service.endpoints, 60, "the Service has endpoints")
            certificate, key = running.plane.identities.client("scheduler", user="system:kube-scheduler")
            files = {"caFile": str(running.plane.identities.ca_file), "certFile": str(certificate), "keyFile": str(key)}
            running.scheduler.configure_as(CONFIGURATION, service.url, files)
            with running.scheduler:
                disturb = _kill_leaders(running, plan.seed, take_overs, lost, audit, leaderless)
                found = feed(running, "replicas", seed=plan.seed, pods=pods, life_seconds=life, disturb=disturb)
            audit.update(audit_of(leader(running), say))
            binds = lost + sum((extender.binds() for extender in running.extenders), Counter())
            findings.show("kube-apiserver", running.plane.version)
            findings.show("nodes, pods", f"{len(running.nodes.all)}, {pods}")
        finally:
            service.stop()
    longest = max(take_overs, default=0.0)
    findings.must("leaders killed", len(take_overs), "at least 1", ok=bool(take_overs))
    within = f"below {TAKE_OVER_SECONDS:.0f}"
    findings.must("seconds to a new leader, longest", f"{longest:.1f}", within, ok=longest < TAKE_OVER_SECONDS)
    refused = binds["standby"] - sum(leaderless)
    what = "bind calls by outcome; refused by a standby while another led"
    findings.must(what, f"{counted(binds)}; {refused}", "0 by a standby", ok=not refused)
    show_load(findings, found, audit)
    return findings


def leader(running: Cluster, other_than: Extender | None = None) -> Extender:
    """Wait until there is one."""
    found: list[Extender] = []

    def look() -> bool:
        candidates = [each for each in running.extenders if each is not other_than]
        found[:] = [each for each in candidates if each.metrics().get("numa_extender_leader") == 1]
        return bool(found)

    until(look, 60, "a leader")
    return found[0]


def _kill_leaders(
    running: Cluster, seed: int, take_overs: list[float], lost: Counter[str], audit: Counter[str], leaderless: list[int]
) -> Disturb:
    """*lost*: the bind calls that each leader had counted just before it was killed.

    *audit*: the predictions that each settled from its take-over until then; a standby settles them as well.
    *leaderless*: how many bind calls the standby refused after each kill, until it led.
    """
    chance = Random(seed)

    def disturb(enough: threading.Event) -> None:
        while not enough.wait(chance.uniform(*PAUSE_SECONDS)):
            killed = leader(running)
            lost.update(killed.binds())
            audit.update(counts_of(killed.get("/v1/audit")))
            running.say(f"kill -9 {killed.name}, which leads")
            (standby,) = [each for each in running.extenders if each is not killed]
            before = standby.binds()["standby"]
            killed.kill()
            started = time.monotonic()
            leader(running, other_than=killed)
            leaderless.append(standby.binds()["standby"] - before)
            take_overs.append(time.monotonic() - started)
            audit.subtract(counts_of(standby.get("/v1/audit")))
            killed.start()
            killed.wait_for_nodes(len(running.nodes.all))

    return disturb
