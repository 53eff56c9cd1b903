"""A pod of four GPUs waits in a fragmented cluster; it runs soon once the controller that makes room may move pods.

Three nodes with two NUMA nodes of four GPUs. On each NUMA node two pods of one GPU stay of four, so that half of the
GPUs are free and no four of them are together. The pods have a ReplicaSet, and a thread here makes new ones as its
controller would. Left out: other pods that come meanwhile, disruption budgets, and a restart of the extender: it does
not know for certain then that pods have ended whose GPUs a kubelet's checkpoint still has.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from random import Random
from unittest.mock import patch

from extender.features.room.planner import MAX_EVICTIONS
from tests.drill import machines
from tests.drill.machines import GPU
from tests.live import shapes
from tests.live.api import MERGE_PATCH, Api, Json
from tests.live.binaries import Binaries
from tests.live.book import Book, Entry
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import audit_of, counted, show_audit
from tests.live.processes import SceneError
from tests.live.report import Findings
from tests.live.restated_node import RestatedNode
from tests.live.workload import create, delete, simple_pod

NODES, NUMA_NODES, GPUS = 3, 2, 4
STAY = 2
"""Pods that stay on each NUMA node."""
ALONE_SECONDS = 45.0
BOUND_SECONDS = 120.0
PATIENCE_SECONDS = 120.0
OWNER = "worker"


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """While the controller may move no pod, and then with it."""
    findings = Findings("room")
    with (
        patch.object(shapes, "scenario", _scenario),
        cluster(
            binaries,
            replace(plan, nodes=NODES),
            say,
            nodes=NODES,
            groups=1,
            components=("room",),
            room="on",
            room_after_seconds=10,
            room_seconds=90,
        ) as running,
    ):
        running.scheduler.configure(running.extender.url)
        with (
            Book(running.plane.url, running.plane.admin_context) as book,
            running.scheduler,
            _replaced(running, book) as keeper,
        ):
            _played(running, book, keeper, plan, findings, say)
        audit, tally = audit_of(running.extender, say), running.nodes.tally
        findings.show("kube-apiserver", running.plane.version)
    findings.must("refused after binding", counted(tally.refused), "0", ok=not tally.refused)
    show_audit(findings, audit, tally.admitted)
    return findings


def _played(running: Cluster, book: Book, keeper: "Keeper", plan: Plan, findings: Findings, say: Say) -> None:
    api = running.plane.api
    kept = _fragment(running, book, keeper, Random(plan.seed))
    say(f"{kept} pods of one GPU run; half of the GPUs are free")
    large = create(api, _with_gpus(simple_pod("large", 1), GPUS))["metadata"]["uid"]
    is_bound = book.wait(lambda: (entry := book.entry(large)) and entry.node, ALONE_SECONDS)
    findings.must("while no pod may be moved: the pod of four GPUs runs", int(bool(is_bound)), "0", ok=not is_bound)
    say("the pod waits; pods of the namespace may be moved from now on")
    started = time.monotonic()
    labels = {"metadata": {"labels": {"numa-extender.io/movable": "true"}}}
    api.call("PATCH", "/api/v1/namespaces/default", labels, MERGE_PATCH)
    is_running = book.wait(lambda: (entry := book.entry(large)) and entry.running, BOUND_SECONDS)
    seconds = time.monotonic() - started
    view = running.extender.get("/v1/room")
    findings.must("seconds until it runs", f"{seconds:.0f}", f"{BOUND_SECONDS:.0f}", ok=bool(is_running))
    book.wait(lambda: len(keeper.running()) == kept, PATIENCE_SECONDS)
    findings.must("pods of one GPU that run", len(keeper.running()), f"{kept}", ok=len(keeper.running()) == kept)
    told = [each for each in api.items("/api/v1/namespaces/default/events") if each["reason"] == "MovedForRoom"]
    findings.must("events on pods that were moved", len(told), "at least 2", ok=len(told) >= 2)
    if view["finding"]:
        findings.details.append(view["finding"])
    findings.must("evictions", view["evictions"], "2 to 4", ok=2 <= view["evictions"] <= MAX_EVICTIONS)
    findings.must("stopped", view["stopped"] or "no", "no", ok=not view["stopped"])


class Keeper:
    """Makes a new pod for each one that is deleted or has ended, as the controller of a ReplicaSet does."""

    def __init__(self, api: Api, book: Book, owner_uid: str) -> None:
        self._api, self._book, self._owner_uid = api, book, owner_uid
        self.wanted, self._made = 0, 0

    def step(self) -> None:
        """Make what is missing."""
        for _ in range(self.wanted - len(self._alive())):
            self._made += 1
            pod = _with_gpus(simple_pod(f"{OWNER}-{self._made}", 1), 1)
            reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": OWNER, "uid": self._owner_uid}
            pod["metadata"] |= {"labels": {"app": OWNER}, "ownerReferences": [{**reference, "controller": True}]}
            self._book.wait(partial(self._book.entry, create(self._api, pod)["metadata"]["uid"]), 10)

    def running(self) -> list[Entry]:
        """Its pods that run."""
        return [entry for entry in self._alive() if entry.running]

    def _alive(self) -> list[Entry]:
        pods = [each for each in self._book.entries() if each.pod["metadata"].get("labels", {}).get("app") == OWNER]
        return [each for each in pods if not each.is_over and "deletionTimestamp" not in each.pod["metadata"]]


@contextmanager
def _replaced(running: Cluster, book: Book) -> Iterator[Keeper]:
    """A keeper that looks four times a second."""
    template = {
        "metadata": {"labels": {"app": OWNER}},
        "spec": {**simple_pod("x", 1)["spec"], "restartPolicy": "Always"},
    }
    made = running.plane.api.create(
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {"name": OWNER, "namespace": "default"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": OWNER}}, "template": template},
        }
    )
    keeper, ends = Keeper(running.plane.api, book, made["metadata"]["uid"]), threading.Event()

    def keep() -> None:
        while not ends.wait(0.25):
            keeper.step()

    thread = threading.Thread(target=keep, name="keeper", daemon=True)
    thread.start()
    try:
        yield keeper
    finally:
        ends.set()
        thread.join(30)


def _fragment(running: Cluster, book: Book, keeper: Keeper, random: Random) -> int:
    """Fill all GPUs with pods of one, and end those that do not stay. Returns how many stay."""
    keeper.wanted = NODES * NUMA_NODES * GPUS
    if not book.wait(lambda: len(keeper.running()) == keeper.wanted, PATIENCE_SECONDS):
        raise SceneError(f"only {len(keeper.running())} of {keeper.wanted} pods of one GPU run")
    by_numa: dict[tuple[str, int], list[str]] = {}
    names = {entry.uid: entry.name for entry in keeper.running()}
    for node in running.nodes.all:
        assert isinstance(node, RestatedNode)
        devices = node.kubelet.naive.devices
        for uid, containers in devices.held.items():
            (gpu,) = next(iter(containers.values()))[GPU]
            (numa,) = devices.numa[GPU][gpu] or (0,)
            by_numa.setdefault((node.name, numa), []).append(names[uid])
    keeper.wanted = NODES * NUMA_NODES * STAY
    for held in by_numa.values():
        for name in random.sample(sorted(held), len(held) - STAY):
            delete(running.plane.api, name)
    if not book.wait(lambda: len(keeper.running()) == keeper.wanted, PATIENCE_SECONDS):
        raise SceneError("the pods that do not stay have not ended")
    return keeper.wanted


def _scenario(number: int) -> Json:
    """A node of the drill with four GPUs on each NUMA node."""
    made = machines.scenario(number)
    gpus = [{"id": f"gpu{i}", "numa": [i // GPUS], "healthy": True} for i in range(NUMA_NODES * GPUS)]
    return {**made, "devices": {GPU: gpus}}


def _with_gpus(pod: Json, gpus: int) -> Json:
    for amounts in pod["spec"]["containers"][0]["resources"].values():
        amounts |= {GPU: str(gpus), "cpu": "1"}
    return pod
