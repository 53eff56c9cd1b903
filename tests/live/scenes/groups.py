"""Groups of pods near capacity: each is bound as a whole or not at all, and no pod is refused.

Left out: groups of unlike pods.
"""

import math
from collections import defaultdict
from collections.abc import Iterable

from tests.drill.groups import REST_SECONDS, group_name
from tests.live.api import Json
from tests.live.binaries import Binaries
from tests.live.book import Entry
from tests.live.bounds import show_load, show_without
from tests.live.cluster import Plan, Say, cluster
from tests.live.load import audit_of, feed
from tests.live.report import Findings

NODES, PODS, LIFE_SECONDS = 12, 300, 12.0
WHOLE = 0.8
"""At least this share of the groups: near capacity a group waits until there is room for all of it."""
SIZE, EVERY = 4, 10
"""Of every ten pods the last four are copies of one another, and a group."""


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """A group is half-placed if its last pod is bound long after its first one, or never, or if one is refused."""
    findings = Findings("groups")
    pods, life = plan.pods or PODS, plan.seconds or LIFE_SECONDS
    with cluster(binaries, plan, say, nodes=NODES, components=("gangs",), gangs="on") as running:
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            with_us = feed(running, "with", seed=plan.seed, pods=pods, life_seconds=life, prepare=_group)
        audit = audit_of(running.extender, say)
        running.scheduler.configure(None)
        with running.scheduler:
            without = feed(running, "without", seed=plan.seed, pods=pods, life_seconds=life, prepare=_group)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {pods}")
    whole, half, none = _placed(with_us.entries)
    least = math.ceil(WHOLE * (whole + half + none))
    shown = f"{whole}, {half}, {none}"
    ok = whole >= least > 0 and not half
    findings.must("groups placed whole, half, not at all", shown, f"at least {least} whole, 0 half", ok=ok)
    plain = _placed(without.entries)
    shown = ", ".join(map(str, plain))
    findings.must("groups placed whole, half, not at all: without us", shown, "at least 1 half", ok=plain[1] > 0)
    show_load(findings, with_us, audit, whose=", with us")
    show_without(findings, without)
    return findings


def _group(pods: list[Json]) -> None:
    for last in range(EVERY, len(pods) + 1, EVERY):
        group = pods[last - SIZE : last]
        name = group[0]["metadata"]["name"]
        for pod in group:
            pod["spec"] = group[0]["spec"]
            pod["metadata"]["annotations"] = {
                "numa-extender.io/group": name,
                "numa-extender.io/group-size": str(SIZE),
            }


def _placed(entries: Iterable[Entry]) -> tuple[int, int, int]:
    """How many groups were placed whole, half, and not at all."""
    groups = defaultdict(list)
    for entry in entries:
        if name := group_name(entry.pod):
            groups[name].append(None if entry.phase == "Failed" else entry.bound_at)
    whole = half = none = 0
    for times in groups.values():
        bound = [each for each in times if each is not None]
        if not bound:
            none += 1
        elif len(bound) == SIZE and max(bound) - min(bound) <= REST_SECONDS:
            whole += 1
        else:
            half += 1
    return whole, half, none
