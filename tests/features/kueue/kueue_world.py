"""A small cluster with Kueue: an API server, a naive Kueue, kubelets, and a scheduler that asks the service.

Everything happens in `tick`, one second after another. Kueue is played by the rules of its documentation: a queue is
inactive until its check is active; a Workload gets quota, then its check is pending; `Ready` admits it and makes its
pods; `Retry` takes the quota away for a time; `Rejected` deactivates it.
"""

import itertools
from collections.abc import Callable
from typing import Any, Final

import orjson

from extender.app import make_questions, make_service
from extender.config.settings import Settings
from extender.features.kueue.controller import AlignmentController
from extender.features.kueue.feature import KueueFeature
from extender.features.kueue.objects import CHECKS, FLAVORS, WORKLOADS
from extender.intake import observation_of
from extender.kube.access import plain
from extender.kube.changes import Batch, Mirror
from extender.kube.client import KubeClient
from extender.kube.feed import ClusterFeed
from extender.kube.nodes import NODES, NodeObject, WatchedSurroundings
from extender.kube.pods import PodDecoder, PodRecord
from extender.kube.source import Source
from extender.scheduling.binder import BindOutcome, PodBound
from extender.wire.binding import ExtenderBindingArgs
from extender.wire.parsing import rfc_3339
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from extender.wire.scheduler import SchedulerArgs
from tests.fakes.apiserver import FakeApiServer, Objects
from tests.reports import pod_of, report_of, sample
from tests.world.clock import Clock
from tests.world.cluster import Answers, gate
from tests.world.kubelet import Kubelet
from tests.world.scheduler import binding_of

Json = dict[str, Any]
START: Final = 1_790_000_000.0
POOL: Final = "pool"
CHECK: Final = "aligned"
OURS: Final = "numa-extender.io/alignment"
DEFAULTS: Final = {
    "kueue": "on",
    "kueue_hold_seconds": 30.0,
    "bind_wait_seconds": 0.0,
    "hold_back_seconds": 0.0,
    "kubelet_start_seconds": 0.0,
    "question_workers": 0,
}


def template(cpus: int) -> Json:
    made = pod_of(cpus)
    return {"metadata": {"labels": {"app": "job"}}, "spec": made["spec"]}


