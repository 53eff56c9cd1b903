"""The API server restarted under a light load: waits of pods beside those with an extender that only answers.

Left out: pods that were bound before a kill or created later than 12 s after the server was ready again; and of each
wait the time without a server. A server takes 3 to 10 s to start on a busy machine, other times with either extender.
"""

import statistics
import threading
import time
from random import Random

from tests.live.api import Json
from tests.live.binaries import Binaries
from tests.live.book import Entry
from tests.live.bounds import show_binds, show_load
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import Disturb, Round, audit_of, feed
from tests.live.report import Findings
from tests.live.workload import simple_pod

NODES, PODS, LIFE_SECONDS = 12, 250, 10.0
LOAD, CPUS = 0.5, 2
"""Of the cluster's CPUs, and of each pod: there is always room, so that a pod waits for nothing but the fault."""
AFTER_SECONDS, PAUSE_SECONDS = 12.0, (1.0, 4.0)
"""Pods are counted until so long after the server is ready again; between that and the next kill."""
AWAY_SECONDS = (0.1, 2.0)
MET = 10
"""Of fewer pods a slowest tenth says nothing."""
ALLOWED_SECONDS, LONGEST_SECONDS = 2.0, 10.0
"""The wait of the slowest tenth, and the longest wait, may be longer than the echo's by this."""

Windows = list[tuple[float, float, float]]
"""Each fault: the kill, when the server was ready again, and the end of what is counted."""


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """The same pods and the same pauses with both extenders, one after the other, in one cluster."""
    findings = Findings("api-restarts")
    with cluster(binaries, plan, say, nodes=NODES) as running:
        ours, our_faults = _feed(running, plan, "ours", running.extender.url)
        audit, binds = audit_of(running.extender, say), running.extender.binds()
        with running.extender.echo() as echo:
            theirs, their_faults = _feed(running, plan, "echo", echo.url)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {plan.pods or PODS}")
    waits, echo_waits = waits_in(ours.entries, our_faults), waits_in(theirs.entries, their_faults)
    faults = f"{len(our_faults)}, {len(their_faults)}"
    away = "; ".join(
        ", ".join(f"{ready - start:.1f}" for start, ready, _ in each) for each in (our_faults, their_faults)
    )
    findings.show("seconds without a server: ours; echo", away)
    findings.must("restarts of the API server: ours, echo", faults, "at least 1", ok=bool(our_faults and their_faults))
    met = f"{len(waits)}, {len(echo_waits)}"
    findings.must(
        "pods that met one: ours, echo", met, f"at least {MET} each", ok=min(len(waits), len(echo_waits)) >= MET
    )
    lost = theirs.fed.given_up
    findings.must(
        "seconds to binding, their median, p90, longest; not placed: echo",
        f"{shown(echo_waits)}; {lost}",
        "all placed",
        ok=bool(echo_waits) and not lost,
    )
    limit, longest = p90(echo_waits) + ALLOWED_SECONDS, max(echo_waits, default=0.0) + LONGEST_SECONDS
    findings.must(
        "seconds to binding, their median, p90, longest: ours",
        shown(waits),
        f"p90 at most {limit:.1f}, longest at most {longest:.1f}",
        ok=bool(waits) and p90(waits) <= limit and waits[-1] <= longest,
    )
    show_load(findings, ours, audit, not_placed=0.0)
    show_binds(findings, binds, ours)
    return findings


def waits_in(entries: list[Entry], faults: Windows) -> list[float]:
    """Seconds with a server, to binding, of the pods that waited in one of the windows; if never bound: to the end."""
    found = []
    for each in entries:
        since, until = each.created_at, each.bound_at or each.ended_at or time.monotonic()
        if any(since <= end and until >= start for start, _, end in faults):
            away = sum(max(0.0, min(until, ready) - max(since, start)) for start, ready, _ in faults)
            found.append(until - since - away)
    return sorted(found)


def p90(waits: list[float]) -> float:
    """What nine tenths do not exceed; 0 where there are too few."""
    return statistics.quantiles(waits, n=10, method="inclusive")[-1] if len(waits) > 1 else 0.0


def shown(waits: list[float]) -> str:
    """Median, slowest tenth, longest."""
    return f"{statistics.median(waits):.2f}, {p90(waits):.2f}, {waits[-1]:.2f}" if waits else "none"


def _feed(running: Cluster, plan: Plan, name: str, url: str) -> tuple[Round, Windows]:
    faults: Windows = []
    running.scheduler.configure(url)
    with running.scheduler:
        found = feed(
            running,
            name,
            seed=plan.seed,
            pods=plan.pods or PODS,
            life_seconds=plan.seconds or LIFE_SECONDS,
            disturb=_restart(running, Random(plan.seed), faults),
            prepare=_make_small,
            load=LOAD,
        )
    return found, faults


def _make_small(pods: list[Json]) -> None:
    for pod in pods:
        pod["spec"] = simple_pod("", CPUS)["spec"]


def _restart(running: Cluster, random: Random, faults: Windows) -> Disturb:
    def disturb(enough: threading.Event) -> None:
        server = running.plane.apiserver
        while not enough.wait(random.uniform(*PAUSE_SECONDS)):
            running.say(f"kill -9 {server.name}")
            started = time.monotonic()
            server.kill()
            enough.wait(random.uniform(*AWAY_SECONDS))
            server.start()
            running.plane.wait_until_ready()
            ready = time.monotonic()
            faults.append((started, ready, ready + AFTER_SECONDS))
            enough.wait(AFTER_SECONDS)

    return disturb
