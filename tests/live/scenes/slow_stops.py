"""Pods deleted while they run, whose containers and sandboxes take seconds to stop, near capacity.

Left out: nothing. A container that must stop is still there, and so are its CPUs.
"""

import threading
from dataclasses import replace
from random import Random

from tests.live.alone import try_alone
from tests.live.api import Json
from tests.live.binaries import Binaries
from tests.live.bounds import show_binds, show_load
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import Disturb, audit_of, feed
from tests.live.report import Findings
from tests.live.whole.runtime import SANDBOX_STOP
from tests.live.workload import PODS as PATH
from tests.live.workload import delete

NODES, PODS, LIFE_SECONDS = 8, 200, 15.0
PAUSE_SECONDS = (0.3, 1.5)
"""Between two deletions."""
STOP_SECONDS, SANDBOX_SECONDS = (2.0, 6.0), (0.0, 4.0)
"""From the deletion until the containers have stopped; only real kubelets have sandboxes."""
GRACE_SECONDS = 20
DELETED = 0.1
"""At least this share of the pods is deleted while it runs."""


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Whoever counts the CPUs of a pod that still stops as free has it refused."""
    findings = Findings("slow-stops")
    pods = plan.pods or PODS
    deleted: set[str] = set()
    with cluster(binaries, plan, say, nodes=NODES) as running:
        for node in running.nodes.all:
            node.kubelet.lags = replace(node.kubelet.lags, stop=STOP_SECONDS)
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            found = feed(
                running,
                "slow",
                seed=plan.seed,
                pods=pods,
                life_seconds=plan.seconds or LIFE_SECONDS,
                disturb=_delete_some(running, Random(plan.seed), deleted),
                prepare=lambda made: _stop_slowly(made, Random(plan.seed)),
            )
        audit, binds = audit_of(running.extender, say), running.extender.binds()
        try_alone(running, found)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {pods}")
    least = int(DELETED * pods)
    findings.must("pods deleted while they ran", len(deleted), f"at least {least}", ok=len(deleted) >= least > 0)
    show_load(findings, found, audit)
    show_binds(findings, binds, found)
    return findings


def _stop_slowly(pods: list[Json], random: Random) -> None:
    for pod in pods:
        pod["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
        pod["metadata"]["annotations"] = {SANDBOX_STOP: f"{random.uniform(*SANDBOX_SECONDS):.1f}"}


def _delete_some(running: Cluster, random: Random, deleted: set[str]) -> Disturb:
    def disturb(enough: threading.Event) -> None:
        api = running.plane.api
        while not enough.wait(random.uniform(*PAUSE_SECONDS)):
            there = [
                pod["metadata"]["name"]
                for pod in api.items(f"{PATH}?fieldSelector=status.phase%3DRunning")
                if "deletionTimestamp" not in pod["metadata"]
            ]
            if there:
                name = random.choice(there)
                delete(api, name)
                deleted.add(name)

    return disturb
