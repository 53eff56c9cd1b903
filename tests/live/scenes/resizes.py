"""Pods are resized in place on real kubelets: what resize-check had said, and what the node then takes.

A round resizes one pod. Just before, resize-check says what the kubelet will do. Afterwards what-if says how large a
pod the node still takes: one of that size is bound directly and must be admitted, and one that is larger must be
refused. Left out: the larger pod where the resize is deferred, for which kube-scheduler counts both sizes and the
kubelet the old one; memory limits that become smaller, which the kubelet compares with the usage of real containers.
"""

import itertools
from collections import Counter
from dataclasses import dataclass

from tests.live.api import STRATEGIC_PATCH, Json
from tests.live.asked import ask, what_if
from tests.live.binaries import Binaries
from tests.live.book import FINISHED, Book
from tests.live.cluster import REAL, Cluster, Plan, Say, cluster
from tests.live.load import audit_of, counted, show_audit
from tests.live.node import LiveNode
from tests.live.processes import SceneError
from tests.live.report import Findings
from tests.live.whole.comparing import OTHER, SAME
from tests.live.workload import PODS, create, delete, simple_pod

NODES, ROUNDS = 2, 7
PATIENCE_SECONDS = 60.0
STEP_MILLI = 100
"""Sizes of pods that are tried differ by this."""
MOST_MILLI = 200_000
"""More than any machine has."""
PENDING = "PodResizePending"
"""The condition that a kubelet sets if it does not carry out a resize now; its reason is `Deferred` or `Infeasible`."""
FITS, DEFERRED, INFEASIBLE = "fits", "deferred", "infeasible"


@dataclass(frozen=True, slots=True)
class Trial:
    """One resize. `cpu`, `to_cpu`, `memory`, `to_memory`: requests before and after; `guaranteed`: limits are equal.

    `to_cpu` `LEFT`: more than the other pods leave, of which one has `BESIDE_MILLI`. More than the whole node has is
    refused by the API server.
    """

    cpu: str
    to_cpu: str
    memory: str = "1Gi"
    to_memory: str = "1Gi"
    guaranteed: bool = False


LEFT, BESIDE_MILLI = "left", 2000
TRIALS = (
    Trial("500m", "1500m"),
    Trial("2", "6", guaranteed=True),
    Trial("2", "300m"),
    Trial("500m", LEFT),
    Trial("1500m", "2500m", guaranteed=True),
    Trial("500m", "700m", to_memory="2Gi"),
    Trial("2", "2", to_memory="2Gi", guaranteed=True),
)


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Resize-check is right about every resize, and the node's totals follow it."""
    if plan.kubelets != REAL:
        raise SceneError("only real kubelets resize pods: --kubelets real")
    findings, said, probes = Findings("resizes"), Counter[str](), Counter[str]()
    results: Counter[str] = Counter()
    with cluster(binaries, plan, say, nodes=NODES) as running:
        with Book(running.plane.url, running.plane.admin_context) as book:
            trials = itertools.islice(itertools.cycle(TRIALS), plan.seed - 1, plan.seed - 1 + (plan.rounds or ROUNDS))
            for number, trial in enumerate(trials):
                node = running.nodes.all[number % len(running.nodes.all)]
                one = Resized(running, book, node, f"resized-{number}", trial)
                expected, found = one.resize()
                results[found] += 1
                said[SAME if expected == found else OTHER] += 1
                lines = [f"{one.name} on {node.name}, {trial}: resize-check said {expected}, the kubelet {found}"]
                for result, line in one.probe(found):
                    probes[result] += 1
                    lines.append(line)
                for line in lines:
                    say(line)
                    findings.details += [line] * ("otherwise" in line or expected != found)
                one.end()
        audit = audit_of(running.extender, say)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("kubelets", counted(running.nodes.versions()))
        tally = running.nodes.tally
    rounds = plan.rounds or ROUNDS
    findings.must("resizes, by what resize-check had said", counted(said), f"{rounds} {SAME}", ok=said[SAME] == rounds)
    fewest = min(results[each] for each in (FITS, DEFERRED, INFEASIBLE))
    findings.must("resizes, by what the kubelet did", counted(results), "each kind at least once", ok=fewest > 0)
    ok = probes[SAME] >= rounds and not probes[OTHER]
    what = "pods bound after a resize, by what what-if had said"
    findings.must(what, counted(probes), f"at least {rounds} {SAME}, 0 {OTHER}", ok=ok)
    wrong = tally.refused.total() - tally.refused["OutOfcpu"]
    findings.must("refused for another reason than the CPUs", wrong, "0", ok=not wrong)
    show_audit(findings, audit, 1)
    return findings


