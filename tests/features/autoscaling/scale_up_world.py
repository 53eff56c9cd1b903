"""A service with requests for nodes, spoken to over HTTP, with an API server and a controller that the test steps."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.features.autoscaling.cluster_autoscaler import CONSUME, SAFE_TO_EVICT
from extender.features.autoscaling.controller import Controller
from extender.features.autoscaling.feature import AutoscalingFeature
from extender.features.autoscaling.waiting import Waiting
from extender.kube.access import plain
from extender.kube.changes import Batch, Seen
from extender.kube.client import JSON, KubeClient
from extender.kube.errors import ApiError
from extender.kube.nodes import WatchedSurroundings, decode_node
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode, Workload
from tests.fakes.apiserver import FakeApiServer
from tests.reports import args_of, pod_of, report_of
from tests.world.clock import Clock

POOL: Final = "cloud.google.com/gke-nodepool"
FULL: Final = [Workload(name="w", copies=2, resources={"cpu": 12, "memory": "1Gi"})]
"""Of 30 CPUs on two NUMA nodes, 2 and 4 are left: a pod of 6 fits by totals, and not on a NUMA node."""
SMALL: Final = Hardware(sockets=4, numa_per_socket=1, cores_per_numa=2, threads=2, memory_gib=32, distances=(10, 21))
WAIT_SECONDS: Final = 30.0


class ScaleUpWorld:
    """See the file."""

    def __init__(self, server: FakeApiServer, client: TestClient, service: Service, clock: Clock) -> None:
        self.server, self.client, self.service, self.clock = server, client, service, clock
        self.kube = KubeClient(plain(server.url), connect_seconds=2.0)
        (feature,) = [each for each in service.features if isinstance(each, AutoscalingFeature)]
        self.pools, self.surroundings = feature.pools, WatchedSurroundings()
        service.surroundings.use(self.surroundings)
        self.sequence = 0
        self.start()

    def start(self) -> None:
        """A new process: nothing but the API server's objects and the calls of the scheduler are known."""
        waiting = Waiting(self.service, WAIT_SECONDS)
        self.controller = Controller(
            self.service, self.kube, lambda: True, self.pools, waiting, wall=lambda: self.clock.now + 1.8e9
        )

    def node(
        self,
        sample_node: SampleNode,
        pool: str,
        taints: Sequence[JSON] = (),
        labels: JSON | None = None,
        label: str = POOL,
    ) -> None:
        """A node of the pool of this label, with these taints and further labels, that reports."""
        if self.server.nodes.get(sample_node.name, "") is None:
            own = {"kubernetes.io/hostname": sample_node.name, label: pool}
            metadata = {"name": sample_node.name, "labels": {**own, **(labels or {})}}
            decoded = decode_node(self.server.nodes.create({"metadata": metadata, "spec": {"taints": [*taints]}}))
            assert decoded is not None
            for apply in (self.pools.apply, self.surroundings.apply_nodes):
                apply(Batch((Seen(decoded[1]),), complete=True))
        self.sequence += 1
        document = report_of(sample_node, sequence=self.sequence)
        reply = self.client.put(f"/v1/nodes/{sample_node.name}/report", content=orjson.dumps(document))
        assert reply.status_code == 200, reply.text

    def pod(self, cpus: int, name: str = "p", namespace: str = "team", **more: Any) -> JSON:
        """A pending pod, as kube-scheduler has marked it."""
        made = pod_of(cpus)
        made["metadata"] |= {"name": name, "namespace": namespace, **more}
        made["metadata"].pop("uid", None)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        return self.server.pods.create({**made, "status": {"phase": "Pending", "conditions": [condition]}})

    def filter(self, pod: JSON, *names: str) -> list[str]:
        passed: list[str] = self.client.post("/scheduler/filter", json=args_of(pod, *names)).json()["NodeNames"]
        return passed

    def wait(self, *pods: JSON, names: Sequence[str] = ("old-a",)) -> None:
        """The pods are refused, and have been so for as long as they have to wait."""
        for pod in pods:
            assert self.filter(pod, *names) == []
        asyncio.run(self.controller.step())
        self.clock.now += WAIT_SECONDS

    def asked_for(self, **more: Any) -> JSON:
        """A pod of 6 CPUs that has waited, after the step in which a node is asked for it."""
        pod = self.pod(6, **more)
        self.wait(pod)
        self.step()
        return pod

    def dies(self, patch: pytest.MonkeyPatch, verb: str, after: int) -> None:
        """Two steps in which the writes of one kind stop for good after some of them; then a new process."""
        left = after
        real = KubeClient.request

        def request(client: KubeClient, method: str, path: str, **call: Any) -> JSON:
            nonlocal left
            left -= method == verb
            if method == verb and left < 0:
                raise ApiError(503, "Killed", "the process has ended")
            return real(client, method, path, **call)

        with patch.context() as broken:
            broken.setattr(KubeClient, "request", request)
            self.step()
            self.step()
        self.start()

    def step(self, seconds: float = 5.0) -> None:
        self.clock.now += seconds
        asyncio.run(self.controller.step())

    def keep_trying(self, pod: JSON) -> None:
        """kube-scheduler tries the pod three times."""
        for _ in range(3):
            self.filter(pod, "old-a")
            self.step(WAIT_SECONDS)

    def requests(self) -> list[JSON]:
        return self.server.provisioning.list()

    def annotations(self, pod: JSON) -> dict[str, str]:
        found = self.server.pods.get(pod["metadata"]["name"], pod["metadata"]["namespace"])
        assert found is not None
        annotations: dict[str, str] = found["metadata"].get("annotations") or {}
        return annotations

    def is_clean(self) -> bool:
        pods = self.server.pods.list()
        marks = {key for pod in pods for key in pod["metadata"].get("annotations") or {}} & {CONSUME, SAFE_TO_EVICT}
        return not (self.requests() or self.server.templates.list() or marks)
