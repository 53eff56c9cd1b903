"""A small cluster in which the controller works: an API server, controllers of pods, kubelets and a scheduler.

Everything happens in `tick`, one second after another. The kubelets are the naive ones; the scheduler asks the service.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from extender.app import make_questions, make_service
from extender.config.settings import Settings
from extender.features.room.controller import RoomController
from extender.features.room.feature import RoomFeature
from extender.features.room.objector import RoomObjector
from extender.features.room.planner import RoomPlanner
from extender.intake import observation_of
from extender.kube.access import plain
from extender.kube.changes import Batch, Mirror, Seen
from extender.kube.client import KubeClient
from extender.kube.feed import ClusterFeed
from extender.kube.nodes import WatchedSurroundings, decode_node
from extender.kube.pods import PodDecoder, PodRecord
from extender.questions.shapes import read_shapes
from extender.scheduling.binder import PodBound
from extender.wire.binding import ExtenderBindingArgs
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from extender.wire.scheduler import SchedulerArgs
from tests.fakes.apiserver import FakeApiServer
from tests.reports import pod_of, report_of, sample
from tests.world.clock import Clock
from tests.world.cluster import Answers, gate
from tests.world.kubelet import Kubelet
from tests.world.scheduler import binding_of

Json = dict[str, Any]
START: Final = 1_790_000_000.0
RECORD: Final = "numa-extender-room"
NAMESPACE: Final = "numa-extender"
DEFAULTS: Final = {
    "room": "on",
    "room_after_seconds": 2.0,
    "room_seconds": 20.0,
    "room_cooldown_seconds": 5.0,
    "bind_wait_seconds": 0.0,
    "hold_back_seconds": 0.0,
    "kubelet_start_seconds": 0.0,
    "question_workers": 0,
}


class RoomWorld:
    """Nodes with two NUMA nodes of 14 and 16 CPUs. Pods of `default` may be moved."""

    def __init__(
        self, server: FakeApiServer, *names: str, shapes: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        self.server, self.clock = server, Clock(START)
        self.client = KubeClient(plain(server.url), connect_seconds=2.0)
        self.settings = Settings(**{**DEFAULTS, **settings})
        self.service = make_service(self.settings, self.clock)
        self.service.known.link.binder = gate(Answers())
        self.names = names
        self.kubelets = {name: Kubelet(report_of(sample(name))) for name in names}
        self.replicas: dict[str, tuple[int, Json]] = {}
        """How many pods each controller wants, and what they are."""
        self.refuses: set[str] = set()
        """Controllers whose next pods fail on their node."""
        self.waits: set[str] = set()
        """Controllers that make no new pod."""
        self.scheduler: Callable[[Json, list[str]], list[str]] = lambda _pod, offered: offered
        """What the scheduler makes of the nodes that are offered."""
        self.most_evicted_at_once = 0
        self._numbers = itertools.count()
        self._decode, self._mirror = PodDecoder(), Mirror[PodRecord]()
        self._surroundings = WatchedSurroundings()
        known = self.service.known
        self._feed = ClusterFeed(known.nodes, known.pods, self.clock, lambda: None, wall=self.clock)
        self._feed.pods_on = lambda name: self._surroundings(name).pods
        self.service.surroundings.use(self._surroundings)
        for name in names:
            node = decode_node({"metadata": {"name": name}, "status": {"allocatable": {"cpu": "30", "memory": "62Gi"}}})
            assert node is not None
            self._surroundings.apply_nodes(Batch((Seen(node[1]),)))
        self.shapes = read_shapes(shapes or {}).shapes
        self.controller = self.start_controller()
        self.observe()

    def start_controller(self) -> RoomController:
        """A new process."""
        (feature,) = [each for each in self.service.features if isinstance(each, RoomFeature)]
        (objector,) = feature.objectors
        assert isinstance(objector, RoomObjector)
        planner = RoomPlanner(make_questions(self.service))
        self.controller = RoomController(self.service, self.client, lambda: True, planner, objector, wall=self.clock)
        self.controller.movable, self.controller.shapes = {"default"}, self.shapes
        return self.controller

    def run(self, owner: str, cpus: int, node: str = "", *, namespace: str = "default", **metadata: Any) -> Json:
        """A pod of the controller *owner*, which wants one more; "": without a controller. On *node*, if given."""
        template = pod_of(cpus)
        template["spec"]["terminationGracePeriodSeconds"] = 1
        template["metadata"] = {"namespace": namespace, "labels": {"app": owner}, **metadata}
        if owner:
            named = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": f"uid-{owner}"}
            template["metadata"]["ownerReferences"] = [{**named, "controller": True}]
            count = self.replicas.get(owner, (0, {}))[0]
            self.replicas[owner] = count + 1, template
        pod = self._create(template, owner or "bare")
        if node:
            self._land(pod, node)
        return pod

    def _create(self, template: Json, owner: str) -> Json:
        pod: Json = orjson.loads(orjson.dumps(template))
        pod["metadata"]["name"] = f"{owner}-{next(self._numbers)}"
        pod["metadata"].pop("uid", None)
        return self.server.pods.create(pod)

    def _land(self, pod: Json, node: str) -> None:
        """The pod comes to the node's kubelet."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        self.server.pods.bind(name, node, namespace)
        bound = self.server.pods.get(name, namespace)
        assert bound is not None
        owner = next((each["name"] for each in bound["metadata"].get("ownerReferences", ())), "")
        if owner in self.refuses or not self.kubelets[node].admit(bound)["admit"]:
            status = {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected: no"}
        else:
            self.kubelets[node].start(bound["metadata"]["uid"])
            status = {"phase": "Running"}
        self.server.pods.patch(name, {"status": status}, namespace)

    def pods(self, owner: str = "") -> list[Json]:
        """All pods that are not being deleted; of a controller, if one is given."""
        alive = [pod for pod in self.server.pods.list() if "deletionTimestamp" not in pod["metadata"]]
        return [pod for pod in alive if not owner or pod["metadata"]["labels"]["app"] == owner]

    def running(self, owner: str) -> dict[str, str]:
        """Node by name of the controller's pods that run."""
        pods = [pod for pod in self.pods(owner) if pod["status"]["phase"] == "Running"]
        return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}

    async def tick(self, seconds: int = 1, *, controller: bool = True) -> None:
        """So many seconds."""
        for _ in range(seconds):
            self.clock.now += 1
            if controller:
                await self.controller.step()
            self._end_pods()
            self._replace_pods()
            self.observe()
            await self._schedule()
            self.observe()

    async def until_ended(self, most: int = 60) -> None:
        """Until a plan has ended."""
        for _ in range(most):
            if self.controller.record is not None and self.controller.record.history:
                return
            await self.tick()

    def _end_pods(self) -> None:
        """Pods that are being deleted end."""
        leaving = [pod for pod in self.server.pods.list() if "deletionTimestamp" in pod["metadata"]]
        for pod in leaving:
            kubelet = self.kubelets[pod["spec"]["nodeName"]]
            if pod["metadata"]["uid"] in kubelet.pods:
                kubelet.end(pod["metadata"]["uid"])
            self.server.pods.delete(pod["metadata"]["name"], pod["metadata"]["namespace"])

    def _replace_pods(self) -> None:
        missing = 0
        for owner, (count, template) in self.replicas.items():
            have = [pod for pod in self.pods(owner) if pod["status"]["phase"] != "Failed"]
            missing += max(0, count - len([pod for pod in have if pod["status"]["phase"] == "Running"]))
            for _ in range(count - len(have) if owner not in self.waits else 0):
                self._create(template, owner)
        self.most_evicted_at_once = max(self.most_evicted_at_once, missing)

    def observe(self) -> None:
        """The watch of pods and the exporters deliver what is there."""
        decoded = dict(filter(None, (self._decode(pod) for pod in self.server.pods.list("spec.nodeName!="))))
        batch = Batch(tuple(self._mirror.replace(decoded)))
        self._surroundings.apply_pods(batch)
        self._feed.apply_pods(batch)
        for kubelet in self.kubelets.values():
            body = orjson.dumps({**kubelet.report(), "observed_at": self.clock()})
            self.service.known.nodes.observe(observation_of(read_report(body), body), self.clock())

    async def _schedule(self) -> None:
        for pod in self.server.pods.list("spec.nodeName="):
            if pod["spec"].get("nodeName"):
                continue
            priority = pod["spec"].get("priority", 0)
            args = SchedulerArgs(pod=pod_from_json(pod), names=self.names, nodes=None, priority=priority, document=pod)
            feasible = self.scheduler(pod, list((await self.service.scheduling.filter.filter(args)).feasible))
            if not feasible:
                continue
            bound = await self.service.scheduling.bind.bind(ExtenderBindingArgs(**binding_of(pod, feasible[0])))
            if bound == PodBound():
                self._land(pod, feasible[0])
                self.observe()

    def stored(self) -> Json:
        """The record in the API server; empty if there is none."""
        found = self.server.config_maps.get(RECORD, NAMESPACE)
        return {} if found is None else dict(orjson.loads(found["data"]["record"]))


def fragmented(world: RoomWorld) -> None:
    """Each of the first two nodes has 10 and 12 CPUs left on its NUMA nodes: a pod of 14 CPUs fits nowhere."""
    for number, node in enumerate(world.names[:2]):
        filler = world.run("", 14, node)
        world.run(f"right-{number}", 4, node)
        _leave(world, filler, node)
        world.run(f"left-{number}", 4, node)
    world.observe()


def _leave(world: RoomWorld, pod: Json, node: str) -> None:
    world.kubelets[node].end(pod["metadata"]["uid"])
    world.server.pods.delete(pod["metadata"]["name"], pod["metadata"]["namespace"])