class KueueWorld:
    """Nodes with two NUMA nodes of 14 and 16 CPUs, in the flavor `a`, unless a test says more."""

    def __init__(self, server: FakeApiServer, *names: str, silent: tuple[str, ...] = (), **settings: Any) -> None:
        self.server, self.clock, self.names = server, Clock(START), list(names)
        self.client = KubeClient(plain(server.url), connect_seconds=2.0)
        self.settings = Settings(**{**DEFAULTS, **settings})
        self.silent, self.paused = set(silent), False
        self.kubelets = {name: Kubelet(report_of(sample(name))) for name in names}
        self.retry_at: dict[str, float] = {}
        self.touched: list[str] = []
        """Workloads that another client than Kueue changed after their admission."""
        self._admitted: dict[str, Json] = {}
        self._numbers = itertools.count()
        server.kueue_checks.create({"metadata": {"name": CHECK}, "spec": {"controllerName": OURS}})
        server.kueue_flavors.create({"metadata": {"name": "a"}, "spec": {"nodeLabels": {POOL: "a"}}})
        for name in names:
            self.add_node(name)
        self.start()

    def add_node(self, name: str, pool: str = "a") -> None:
        labels = {POOL: pool, "kubernetes.io/hostname": name}
        status = {"allocatable": {"cpu": "30", "memory": "62Gi", "pods": "110"}}
        self.server.nodes.create({"metadata": {"name": name, "labels": labels}, "status": status})

    def start(self) -> None:
        """A new process, which knows nothing yet."""
        self.service = make_service(self.settings, self.clock)
        self.service.known.link.binder = gate(Answers())
        self._decode, self._pods = PodDecoder(), Mirror[PodRecord]()
        self._nodes, self._mirrors = Mirror[NodeObject](), [Mirror[Any]() for _ in range(3)]
        self._surroundings = WatchedSurroundings()
        known = self.service.known
        self._feed = ClusterFeed(known.nodes, known.pods, self.clock, lambda: None, wall=self.clock)
        self.service.surroundings.use(self._surroundings)
        (self.feature,) = [each for each in self.service.features if isinstance(each, KueueFeature)]
        self.feature.use(make_questions(self.service))
        self.controller = self.feature.controller = AlignmentController(
            self.service,
            self.client,
            lambda: True,
            planner=self.feature.planner,
            held=self.feature.held,
            wall=self.clock,
        )
        self.observe()

    # What people do

    def submit(
        self, name: str, *pod_sets: tuple[int, int], namespace: str = "team", priority: int = 0, **more: Any
    ) -> Json:
        """A Workload. *pod_sets*: the number of pods, and the CPUs of each."""
        sets = [
            {"name": f"set{i}", "count": count, "template": template(cpus)} for i, (count, cpus) in enumerate(pod_sets)
        ]
        spec = {"active": True, "podSets": sets, "priority": priority, **more}
        return self.server.kueue_workloads.create({"metadata": {"name": name, "namespace": namespace}, "spec": spec})

    def workload(self, name: str, namespace: str = "team") -> Json:
        found = self.server.kueue_workloads.get(name, namespace)
        assert found is not None
        return found

    def condition(self, name: str, kind: str, namespace: str = "team") -> bool:
        found = self.workload(name, namespace).get("status", {}).get("conditions", ())
        return any(each["type"] == kind and each["status"] == "True" for each in found)

    def check(self, name: str, namespace: str = "team") -> Json:
        found = self.workload(name, namespace).get("status", {}).get("admissionChecks", [{"state": ""}])
        state: Json = found[0]
        return state

    def run(self, name: str, cpus: int, node: str, *, namespace: str = "other", priority: int = 0) -> str:
        """A pod without Kueue; the reason why it is not placed, or ""."""
        pod = pod_of(cpus)
        pod["metadata"] = {"name": name, "namespace": namespace}
        pod["spec"]["priority"] = priority
        self.server.pods.create(pod)
        return name if node and not self.land(self.server.pods.get(name, namespace), node) else ""

    def end(self, name: str, namespace: str = "other") -> None:
        pod = self.server.pods.get(name, namespace)
        assert pod is not None
        self.kubelets[pod["spec"]["nodeName"]].end(pod["metadata"]["uid"])
        self.server.pods.delete(name, namespace)

    def pods_of(self, name: str) -> list[Json]:
        mark = "kueue.x-k8s.io/workload"
        return [pod for pod in self.server.pods.list() if (pod["metadata"].get("annotations") or {}).get(mark) == name]

    def nodes_of(self, name: str) -> list[str]:
        """The nodes of the Workload's pods; "" for one that waits."""
        return sorted(pod["spec"].get("nodeName", "") for pod in self.pods_of(name))

    # Seconds

    async def tick(self, seconds: int = 1, *, controller: bool = True, scheduler: bool = True) -> None:
        for _ in range(seconds):
            self.clock.now += 1
            self.kueue()
            self.observe()
            if controller:
                await self.controller.step()
            self.kueue()
            self.observe()
            if scheduler:
                await self.schedule()
            self.observe()

    async def until(self, name: str, state: str, most: int = 60, **how: Any) -> None:
        for _ in range(most):
            if self.check(name)["state"] == state:
                return
            await self.tick(**how)
        raise AssertionError(f"{name} is not {state}: {self.check(name)}")

    def observe(self) -> None:
        """The watches and the exporters deliver what is there."""
        nodes = dict(filter(None, (NODES.decode(node) for node in self.server.nodes.list())))
        batch = Batch(tuple(self._nodes.replace(nodes)), complete=True)
        self._surroundings.apply_nodes(batch)
        self._feed.apply_nodes(batch)
        self.feature.planner.apply_nodes(batch)
        decoded = dict(filter(None, (self._decode(pod) for pod in self.server.pods.list("spec.nodeName!="))))
        pods = Batch(tuple(self._pods.replace(decoded)), complete=True)
        self._surroundings.apply_pods(pods)
        self._feed.apply_pods(pods)
        self.feature.held.apply_pods(pods)
        self.report_all()
        one = self.controller
        sources: tuple[tuple[Source[Any], Objects, Callable[[Batch[Any]], None]], ...] = (
            (CHECKS, self.server.kueue_checks, one.apply_checks),
            (FLAVORS, self.server.kueue_flavors, one.apply_flavors),
            (WORKLOADS, self.server.kueue_workloads, one.apply_workloads),
        )
        for mirror, (source, objects, apply) in zip(self._mirrors, sources, strict=True):
            entries = filter(None, (source.decode(each) for each in objects.list()))
            apply(Batch(tuple(mirror.replace(dict(entries))), complete=True))

    def report_all(self) -> None:
        for name, kubelet in self.kubelets.items():
            if name not in self.silent:
                body = orjson.dumps({**kubelet.report(), "observed_at": self.clock()})
                self.service.known.nodes.observe(observation_of(read_report(body), body), self.clock())

    async def offered(self, pod: Json) -> list[str]:
        """The nodes that filter offers for a pod of the API server."""
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in self.server.nodes.list()}
        wanted = (pod["spec"].get("nodeSelector") or {}).items()
        names = [name for name in self.names if wanted <= labels[name].items()]
        priority = pod["spec"].get("priority", 0)
        args = SchedulerArgs(pod=pod_from_json(pod), names=names, nodes=None, priority=priority, document=pod)
        return list((await self.service.scheduling.filter.filter(args)).feasible)

    async def bind(self, pod: Json, node: str) -> BindOutcome:
        return await self.service.scheduling.bind.bind(ExtenderBindingArgs(**binding_of(pod, node)))

    async def schedule(self) -> None:
        for pod in self.server.pods.list("spec.nodeName="):
            if pod["spec"].get("nodeName") or not (feasible := await self.offered(pod)):
                continue
            if isinstance(await self.bind(pod, feasible[0]), PodBound):
                assert self.land(pod, feasible[0]), f"the kubelet refused {pod['metadata']['name']}"

    def land(self, pod: Json | None, node: str) -> bool:
        assert pod is not None
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.server.pods.bind(name, node, namespace)
        bound = self.server.pods.get(name, namespace)
        assert bound is not None
        if not self.kubelets[node].admit(bound)["admit"]:
            return False
        self.kubelets[node].start(bound["metadata"]["uid"])
        self.server.pods.patch(name, {"status": {"phase": "Running"}}, namespace)
        return True

    # Kueue

    def kueue(self) -> None:
        """What Kueue does in a moment."""
        conditions = self.server.kueue_checks.list()[0].get("status", {}).get("conditions", ())
        is_active = any(each["type"] == "Active" and each["status"] == "True" for each in conditions)
        for each in [] if self.paused else self.server.kueue_workloads.list():
            if not isinstance(each["spec"], dict):
                continue
            status = each.get("status", {})
            name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
            on = {found["type"] for found in status.get("conditions", ()) if found["status"] == "True"}
            states = {found["state"] for found in status.get("admissionChecks", ())}
            if "Admitted" in on:
                if status["admissionChecks"] != self._admitted[name]["admissionChecks"]:
                    self.touched.append(name)
            elif "QuotaReserved" not in on:
                if is_active and each["spec"]["active"] and self.clock() >= self.retry_at.get(name, 0):
                    self.reserve(each)
            elif "Retry" in states or "Rejected" in states:
                self._evict(each, rejected="Rejected" in states)
            elif states == {"Ready"}:
                self._admitted[name] = self._write(each, status, {"QuotaReserved", "Admitted"})["status"]
                self._make_pods(each, namespace)

    def reserve(self, workload: Json, **assignment: Any) -> None:
        """Give it quota in the flavor `a`."""
        sets = [
            {"name": each["name"], "flavors": {"cpu": "a"}, "count": each["count"], **assignment}
            for each in workload["spec"]["podSets"]
        ]
        status = {**workload.get("status", {}), "admission": {"clusterQueue": "q", "podSetAssignments": sets}}
        before = status.get("admissionChecks") or [{"name": CHECK}]
        at = rfc_3339(int(self.clock()))
        status["admissionChecks"] = [
            {"message": "", **each, "state": "Pending", "lastTransitionTime": at} for each in before
        ]
        self._write(workload, status, {"QuotaReserved"})

    def _evict(self, workload: Json, *, rejected: bool) -> None:
        name, namespace = workload["metadata"]["name"], workload["metadata"]["namespace"]
        checks = workload["status"]["admissionChecks"]
        self.retry_at[name] = self.clock() + max(each.get("requeueAfterSeconds", 0) for each in checks)
        if rejected:
            self.server.kueue_workloads.patch(name, {"spec": {"active": False}}, namespace)
            self._write(workload, {**workload["status"], "admission": None}, set())
            return
        reset = [
            {**each, "state": "Pending", "message": "", "retryCount": each.get("retryCount", 0) + 1} for each in checks
        ]
        self._write(workload, {"admission": None, "admissionChecks": reset}, set())

    def _write(self, workload: Json, status: Json, on: set[str]) -> Json:
        at = rfc_3339(int(self.clock()))
        conditions = [
            {"type": kind, "status": str(kind in on), "lastTransitionTime": at}
            for kind in ("QuotaReserved", "Admitted")
        ]
        patch = {"status": {**status, "conditions": conditions}}
        return self.server.kueue_workloads.patch(workload["metadata"]["name"], patch, workload["metadata"]["namespace"])

    def _make_pods(self, workload: Json, namespace: str) -> None:
        """The job is not suspended any longer."""
        name = workload["metadata"]["name"]
        for each in workload["spec"]["podSets"]:
            for _ in range(each["count"]):
                pod = orjson.loads(orjson.dumps(each["template"]))
                pod["metadata"] |= {
                    "name": f"{name}-{next(self._numbers)}",
                    "namespace": namespace,
                    "annotations": {"kueue.x-k8s.io/workload": name},
                    "labels": {"kueue.x-k8s.io/podset": each["name"]},
                }
                pod["spec"]["nodeSelector"] = {POOL: "a"}
                pod["spec"]["priority"] = workload["spec"]["priority"]
                self.server.pods.create({**pod, "status": {"phase": "Pending", "qosClass": "Guaranteed"}})
