"""Cluster Autoscaler adds nodes for pods that only the extender refuses, as many as NUMA needs, and keeps them.

One node of 6 and 8 CPUs on two NUMA nodes. Pods of 4 CPUs on both leave 6 in total, and no NUMA node has 5. New nodes
are like it. The pods have a ReplicaSet without its controller, since Cluster Autoscaler drains only pods of
controllers. Left out: cloud providers, several pools, and pools without nodes.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from tests.drill import machines
from tests.live.api import Json
from tests.live.autoscaling import POOL, REQUESTS, Autoscaler, Machines, label
from tests.live.binaries import Binaries
from tests.live.book import Book
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import audit_of, counted, show_audit
from tests.live.processes import SceneError
from tests.live.report import Findings
from tests.live.workload import create, delete, simple_pod
from tests.ports import reserve_port

ALONE_SECONDS = 40.0
"""Eight looks of Cluster Autoscaler."""
BOUND_SECONDS = 120.0
KEPT_SECONDS = 90.0
"""Three times as long as Cluster Autoscaler needs to drain a node that it thinks is not needed."""
GROUP = 4


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """One pod without the feature, one with it, its node kept and given back, and a group."""
    findings = Findings("scale-up")
    if binaries.cluster_autoscaler is None:
        say("skipped: cluster-autoscaler, built with the provider kwok, is not in KUBEBUILDER_ASSETS or on PATH")
        return findings
    one, port = replace(plan, nodes=1), reserve_port()
    with cluster(
        binaries,
        one,
        say,
        nodes=1,
        groups=1,
        components=("autoscaling",),
        autoscaling="off",
        autoscaling_wait_seconds=10,
        autoscaling_expander_port=port,
        pool_labels=POOL,
    ) as running:
        label(running, "big")
        logs = running.extender.log.parent
        autoscaler = Autoscaler(binaries.cluster_autoscaler, running.plane, logs, {"big": machines.scenario(0)}, port)
        running.scheduler.configure(running.extender.url)
        with (
            Book(running.plane.url, running.plane.admin_context) as book,
            running.scheduler,
            autoscaler,
            Machines(running, {"big": 0}) as made,
        ):
            _played(running, book, made, findings, say)
            audit, tally = audit_of(running.extender, say), running.nodes.tally
        findings.must("refused after binding", counted(tally.refused), "0", ok=not tally.refused)
        show_audit(findings, audit, 3 + GROUP)
    return findings


def _played(running: Cluster, book: Book, made: Machines, findings: Findings, say: Say) -> None:
    owner, alone = refused(running, book, made, findings)
    switch_on(running, book, alone, findings, say)
    must_be_kept(book, alone, findings)
    findings.must("nodes added for one pod", len(made.made), "1", ok=len(made.made) == 1)
    findings.must("requests left", len(_requests(running)), "0", ok=not _requests(running))
    _useless(running, book, made, findings)
    for number in range(2):
        delete(running.plane.api, f"holder-{number}")
    until_gone = book.wait(lambda: not _left(running), 60)
    findings.must("objects and annotations left", len(_left(running)), "0", ok=until_gone)
    _too_wide(running, book, made, findings)
    _group(running, book, made, findings, say, owner)


def refused(running: Cluster, book: Book, made: Machines, findings: Findings) -> tuple[str, str]:
    """A pod that only the extender refuses gets no node without the feature. The UIDs of its owner and of the pod."""
    api = running.plane.api
    owner = api.create(replica_set())["metadata"]["uid"]
    holders = [create(api, simple_pod(f"holder-{i}", 4))["metadata"]["uid"] for i in range(2)]
    wait(book, lambda: all((entry := book.entry(uid)) and entry.running for uid in holders), 60, "the holders run")
    alone = create(api, owned("alone", 5, owner))["metadata"]["uid"]
    is_bound = book.wait(lambda: (entry := book.entry(alone)) and entry.node, ALONE_SECONDS)
    findings.must("without the feature: nodes added", len(made.made), "0", ok=not made.made and not is_bound)
    return owner, alone


def switch_on(running: Cluster, book: Book, alone: str, findings: Findings, say: Say) -> None:
    """The extender starts again with the feature, and the pod gets its node."""
    say("the pod waits, and no node is added; the extender starts again with AUTOSCALING=on")
    running.extender.stop()
    running.extender.environment["NUMA_EXTENDER_AUTOSCALING"] = "on"
    started = time.monotonic()
    running.extender.start()
    running.extender.wait_for_nodes(1)
    wait(book, lambda: (entry := book.entry(alone)) and entry.running, BOUND_SECONDS, "the pod runs on a new node")
    seconds = time.monotonic() - started
    findings.must("seconds to the pod running", f"{seconds:.0f}", f"{BOUND_SECONDS:.0f}", ok=seconds <= BOUND_SECONDS)
    say(f"the pod runs on a new node after {seconds:.0f} s; is it kept?")


def must_be_kept(book: Book, alone: str, findings: Findings) -> None:
    """The pod stays where it is."""
    is_kept = not book.wait(
        lambda: (entry := book.entry(alone)) is None or entry.deleted or entry.is_over, KEPT_SECONDS
    )
    findings.must("a placed pod drained", int(not is_kept), "0", ok=is_kept)


def _useless(running: Cluster, book: Book, made: Machines, findings: Findings) -> None:
    """A pod of 10 CPUs fits on an empty node by totals, on none of its NUMA nodes, and by totals on no present node."""
    before = len(made.made)
    create(running.plane.api, simple_pod("useless", 10))
    book.wait(lambda: len(made.made) > before, ALONE_SECONDS)
    added = len(made.made) - before
    findings.must("nodes of a pool that would refuse the pod", added, "0, by the expander", ok=not added)
    delete(running.plane.api, "useless")


def _too_wide(running: Cluster, book: Book, made: Machines, findings: Findings) -> None:
    """A pod of 9 CPUs fits on an empty node by totals, and on none of its NUMA nodes."""
    before = len(made.made)
    uid = create(running.plane.api, simple_pod("wide", 9))["metadata"]["uid"]
    book.wait(lambda: (entry := book.entry(uid)) and entry.node, ALONE_SECONDS)
    events = running.plane.api.items("/api/v1/namespaces/default/events")
    told = any(event["reason"] == "NoPoolFits" and event["involvedObject"]["uid"] == uid for event in events)
    findings.must("a pod too large for any NUMA node: event", int(told), "1", ok=told)
    added = len(made.made) - before
    findings.must("a pod too large for any NUMA node: nodes added", added, "0", ok=not added)
    delete(running.plane.api, "wide")


def _group(running: Cluster, book: Book, made: Machines, findings: Findings, say: Say, owner: str) -> None:
    """Pods of 7 CPUs: a node takes one on its NUMA node of 8, and two by totals."""
    before = len(made.made)
    present = {node.name for node in running.nodes.all} & set(made.present())
    uids = [create(running.plane.api, owned(f"group-{i}", 7, owner))["metadata"]["uid"] for i in range(GROUP)]
    is_done = book.wait(lambda: all((entry := book.entry(uid)) and entry.running for uid in uids), 2 * BOUND_SECONDS)
    running_now = sum(bool((entry := book.entry(uid)) and entry.running) for uid in uids)
    findings.must("pods of the group that run", running_now, f"{GROUP}", ok=is_done)
    free = 1 + len(present)
    added, needed = len(made.made) - before, GROUP - free
    say(f"{running_now} pods of a group of {GROUP} run; {added} nodes were added, {free} were free")
    findings.must("nodes added for a group", added, f"{needed} or one more", ok=needed <= added <= needed + 1)
    further = create(running.plane.api, owned("further", 7, owner))["metadata"]["uid"]
    runs = book.wait(lambda: (entry := book.entry(further)) and entry.running, BOUND_SECONDS)
    findings.must("a further pod of their owner, while they are guarded", int(runs), "1 that runs", ok=runs)


def _requests(running: Cluster) -> list[Json]:
    return running.plane.api.items(REQUESTS)


def _left(running: Cluster) -> list[str]:
    """What the feature has written and not taken back."""
    api = running.plane.api
    pods = api.items("/api/v1/pods")
    keys = ("autoscaling.x-k8s.io/", "cluster-autoscaler.kubernetes.io/safe-to-evict")
    marks = [key for pod in pods for key in pod["metadata"].get("annotations") or {} if key.startswith(keys)]
    objects = [*_requests(running), *api.items("/api/v1/podtemplates")]
    return [*marks, *(each["metadata"]["name"] for each in objects)]


def replica_set() -> Json:
    """A ReplicaSet without its controller."""
    pod = simple_pod("x", 1)["spec"] | {"restartPolicy": "Always"}
    labels = {"app": "scaled"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "scaled", "namespace": "default"},
        "spec": {"replicas": GROUP, "selector": {"matchLabels": labels}, "template": template},
    }


def wait(book: Book, condition: Callable[[], object], seconds: float, what: str) -> None:
    """Raises SceneError: it does not hold within that time."""
    if not book.wait(condition, seconds):
        raise SceneError(f"{what}: not within {seconds:.0f} s")


def owned(name: str, cpus: int, owner: str) -> Json:
    """A pod of the ReplicaSet with the UID *owner*."""
    pod = simple_pod(name, cpus)
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "scaled", "uid": owner, "controller": True}
    pod["metadata"] |= {"labels": {"app": "scaled"}, "ownerReferences": [reference]}
    return pod
