"""A fault under a steady, light load: waits of pods with the extender, and then with one that only answers.

The pods of both loads come at the same times, and so do the faults. There is always room, so that a pod waits for
nothing but the fault.

A wait begins when kube-scheduler hears of the pod, as its log says. After an outage of the API server its own watches
wait up to 13 s for their next try (client-go's reflector, with random delays), whatever the extender does. The waits
from the creation on are shown as well.

Left out: pods that were bound before a fault, or created later than 12 s after it.
"""

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.live.api import Json
from tests.live.binaries import Binaries
from tests.live.book import Entry
from tests.live.bounds import show_binds, show_load
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import Disturb, Round, audit_of, feed
from tests.live.processes import Program
from tests.live.report import Findings
from tests.live.workload import simple_pod

NODES, PODS, LIFE_SECONDS, EVERY_SECONDS = 12, 250, 8.0, 0.25
LOAD, CPUS = 0.9, 2
"""Of the cluster's CPUs, and of each pod. Arrivals and lives ask for less than half of the CPUs."""
AFTER_SECONDS = 12.0
"""Pods are counted until so long after a fault."""
PAUSES_SECONDS = (3.0, 2.5, 3.3, 2.8)
"""From the end of what is counted to the next fault, in turn. They fall between two pods in different ways."""
MET = 20
"""Of fewer pods a slowest tenth says little."""
ALLOWED_SECONDS, LONGEST_SECONDS = 2.0, 10.0
"""The wait of the slowest tenth, and the longest wait, may be longer than the echo's by this."""

Windows = Sequence[tuple[float, float, float]]
"""Each fault: its beginning, its end, and the end of what is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`make`: the fault, from its beginning to its end, in a cluster whose extender is the program.

    `excused`: a wait counts without the time of the fault, which differs from one to the next. Else with it.
    `times`: at most so many of them under one load. `patience`: seconds after which a pod is given up. `every`: seconds
    from one pod to the next; the pods that come during a fault must have room together.
    """

    name: str
    what: str
    make: Callable[[Cluster, Program, threading.Event], None]
    excused: bool = True
    times: int = 3
    patience: float = 45.0
    every: float = EVERY_SECONDS


def play_beside_echo(fault: Fault, binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """The same pods and faults with both extenders, one after the other, in one cluster."""
    findings = Findings(fault.name)
    with cluster(binaries, plan, say, nodes=NODES) as running:
        extender = running.extender
        ours, our_faults = _feed(fault, running, plan, "ours", extender, extender.url)
        audit, binds = audit_of(extender, say), extender.binds()
        with extender.echo() as echo:
            theirs, their_faults = _feed(fault, running, plan, "echo", echo, echo.url)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {plan.pods or PODS}")
        heard = running.scheduler.heard()
    waits = waits_in(ours.entries, our_faults, heard, excused=fault.excused)
    echo_waits = waits_in(theirs.entries, their_faults, heard, excused=fault.excused)
    from_creation = (
        shown(waits_in(entries, faults, {}, excused=fault.excused))
        for entries, faults in ((ours.entries, our_faults), (theirs.entries, their_faults))
    )
    findings.show("seconds from creation to binding, their median, p90, longest: ours; echo", "; ".join(from_creation))
    lengths = "; ".join(
        ", ".join(f"{end - start:.1f}" for start, end, _ in each) for each in (our_faults, their_faults)
    )
    ok = bool(our_faults and their_faults)
    findings.must(f"{fault.what}, seconds of each: ours; echo", lengths, "at least one each", ok=ok)
    met = f"{len(waits)}, {len(echo_waits)}"
    ok = min(len(waits), len(echo_waits)) >= MET
    findings.must("pods that met one: ours, echo", met, f"at least {MET} each", ok=ok)
    what = "seconds from kube-scheduler's knowledge to binding, their median, p90, longest"
    lost = theirs.fed.given_up
    ok = bool(echo_waits) and not lost
    findings.must(f"{what}; not placed: echo", f"{shown(echo_waits)}; {lost}", "all placed", ok=ok)
    limit, longest = p90(echo_waits) + ALLOWED_SECONDS, max(echo_waits, default=0.0) + LONGEST_SECONDS
    ok = bool(waits) and p90(waits) <= limit and waits[-1] <= longest
    findings.must(f"{what}: ours", shown(waits), f"p90 at most {limit:.1f}, longest at most {longest:.1f}", ok=ok)
    show_load(findings, ours, audit, not_placed=0.0)
    show_binds(findings, binds, ours)
    return findings


def waits_in(entries: Sequence[Entry], faults: Windows, heard: Mapping[str, float], *, excused: bool) -> list[float]:
    """Seconds to binding of the pods that waited in a window, in their order; if never bound: to the end.

    *heard*: when a wait begins, by the pod's name; of other pods it begins with their creation. *excused*: see `Fault`.
    """
    found = []
    for each in entries:
        since, until = each.created_at, each.bound_at or each.ended_at or time.monotonic()
        if any(since <= end and until >= start for start, _, end in faults):
            since = min(max(since, heard.get(each.name, since)), until)
            during = sum(max(0.0, min(until, end) - max(since, start)) for start, end, _ in faults)
            found.append(until - since - (during if excused else 0.0))
    return sorted(found)


def p90(waits: list[float]) -> float:
    """What nine tenths do not exceed; 0 where there are too few."""
    return statistics.quantiles(waits, n=10, method="inclusive")[-1] if len(waits) > 1 else 0.0


def shown(waits: list[float]) -> str:
    """Median, slowest tenth, longest."""
    return f"{statistics.median(waits):.2f}, {p90(waits):.2f}, {waits[-1]:.2f}" if waits else "none"


def _feed(
    fault: Fault, running: Cluster, plan: Plan, name: str, extender: Program, url: str
) -> tuple[Round, list[tuple[float, float, float]]]:
    faults: list[tuple[float, float, float]] = []
    running.scheduler.configure(url)
    with running.scheduler:
        found = feed(
            running,
            name,
            seed=plan.seed,
            pods=plan.pods or PODS,
            life_seconds=plan.seconds or LIFE_SECONDS,
            disturb=_disturb(fault, running, extender, faults, plan.seed),
            prepare=_make_small,
            load=LOAD,
            patience=fault.patience,
            every=fault.every,
        )
    return found, faults


def _make_small(pods: list[Json]) -> None:
    for pod in pods:
        pod["spec"] = simple_pod("", CPUS)["spec"]


def _disturb(
    fault: Fault, running: Cluster, extender: Program, faults: list[tuple[float, float, float]], seed: int
) -> Disturb:
    def disturb(enough: threading.Event) -> None:
        for number in range(fault.times):
            if enough.wait(PAUSES_SECONDS[(seed + number) % len(PAUSES_SECONDS)]):
                break
            running.say(f"{fault.what}: number {number + 1}")
            started = time.monotonic()
            fault.make(running, extender, enough)
            over = time.monotonic()
            faults.append((started, over, over + AFTER_SECONDS))
            enough.wait(AFTER_SECONDS)

    return disturb
