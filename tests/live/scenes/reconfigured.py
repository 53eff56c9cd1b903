"""Real kubelets get another configuration, with and without their state files: what restart-check had said.

A round fills a node, asks restart-check about a change, stops the kubelet, makes the change and starts the kubelet. If
it ends by itself, the state files that restart-check named are deleted, and it must start. Then each pod is compared
with what was said of it, and a new pod with what-if. Left out: pods that "may fail", devices, and reboots.
"""

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Final

from tests.live.api import Json
from tests.live.asked import ask, said, was, what_if
from tests.live.binaries import Binaries
from tests.live.book import FINISHED, Book
from tests.live.cluster import REAL, Cluster, Plan, Say, cluster
from tests.live.load import audit_of, counted, show_audit
from tests.live.processes import SceneError, until
from tests.live.report import Findings
from tests.live.whole.comparing import OTHER, SAME, UNSAID
from tests.live.whole.node import WholeNode
from tests.live.workload import create, delete, simple_pod
from tests.oracle.amounts import parse_cpus

NODES, ROUNDS, ROW = 3, 8, 4
PATIENCE_SECONDS = 90.0
STARTED_SECONDS = 3.0
"""A kubelet says that it is healthy a moment before its managers read their state files."""
SETTLED_SECONDS = 5.0
"""After the pods that are said to fail, for those that fail without being said to."""
CHANGES: Final[tuple[Json, ...]] = (
    {"topologyManagerPolicy": "restricted"},
    {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}},
    {"cpuManagerPolicy": "none", "cpuManagerPolicyOptions": {}, "featureGates": {"PodLevelResourceManagers": True}},
    {"cpuManagerPolicy": "static", "topologyManagerPolicy": "single-numa-node"},
    {"memoryManagerPolicy": "None", "reservedMemory": []},
    {"topologyManagerScope": "pod", "featureGates": {"PodLevelResourceManagers": False}},
    {"topologyManagerPolicy": "best-effort"},
    {"cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"}},
)
"""Each is made on a node that has the earlier ones of its own."""


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Restart-check is right about state files and pods, and the extender knows the node as it is then."""
    if plan.kubelets != REAL:
        raise SceneError("restated kubelets keep their configuration: --kubelets real")
    findings, starts, pods, new = Findings("reconfigured"), Counter[str](), Counter[str](), Counter[str]()
    rounds, random = plan.rounds or ROUNDS, Random(plan.seed)
    with cluster(binaries, plan, say, nodes=NODES) as running:
        with Book(running.plane.url, running.plane.admin_context) as book:
            changes = itertools.islice(itertools.cycle(CHANGES), rounds)
            for number, change in enumerate(changes):
                node = running.nodes.all[number % len(running.nodes.all)]
                assert isinstance(node, WholeNode)
                one = Reconfigured(running, book, node, number, random)
                lines = list(one.play(change, starts, pods, new))
                for line in lines:
                    say(line)
                findings.details += [line for line in lines if line.startswith(OTHER)]
        audit = audit_of(running.extender, say)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("kubelets", counted(running.nodes.versions()))
    what = "starts, by what restart-check had said of the state files"
    ok = starts[SAME] == rounds and starts["state files deleted"] > 0
    findings.must(what, counted(starts), f"{rounds} {SAME}, state files deleted at least once", ok=ok)
    least = rounds * ROW // 2
    ok = pods[SAME] >= least and not pods[OTHER]
    bound = f"at least {least} {SAME}, 0 {OTHER}"
    findings.must("pods after the restart, by what restart-check had said", counted(pods), bound, ok=ok)
    least = rounds // 2
    ok = new[SAME] >= least and not new[OTHER]
    bound = f"at least {least} {SAME}, 0 {OTHER}"
    findings.must("new pods, by what what-if had said", counted(new), bound, ok=ok)
    show_audit(findings, audit, 1)
    return findings


class Reconfigured:
    """One round on *node*."""

    def __init__(self, running: Cluster, book: Book, node: WholeNode, number: int, random: Random) -> None:
        self._running, self._book, self._node, self._random = running, book, node, random
        self._name = f"round-{number}"
        self._uids: dict[str, str] = {}

    def play(self, change: Json, starts: Counter[str], pods: Counter[str], new: Counter[str]) -> Iterator[str]:
        """Count how the start, the pods and a new pod came out; a line about each."""
        for place in range(ROW):
            self._place(f"{self._name}-{place}", self._random.randint(1, 3))
        asked = {"nodes": [self._node.name], "kubelet": change}
        (answer,) = ask(self._running.extender, "advice/restart-check", asked)["nodes"]
        refused = [each["file"] for each in answer["refused_files"]]
        is_up = self._restart(change)
        is_same = not answer["error"] and is_up == (not refused)
        starts[SAME if is_same else OTHER] += 1
        yield f"{SAME if is_same else OTHER}: {self._node.name} with {change}, files said to be refused: {refused}"
        if not is_up:
            starts["state files deleted"] += 1
            self._node.delete_state(*refused)
            self._running.nodes.loop.run(self._node.kubelet.restart(0.0), PATIENCE_SECONDS)
        for each in answer["pods"]:
            if each["result"] == "fails":
                self._book.wait(lambda each=each: self._is_over(each), PATIENCE_SECONDS)  # type: ignore[misc]
        self._book.wait(lambda: False, SETTLED_SECONDS)
        result, line = self._new_pod()  # the kubelet has decided about all others before this one
        new[result] += 1
        yield f"{result}: {line}"
        for each in answer["pods"]:
            result, line = self._compared(each)
            pods[result] += 1
            yield f"{result}: {line}"
        for name, uid in self._uids.items():
            delete(self._running.plane.api, name)
            if not self._book.wait(lambda uid=uid: (e := self._book.entry(uid)) and e.deleted, PATIENCE_SECONDS):  # type: ignore[misc]
                raise SceneError(f"{name}: not gone within {PATIENCE_SECONDS:.0f} s")

    def _restart(self, change: Json) -> bool:
        """Whether the kubelet starts with the change."""
        kubelet, loop = self._node.kubelet, self._running.nodes.loop
        kubelet.program.kill()
        self._node.configure(change)
        coming = loop.submit(kubelet.restart(0.0))
        until(lambda: kubelet.program.is_running, PATIENCE_SECONDS, "the kubelet was started")
        until(
            lambda: coming.done() or not kubelet.program.is_running,
            PATIENCE_SECONDS,
            "the kubelet is healthy or has ended",
        )
        if coming.done():
            self._book.wait(lambda: not kubelet.program.is_running, STARTED_SECONDS)
            return kubelet.program.is_running
        coming.cancel()
        return False

    def _compared(self, expected: Json) -> tuple[str, str]:
        """How one pod of restart-check's answer came out."""
        name = expected["pod"].removeprefix("default/")
        if expected["result"] == "may-fail" or name not in self._uids:
            return UNSAID, f"{name} may fail"
        reason = self._reason_of(expected)
        if expected["result"] == "fails":
            is_same = self._is_over(expected) and reason in {"", expected["reason"]}
            return (SAME if is_same else OTHER), f"{name}: said {expected['reason']}, was {reason or 'ended'}"
        reason = reason or "ended" * self._is_over(expected)
        cpus = "" if reason else self._node.held().get(self._uids[name], "")
        is_same = not reason and parse_cpus(cpus) == parse_cpus(expected["cpus_after"])
        return (SAME if is_same else OTHER), f"{name}: said CPUs {expected['cpus_after']}, was {reason or cpus}"

    def _reason_of(self, expected: Json) -> str:
        """Why the kubelet has refused the pod of an answer; empty: it has not, or does not say so."""
        entry = self._book.entry(self._uids.get(expected["pod"].removeprefix("default/"), ""))
        return str(entry.pod["status"].get("reason", "")) if entry else ""

    def _is_over(self, expected: Json) -> bool:
        """Whether the pod has ended. A kubelet that refuses a running pod stops it, and may not say why."""
        entry = self._book.entry(self._uids.get(expected["pod"].removeprefix("default/"), ""))
        return entry is None or entry.is_over

    def _new_pod(self) -> tuple[str, str]:
        """How a pod came out that what-if was asked about after the restart."""
        self._settle()
        name = f"{self._name}-new"
        answer = what_if(self._running.extender, self._node, simple_pod(name, 2))
        uid = self._place(name, 2)
        entry = self._book.entry(uid)
        assert entry is not None
        expected = said(answer, self._node)
        found = was(self._node, uid) or entry.pod["status"].get("reason", "")
        if answer["verdict"]["certainty"] != "exact":
            return UNSAID, f"{name}: {found}; what-if was not certain"
        is_same = found == expected or (answer["outcome"] == "scheduler" and found.startswith("OutOf"))
        return (SAME if is_same else OTHER), f"{name}: said {expected}, was {found}"

    def _place(self, name: str, cpus: int) -> str:
        """Bind a pod to the node, and wait for its kubelet; its UID."""
        pod = simple_pod(name, cpus, nodeName=self._node.name)
        uid: str = create(self._running.plane.api, pod)["metadata"]["uid"]
        self._uids[name] = uid

        def is_decided() -> bool:
            entry = self._book.entry(uid)
            return entry is not None and (entry.running or entry.phase in FINISHED)

        if not self._book.wait(is_decided, PATIENCE_SECONDS):
            raise SceneError(f"{name}: not decided within {PATIENCE_SECONDS:.0f} s")
        self._settle()
        return uid

    def _settle(self) -> None:
        """Until nothing is in flight and the node is known exactly."""
        audit_of(self._running.extender, self._running.say)
        with contextlib.suppress(SceneError):
            self._running.extender.wait_for_nodes(len(self._running.nodes.all), PATIENCE_SECONDS)
