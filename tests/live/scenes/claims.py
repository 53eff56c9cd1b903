"""Pods that claim a device of a DRA driver and demand it on the NUMA node of their CPUs: with the extender, without it.

The extender also writes events on pods that fit nowhere, and the predicted placement on pods that it binds. It runs
with its own ServiceAccount, so each of these needs the rights of its component. Left out: where the devices of pods
are that ended before their claim was looked at, every half second.
"""

import threading
from collections import Counter
from collections.abc import Callable
from random import Random

from tests.live.api import Json
from tests.live.binaries import Binaries
from tests.live.bounds import show_binds, show_load, show_without
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.devices import DEMAND, Claims, claiming_pod, numa_of_cpus
from tests.live.load import Disturb, Round, audit_of, feed
from tests.live.processes import until
from tests.live.report import Findings
from tests.live.workload import create, delete, simple_pod

KUBE_SCHEDULER = "1.36.2"
"""The version of the one in the control plane."""
NODES, PODS, LIFE_SECONDS = 10, 120, 10.0
RECIPE, COMPONENTS = "overlays/standalone", ("dra", "pod-events")
EVERY = 2
"""Every second pod has a claim, and of these every second one a demand."""
TIDY_SECONDS = 0.5
TOO_WIDE_CPUS, EVENT_SECONDS = 22, 60.0
"""More CPUs than one NUMA node of any node has, and fewer than the largest node has."""
PREDICTED = 0.99
PLACEMENT = "numa-extender.io/placement"
EVENTS = "/api/v1/namespaces/default/events"


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Where the CPUs are is what the kubelet gave. Where the device is is what the claim was allocated."""
    findings = Findings("claims")
    with cluster(
        binaries,
        plan,
        say,
        nodes=NODES,
        recipe=RECIPE,
        components=COMPONENTS,
        dra="on",
        dra_scheduler=KUBE_SCHEDULER,
        pod_events="on",
        placement_annotations="on",
    ) as running:
        claims = Claims(running.plane.api, running.nodes.all, Random(plan.seed))
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            ours = _feed(running, claims, "with", plan)
            audit, binds = audit_of(running.extender, say), running.extender.binds()
            forecasts = running.extender.counted("claim_forecasts", "result")
            _wait_for_event(running)
        running.scheduler.configure(None)
        with running.scheduler:
            plain = _feed(running, claims, "without", plan)
        where = [_where(running, claims, each, findings) for each in (ours, plain)]
        events = sum(_is_ours(event) for event in running.plane.api.items(EVENTS))
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {plan.pods or PODS}")
    agreed, differed = forecasts["agrees"], forecasts["differs"]
    shown = f"{agreed} agreed, {differed} differed, {forecasts['not_known']} not known"
    ok = agreed >= PREDICTED * (agreed + differed) > 0
    findings.must("predicted devices against those that kube-scheduler allocated", shown, "99 % agreed", ok=ok)
    placed = [entry for entry in ours.entries if entry.node and entry.has_own_cpus]
    annotated = sum(PLACEMENT in entry.pod["metadata"].get("annotations", {}) for entry in placed)
    together, apart = where[0]["together"], where[0]["apart"]
    findings.must("demanding pods with CPUs and device together, with us", together, "at least 1", ok=together > 0)
    findings.must("demanding pods with CPUs and device apart, with us", apart, "0", ok=not apart)
    shown = f"{where[1]['together']}, {where[1]['apart']}"
    findings.must("the same without us: together, apart", shown, "at least 1 apart", ok=where[1]["apart"] > 0)
    show_load(findings, ours, audit, whose=", with us")
    show_without(findings, plain)
    show_binds(findings, binds, ours)
    all_are = annotated == len(placed) > 0
    findings.must(
        "bound pods with exclusive CPUs; with the placement", f"{len(placed)}; {annotated}", "all", ok=all_are
    )
    findings.must("events on pods that fit nowhere", events, "at least 1", ok=events > 0)
    return findings


def _feed(running: Cluster, claims: Claims, name: str, plan: Plan) -> Round:
    found = feed(
        running,
        name,
        seed=plan.seed,
        pods=plan.pods or PODS,
        life_seconds=plan.seconds or LIFE_SECONDS,
        disturb=_tidy(claims),
        prepare=_claim(claims, Random(plan.seed)),
    )
    claims.tidy()
    return found


def _claim(claims: Claims, random: Random) -> Callable[[list[Json]], None]:
    def prepare(pods: list[Json]) -> None:
        for number, pod in enumerate(pods[::EVERY]):
            claiming_pod(pod, random.choice((2, 2, 3, 4)), demands=number % EVERY == 0)
            claims.create(pod["metadata"]["name"])

    return prepare


def _tidy(claims: Claims) -> Disturb:
    def disturb(enough: threading.Event) -> None:
        while not enough.wait(TIDY_SECONDS):
            claims.tidy()

    return disturb


def _where(running: Cluster, claims: Claims, found: Round, findings: Findings) -> Counter[str]:
    """How many demanding pods have CPUs and device together, and apart. Those that break their demand are details."""
    nodes = {node.name: node for node in running.nodes.all}
    counts: Counter[str] = Counter()
    for entry in found.entries:
        if entry.name in claims.allocated and entry.node:
            cpus = numa_of_cpus(nodes[entry.node], entry.pod["metadata"]["uid"])
            node, numa = claims.allocated[entry.name]
            if cpus is not None:
                is_demand = DEMAND.items() <= entry.pod["metadata"].get("annotations", {}).items()
                where = "together" if (node, cpus) == (entry.node, {numa}) else "apart"
                counts[where] += is_demand
                if is_demand and where == "apart" and PLACEMENT in entry.pod["metadata"]["annotations"]:
                    predicted = entry.pod["metadata"]["annotations"][PLACEMENT]
                    has = f"CPUs on NUMA {sorted(cpus)} of {entry.node}, device on NUMA {numa} of {node}"
                    findings.details.append(f"{entry.name}: {has}; predicted {predicted}")
    return counts


def _wait_for_event(running: Cluster) -> None:
    """A pod that kube-scheduler would place and no node can align."""
    api, name = running.plane.api, "too-wide"
    pod = simple_pod(name, TOO_WIDE_CPUS)
    pod["metadata"]["annotations"] = dict(DEMAND)
    create(api, pod)
    until(lambda: any(_is_ours(event, name) for event in api.items(EVENTS)), EVENT_SECONDS, "an event on the pod")
    delete(api, name)


def _is_ours(event: Json, name: str = "") -> bool:
    return event["reason"] == "NoNUMANodeFits" and name in ("", event["involvedObject"]["name"])
