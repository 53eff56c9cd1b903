"""Kueue admits a job when all of its pods get places: inactive, Retry, Ready, admitted, bound; and one is rejected.

Two nodes of 6 and 8 CPUs on two NUMA nodes. A pod of 4 CPUs on each NUMA node leaves 6 CPUs of each node, and no NUMA
node has 5. The extender is killed after its first answer, and again between the admission and the first
binding. Then pods of 5 CPUs come before those of the job, one for each NUMA node. At the end Kueue chooses the node
itself, by totals (topology aware scheduling). The Job controller is played by the test. Left out: webhooks and
preemption of Kueue, other kinds of jobs.
"""

import os
import time
from collections.abc import Callable
from dataclasses import replace

from tests.live.binaries import Binaries
from tests.live.book import Book
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.kueue import (
    API,
    QUEUE,
    Kueue,
    check_of,
    conditions,
    is_started,
    job,
    label_nodes,
    make_pods,
    queue,
    workload_of,
)
from tests.live.load import audit_of, counted, show_audit
from tests.live.processes import SceneError
from tests.live.report import Findings
from tests.live.workload import create, delete, simple_pod

IDLE_SECONDS = 15.0
HELD_SECONDS = 60.0
SECONDS = 120.0
"""For each step; a Retry takes a minute."""
HOLD_SECONDS = 300.0
"""An extender that starts again hears from the exporters when they push next."""
NODES, PODS = 2, 2
TOPOLOGY, HOSTNAME = "live-topology", "kubernetes.io/hostname"


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """One job through all states, and one that no node can ever take."""
    findings = Findings("kueue")
    if binaries.kueue is None or not binaries.kueue_crds or os.geteuid():
        say("skipped: it needs root, and kueue with the folder kueue-crds (its CRDs) in KUBEBUILDER_ASSETS")
        return findings
    with cluster(
        binaries,
        replace(plan, nodes=NODES),
        say,
        nodes=NODES,
        groups=1,
        components=("kueue",),
        kueue="off",
        kueue_hold_seconds=HOLD_SECONDS,
    ) as running:
        directory = running.plane.identities.directory
        kueue = Kueue(binaries.kueue, binaries.kueue_crds, running.plane, directory, running.extender.log.parent)
        label_nodes(running.plane)
        queue(running.plane)
        running.scheduler.configure(running.extender.url)
        with Book(running.plane.url, running.plane.admin_context) as book, running.scheduler, kueue:
            _played(running, book, findings, say)
            audit, tally = audit_of(running.extender, say), running.nodes.tally
        findings.must("refused after binding", counted(tally.refused), "0", ok=not tally.refused)
        show_audit(findings, audit, 2 * NODES + PODS + 4)
    return findings


