"""Karpenter adds a node for a pod that only the extender refuses, within the limits of its NodePool, and keeps it.

One node of 6 and 8 CPUs on two NUMA nodes. Pods of 4 CPUs on both leave 6 in total, and no NUMA node has 5. The limit
of the NodePool allows a second node. Left out: clouds, several instance types.
"""

from dataclasses import replace

from tests.drill import machines
from tests.live.autoscaling import Machines
from tests.live.binaries import Binaries
from tests.live.book import Book
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.karpenter import NODE_POOL, Karpenter, claims, label_nodes
from tests.live.load import audit_of, counted, show_audit
from tests.live.report import Findings
from tests.live.scenes.scale_up import must_be_kept, owned, refused, switch_on
from tests.live.workload import create, delete

GUARD = "karpenter.sh/do-not-disrupt"
BEYOND_SECONDS = 60.0


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
    owner, alone = refused(running, book, made, findings)
    told = [each["message"] for each in api.items("/api/v1/namespaces/default/events") if each["reason"] == "Nominated"]
    findings.must("without the feature: Karpenter says", "; ".join(told)[:80], "should schedule on", ok=bool(told))
    switch_on(running, book, alone, findings, say)
    must_be_kept(book, alone, findings)
    beyond = [create(api, owned(f"beyond-{i}", 5, owner))["metadata"]["uid"] for i in range(2)]
    book.wait(lambda: len(made.made) > 1, BEYOND_SECONDS)
    count = len(claims(running.plane))
    findings.must("NodeClaims, with pods beyond the limit", count, "1", ok=count == 1 and len(made.made) == 1)
    bound = sum(bool((entry := book.entry(uid)) and entry.node) for uid in beyond)
    findings.must("of two further pods of 5 CPUs are placed", bound, "1", ok=bound == 1)
    events = api.items("/api/v1/namespaces/default/events")
    told = [each["message"] for each in events if each["reason"] == "NoPoolFits"]
    ok = any("the limit of cpu is reached" in each for each in told)
    findings.must("event of the pod beyond the limit", "; ".join(told)[:120], "names the limit", ok=ok)
    for number in range(2):
        delete(api, f"beyond-{number}")
        delete(api, f"holder-{number}")
    until_gone = book.wait(lambda: not _left(running), 120)
    findings.must("objects and annotations left", len(_left(running)), "0", ok=until_gone)
    is_given_back = book.wait(lambda: not claims(running.plane), 120)
    findings.must("NodeClaims left, once the old node has room", len(claims(running.plane)), "0", ok=is_given_back)


def _left(running: Cluster) -> list[str]:
    """What is left of the feature: the annotation on pods and nodes, the record, and a NodeClaim that is marked."""
    api = running.plane.api
    marked = [*api.items("/api/v1/pods"), *api.items("/api/v1/nodes"), *claims(running.plane)]
    marks = [each["metadata"]["name"] for each in marked if GUARD in (each["metadata"].get("annotations") or {})]
    return [*marks, *(each["metadata"]["name"] for each in api.items("/api/v1/podtemplates"))]
