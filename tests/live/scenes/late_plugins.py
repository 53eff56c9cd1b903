"""Kubelets restarted under load whose device plugins register long after them. A fifth of the pods wants a device.

Left out, as in `restarts`: pods bound before their kubelet stopped or less than a second after it, within their share.
"""

from dataclasses import replace

from tests.drill.machines import GPU
from tests.live.alone import try_alone
from tests.live.api import Json
from tests.live.binaries import Binaries
from tests.live.bounds import show_binds, show_load
from tests.live.cluster import Plan, Say, cluster
from tests.live.load import audit_of, counted, feed
from tests.live.report import Findings
from tests.live.scenes.restarts import AGAIN, restarting

NODES, PODS, LIFE_SECONDS = 8, 200, 20.0
LOAD = 0.5
DELAY_SECONDS = (3.0, 12.0)
"""From the healthy kubelet to the registration of each plugin."""


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """A kubelet refuses a pod with a device whose plugin has not registered since the restart: nobody may bind it."""
    findings = Findings("late-plugins")
    pods = plan.pods or PODS
    with cluster(binaries, plan, say, nodes=NODES) as running:
        for node in running.nodes.all:
            node.kubelet.lags = replace(node.kubelet.lags, plugins=DELAY_SECONDS)
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            found = feed(
                running,
                "late",
                seed=plan.seed,
                pods=pods,
                life_seconds=plan.seconds or LIFE_SECONDS,
                disturb=restarting(running, plan.seed, usual=NODES),
                prepare=_want_devices,
                load=LOAD,
            )
        audit, binds = audit_of(running.extender, say), running.extender.binds()
        try_alone(running, found)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {pods}")
    findings.must("restarts of kubelets", found.tally.restarts, "at least 1", ok=found.tally.restarts > 0)
    wanting = sum(
        GPU in each.pod["spec"]["containers"][0]["resources"]["limits"] for each in found.entries if each.node
    )
    findings.must("bound pods with a device", wanting, "at least 1", ok=wanting > 0)
    show_load(findings, found, audit, excuses_unforeseen=True)
    show_binds(findings, binds, found)
    again, most = found.tally.refused_again, int(AGAIN * pods)
    findings.must("ran before a restart and refused by it", counted(again), f"at most {most}", ok=again.total() <= most)
    return findings


def _want_devices(pods: list[Json]) -> None:
    """One container each, with few CPUs; every fifth one wants a GPU."""
    for number, pod in enumerate(pods):
        amounts = {"cpu": str(1 + number % 3), "memory": "1Gi", **({GPU: "1"} if number % 5 == 0 else {})}
        container = {"name": "c0", "image": "i", "resources": {"requests": amounts, "limits": dict(amounts)}}
        pod["spec"].pop("initContainers", None)
        pod["spec"]["containers"] = [container]