class Resized:
    """A pod on *node* that is resized once."""

    def __init__(self, running: Cluster, book: Book, node: LiveNode, name: str, trial: Trial) -> None:
        self.name, self._running, self._book, self._node, self._trial = name, running, book, node, trial
        self._uids: dict[str, str] = {}
        pods = [_pod(name, node, trial.cpu, trial.memory, guaranteed=trial.guaranteed)]
        pods += [_pod(f"{name}-beside", node, f"{BESIDE_MILLI}m", "64Mi")] * (trial.to_cpu == LEFT)
        for pod in pods:
            uid = self._uids[pod["metadata"]["name"]] = self._placed(pod)
            if self._reason(uid):
                raise SceneError(f"{name} was refused: {self._reason(uid)}")

    def resize(self) -> tuple[str, str]:
        """What resize-check says, and what the kubelet then does."""
        trial = self._trial
        cpu = f"{self._most() + 10 * STEP_MILLI}m" if trial.to_cpu == LEFT else trial.to_cpu
        asked = {"pod": f"default/{self.name}", "cpu": cpu, "memory": trial.to_memory}
        asked = {key: value for key, value in asked.items() if value not in {trial.cpu, trial.memory}}
        expected: str = ask(self._running.extender, "advice/resize-check", asked)["result"]
        after = _pod(self.name, self._node, cpu, trial.to_memory, guaranteed=trial.guaranteed)["spec"]["containers"][0]
        patch = {"spec": {"containers": [{"name": after["name"], "resources": after["resources"]}]}}
        self._running.plane.api.call("PATCH", f"{PODS}/{self.name}/resize", patch, STRATEGIC_PATCH)
        wanted = after["resources"]["requests"]
        if not self._book.wait(lambda: self._result(wanted), PATIENCE_SECONDS):
            raise SceneError(f"{self.name}: neither resized nor refused within {PATIENCE_SECONDS:.0f} s")
        return expected, self._result(wanted)

    def probe(self, result: str) -> list[tuple[str, str]]:
        """Pods of the largest size that what-if accepts, and of one that is a step larger; *result*: of the resize."""
        most, found = self._most(), []
        for milli in (most, most + STEP_MILLI)[: 1 if result == DEFERRED else 2]:
            pod = _pod(f"{self.name}-{milli}", self._node, f"{milli}m", "64Mi")
            uid = self._placed(pod)
            reason = self._reason(uid)
            is_same = (reason == "") == (milli == most) and reason in {"", "OutOfcpu"}
            said = "fits" if milli == most else "does not fit"
            line = f"a pod of {milli}m: said {said}, was {reason or 'admitted'}"
            found.append((SAME, line) if is_same else (OTHER, f"otherwise: {line}"))
            self._gone(pod["metadata"]["name"], uid)
        return found

    def end(self) -> None:
        """Delete its pods."""
        for name, uid in self._uids.items():
            self._gone(name, uid)

    def _most(self) -> int:
        """Thousandths of CPUs of the largest pod without exclusive CPUs that what-if accepts on the node."""
        fits, fails = 0, MOST_MILLI
        while fails - fits > STEP_MILLI:
            milli = (fits + fails) // 2 // STEP_MILLI * STEP_MILLI
            pod = _pod("probe", self._node, f"{milli}m", "64Mi")
            del pod["spec"]["nodeName"]
            answer = what_if(self._running.extender, self._node, pod)
            fits, fails = (milli, fails) if answer["outcome"] == "fits" else (fits, milli)
        return fits

    def _placed(self, pod: Json) -> str:
        """Create it, and wait until its kubelet has decided; its UID. The extender has seen it as well then."""
        uid: str = create(self._running.plane.api, pod)["metadata"]["uid"]

        def is_decided() -> bool:
            entry = self._book.entry(uid)
            return entry is not None and (entry.running or entry.phase in FINISHED)

        if not self._book.wait(is_decided, PATIENCE_SECONDS):
            raise SceneError(f"{pod['metadata']['name']}: not decided within {PATIENCE_SECONDS:.0f} s")
        self._settle()
        return uid

    def _gone(self, name: str, uid: str) -> None:
        delete(self._running.plane.api, name)
        if not self._book.wait(lambda: (entry := self._book.entry(uid)) and entry.deleted, PATIENCE_SECONDS):
            raise SceneError(f"{name}: not gone within {PATIENCE_SECONDS:.0f} s")
        self._settle()

    def _settle(self) -> None:
        """Until nothing is in flight: the watch of the extender has then seen what the book has seen."""
        audit_of(self._running.extender, self._running.say)

    def _reason(self, uid: str) -> str:
        """Why its kubelet has refused it; empty: it was admitted."""
        entry = self._book.entry(uid)
        assert entry is not None
        return str(entry.pod["status"].get("reason", ""))

    def _result(self, wanted: Json) -> str:
        """What the kubelet has done with the resize; empty: nothing yet."""
        entry = self._book.entry(self._uids[self.name])
        status = entry.pod["status"] if entry else {}
        reasons = [each.get("reason", "") for each in status.get("conditions", ()) if each["type"] == PENDING]
        if reasons:
            return str(reasons[0]).lower()
        (container,) = status.get("containerStatuses", [{}])
        return FITS if container.get("resources", {}).get("requests") == wanted else ""


def _pod(name: str, node: LiveNode, cpu: str, memory: str, *, guaranteed: bool = False) -> Json:
    """Bound to the node, with one container."""
    pod = simple_pod(name, 1, nodeName=node.name)
    requests = {"cpu": cpu, "memory": memory}
    resources: Json = {"requests": requests, "limits": requests} if guaranteed else {"requests": requests}
    pod["spec"]["containers"][0]["resources"] = resources
    return pod