def _played(running: Cluster, book: Book, findings: Findings, say: Say) -> None:
    api = running.plane.api
    holders = [create(api, simple_pod(f"holder-{i}", 4))["metadata"]["uid"] for i in range(2 * NODES)]
    _wait(lambda: all((entry := book.entry(uid)) and entry.running for uid in holders), "the holders run")
    api.create(job("train", PODS, simple_pod("x", 5)))
    time.sleep(IDLE_SECONDS)
    active = conditions(api.call("GET", f"{API}/clusterqueues/{QUEUE}")).get("Active", {})
    ok = active.get("status") == "False" and not is_started(running.plane, "train")
    findings.must("without the feature: the queue", active.get("reason", ""), "AdmissionCheckInactive", ok=ok)
    say("the queue is inactive; the extender starts again with KUEUE=on")
    running.extender.stop()
    running.extender.environment["NUMA_EXTENDER_KUEUE"] = "on"
    _start(running)
    _wait(lambda: check_of(workload_of(running.plane, "train")).get("retryCount"), "the first Retry")
    told = conditions(workload_of(running.plane, "train"))["Evicted"]["message"]
    ok = "AdmissionCheck in Retry state" in told and not is_started(running.plane, "train")
    findings.must("no room on NUMA nodes: Kueue says", told[:80], "Retry, and the job is not started", ok=ok)
    say("Retry; the extender is killed and starts again, and the holders end")
    running.extender.kill()
    _start(running)
    for number in range(2 * NODES):
        delete(api, f"holder-{number}")
    _wait(lambda: is_started(running.plane, "train"), "the job is admitted")
    admitted = workload_of(running.plane, "train")
    answered = check_of(admitted)
    say(f"admitted: {answered['message']}; the extender is killed before any pod comes")
    running.extender.kill()
    _start(running)
    deadline = time.monotonic() + HELD_SECONDS
    while _held(running) < PODS and time.monotonic() < deadline:
        time.sleep(0.3)
    findings.must("places held again after a kill", _held(running), f"{PODS}", ok=_held(running) == PODS)
    rivals = [create(api, simple_pod(f"rival-{i}", 5))["metadata"]["uid"] for i in range(2 * NODES)]
    book.wait(lambda: _bound(book, rivals) > PODS, IDLE_SECONDS)
    uids = [each["metadata"]["uid"] for each in make_pods(running.plane, "train")]
    book.wait(lambda: all((entry := book.entry(uid)) and entry.running for uid in uids), SECONDS)
    findings.must("pods of the job that are placed", _bound(book, uids), f"{PODS}", ok=_bound(book, uids) == PODS)
    bound = _bound(book, rivals)
    findings.must("other pods placed beside the job, of four", bound, f"{PODS}", ok=bound == PODS)
    _wait(lambda: not _held(running), "no place is held")
    after = check_of(workload_of(running.plane, "train"))
    findings.must("answers after admission", int(after != answered), "0", ok=after == answered)
    api.create(job("wide", 1, simple_pod("x", 9)))
    _wait(lambda: workload_of(running.plane, "wide").get("spec", {}).get("active") is False, "the wide job is rejected")
    told = conditions(workload_of(running.plane, "wide")).get("Evicted", {}).get("reason", "")
    findings.must("a pod too large for any NUMA node", told, "deactivated, not started", ok=not is_started(
        running.plane, "wide"
    ))  # fmt: skip
    say("a pod of 9 CPUs is rejected; now Kueue chooses the nodes")
    for name in ("train-0", "train-1", *(f"rival-{i}" for i in range(2 * NODES))):
        delete(api, name)
    book.wait(lambda: all(not (entry := book.entry(uid)) or entry.deleted for uid in (*uids, *rivals)), SECONDS)
    _chosen_by_kueue(running, book, findings)


def _chosen_by_kueue(running: Cluster, book: Book, findings: Findings) -> None:
    """Kueue assigns the first node, which has 6 CPUs free and no NUMA node with 5, until that has room."""
    api = running.plane.api
    first, second = sorted(node["metadata"]["name"] for node in api.items("/api/v1/nodes"))
    holders = [(f"chosen-{i}", cpus, node) for i, (cpus, node) in enumerate([(4, first), (4, first), (6, second)])]
    made = [create(api, simple_pod(name, cpus, nodeSelector={HOSTNAME: node})) for name, cpus, node in holders]
    _wait(lambda: _bound(book, [each["metadata"]["uid"] for each in made]) == len(made), "the holders are bound")
    queue(running.plane, TOPOLOGY, HOSTNAME)
    api.create(job("chosen", 1, simple_pod("x", 5), TOPOLOGY, **{"kueue.x-k8s.io/podset-required-topology": HOSTNAME}))
    _wait(lambda: check_of(workload_of(running.plane, "chosen")).get("retryCount"), "Retry for the assigned node")
    started = is_started(running.plane, "chosen")
    findings.must("Kueue chooses a node without room on a NUMA node", "Retry", "not started", ok=not started)
    for name, _, node in holders:
        if node == first:
            delete(api, name)
    _wait(lambda: is_started(running.plane, "chosen"), "the job is admitted")
    status = workload_of(running.plane, "chosen")["status"]
    assigned = str(status["admission"]["podSetAssignments"][0]["topologyAssignment"])
    (uid,) = (each["metadata"]["uid"] for each in make_pods(running.plane, "chosen"))
    book.wait(lambda: (entry := book.entry(uid)) and entry.node, SECONDS)
    node = str(entry.node) if (entry := book.entry(uid)) else ""
    findings.must("the pod is on the node that Kueue has assigned", node or "none", assigned, ok=node in assigned)


def _start(running: Cluster) -> None:
    running.extender.start()
    running.extender.wait_for_nodes(NODES)


def _bound(book: Book, uids: list[str]) -> int:
    return sum(bool((entry := book.entry(uid)) and entry.node) for uid in uids)


def _held(running: Cluster) -> int:
    """Places that the extender holds."""
    return int(running.extender.metrics()["numa_extender_kueue_held_places"])


def _wait(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SceneError(f"{what}: not within {SECONDS:.0f} s")
        time.sleep(0.3)
