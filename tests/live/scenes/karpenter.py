"""Karpenter adds a node for a pod that only the extender refuses, within the limits of its NodePool, and keeps it.

One node of 6 and 8 CPUs on two NUMA nodes. Pods of 4 CPUs on both leave 6 in total, and no NUMA node has 5. The limit
of the NodePool allows a second node. Left out: clouds, several instance types.
"""

import time
from dataclasses import replace

from tests.drill import machines
from tests.live.autoscaling import Machines
from tests.live.binaries import Binaries
from tests.live.book import Book
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.karpenter import NODE_POOL, Karpenter, claims, label_nodes
from tests.live.load import audit_of, counted, show_audit
from tests.live.report import Findings
from tests.live.scenes.scale_up import BOUND_SECONDS, KEPT_SECONDS, owned, replica_set, wait
from tests.live.workload import create, delete, simple_pod

ALONE_SECONDS = 40.0
GUARD = "karpenter.sh/do-not-disrupt"


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """One pod without the feature and with it, a second one beyond the limit, and the node given back."""
    findings = Findings("karpenter")
    if binaries.karpenter is None or binaries.karpenter_crds is None:
        say("skipped: karpenter, built with the provider kwok, and the folder karpenter-crds are not there")
        return findings
    scenario = machines.scenario(0)
    with cluster(
        binaries,
        replace(plan, nodes=1),
        say,
        nodes=1,
        groups=1,
        components=("autoscaling", "karpenter"),
        autoscaling="off",
        autoscaling_wait_seconds=10,
    ) as running:
        label_nodes(running.plane, [node.name for node in running.nodes.all])
        logs, limit = running.extender.log.parent, 2 * len(scenario["machine"]["cpus"])
        karpenter = Karpenter(binaries.karpenter, binaries.karpenter_crds, running.plane, logs, scenario, limit)
        running.scheduler.configure(running.extender.url)
        with (
            Book(running.plane.url, running.plane.admin_context) as book,
            running.scheduler,
            karpenter,
            Machines(running, {NODE_POOL: 0}) as made,
        ):
            _played(running, book, made, findings, say)
            audit, tally = audit_of(running.extender, say), running.nodes.tally
        findings.must("refused after binding", counted(tally.refused), "0", ok=not tally.refused)
        show_audit(findings, audit, 3)
    return findings


def _played(running: Cluster, book: Book, made: Machines, findings: Findings, say: Say) -> None:
    api = running.plane.api
    owner = api.create(replica_set())["metadata"]["uid"]
    holders = [create(api, simple_pod(f"holder-{i}", 4))["metadata"]["uid"] for i in range(2)]
    wait(book, lambda: all((entry := book.entry(uid)) and entry.running for uid in holders), 60, "the holders run")
    alone = create(api, owned("alone", 5, owner))["metadata"]["uid"]
    is_bound = book.wait(lambda: (entry := book.entry(alone)) and entry.node, ALONE_SECONDS)
    told = [each["message"] for each in api.items("/api/v1/namespaces/default/events") if each["reason"] == "Nominated"]
    findings.must("without the feature: nodes added", len(made.made), "0", ok=not made.made and not is_bound)
    findings.must("without the feature: Karpenter says", "; ".join(told)[:80], "should schedule on", ok=bool(told))
    say("the pod waits, and Karpenter adds no node; the extender starts again with AUTOSCALING=on")
    running.extender.stop()
    running.extender.environment["NUMA_EXTENDER_AUTOSCALING"] = "on"
    started = time.monotonic()
    running.extender.start()
    running.extender.wait_for_nodes(1)
    wait(book, lambda: (entry := book.entry(alone)) and entry.running, BOUND_SECONDS, "the pod runs on a new node")
    seconds = time.monotonic() - started
    findings.must("seconds to the pod running", f"{seconds:.0f}", f"{BOUND_SECONDS:.0f}", ok=seconds <= BOUND_SECONDS)
    beyond = [create(api, owned(f"beyond-{i}", 8, owner))["metadata"]["uid"] for i in range(2)]
    say(f"the pod runs on a new node after {seconds:.0f} s; is it kept, and the limit?")
    is_kept = not book.wait(
        lambda: (entry := book.entry(alone)) is None or entry.deleted or entry.is_over, KEPT_SECONDS
    )
    findings.must("a placed pod drained", int(not is_kept), "0", ok=is_kept)
    count = len(claims(running.plane))
    findings.must("NodeClaims, with pods beyond the limit", count, "1", ok=count == 1 and len(made.made) == 1)
    bound = sum(bool((entry := book.entry(uid)) and entry.node) for uid in beyond)
    findings.must("of two further pods of 8 CPUs are placed", bound, "at most 1", ok=bound <= 1)
    for number in range(2):
        delete(api, f"beyond-{number}")
    for number in range(2):
        delete(api, f"holder-{number}")
    until_gone = book.wait(lambda: not _left(running), 120)
    findings.must("objects and annotations left", len(_left(running)), "0", ok=until_gone)


def _left(running: Cluster) -> list[str]:
    """What is left of the feature: the annotation on pods and nodes, the record, and a NodeClaim that is marked."""
    api = running.plane.api
    marked = [*api.items("/api/v1/pods"), *api.items("/api/v1/nodes"), *claims(running.plane)]
    marks = [each["metadata"]["name"] for each in marked if GUARD in (each["metadata"].get("annotations") or {})]
    return [*marks, *(each["metadata"]["name"] for each in api.items("/api/v1/podtemplates"))]
