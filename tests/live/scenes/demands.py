"""Pods that demand alignment, near capacity: no kubelet places one against its demand."""

import math

from tests.live.api import Json
from tests.live.binaries import Binaries
from tests.live.bounds import show_load
from tests.live.cluster import Plan, Say, cluster
from tests.live.load import audit_of, feed
from tests.live.report import Findings

NODES, PODS, LIFE_SECONDS = 12, 300, 12.0
NOT_PLACED = 0.1
"""At most this share: near capacity a demand is harder to meet than a kubelet's policy."""
MET, NOT_KNOWN = 0.5, 0.1
"""Of the demanding pods at least the first share is known to be placed as demanded. At most the second share of all
pods are demanding ones that are left out, because they ended before a report showed them."""
METRIC = 'numa_extender_demands_total{{result="{}"}}'


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Every second pod demands one NUMA node, on kubelets of all policies."""
    findings = Findings("demands")
    pods, life = plan.pods or PODS, plan.seconds or LIFE_SECONDS
    with cluster(binaries, plan, say, nodes=NODES) as running:
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            played = feed(running, "with", seed=plan.seed, pods=pods, life_seconds=life, prepare=_demand)
        audit = audit_of(running.extender, say)
        metrics = running.extender.metrics()
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {pods}")
    met, broken, not_known = (int(metrics.get(METRIC.format(r), 0)) for r in ("met", "broken", "not_known"))
    least = math.ceil(MET * len(range(0, pods, 2)))
    findings.must("demanding pods placed as demanded", met, f"at least {least}", ok=met >= least > 0)
    findings.must("demanding pods placed otherwise", broken, "0", ok=not broken)
    most = math.floor(NOT_KNOWN * pods)
    what = "demanding pods that ended before a report showed them"
    findings.must(what, not_known, f"at most {most}", ok=not_known <= most)
    show_load(findings, played, audit, admitted=1 - NOT_PLACED, not_placed=NOT_PLACED)
    return findings


def _demand(pods: list[Json]) -> None:
    for pod in pods[::2]:
        pod["metadata"]["annotations"] = {"numa-extender.io/alignment": "single-numa-node"}
