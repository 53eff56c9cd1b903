"""The janitor deletes failed pods that kubelets refused for their topology, and no others: in a (fake) API server."""

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import pytest

from extender.config.settings import Settings
from extender.features.janitor.feature import MAX_KEPT, Janitor
from extender.kube.access import plain
from extender.kube.changes import Batch, Changed, Gone, Seen
from extender.kube.client import KubeClient
from extender.kube.pods import PodDecoder, PodRecord
from extender.observability.metrics import Metrics
from tests.fakes.apiserver import FakeApiServer
from tests.reports import pod_of
from tests.world.watched import pod_record

Json = dict[str, Any]


def failed_pod(name: str, *, owner: str = "ReplicaSet", **status: str) -> Json:
    """A pod that a kubelet refused."""
    pod = pod_of(4, name=name)
    pod["spec"]["nodeName"] = "node-a"
    if owner:
        pod["metadata"]["ownerReferences"] = [{"kind": owner, "name": "o", "uid": "o", "controller": True}]
    refused = "Pod was rejected: Resources cannot be allocated with Topology locality"
    pod["status"] = {"phase": "Failed", "reason": "TopologyAffinityError", "message": refused, **status}
    return pod


class Stage:
    """A janitor with a clock that the test moves."""

    def __init__(self, server: FakeApiServer, mode: Literal["dry-run", "on"] = "on") -> None:
        self.server, self.metrics, self.now, self.leads = server, Metrics(), 0.0, True
        settings = Settings(janitor=mode, janitor_after_seconds=600)
        client = KubeClient(plain(server.url), connect_seconds=2.0)
        self.janitor = Janitor(client, settings, self.metrics, lambda: self.leads, lambda: self.now)

    def see(self, pod: Json) -> PodRecord:
        found = pod_record(self.server.pods.create(pod))
        self.janitor.apply(Batch((Seen(found),)))
        return found

    def step(self) -> str | None:
        done = asyncio.run(self.janitor.step())
        return None if done is None else done.name

    def counted(self, outcome: str) -> float:
        return self.metrics.registry.get_sample_value("numa_extender_janitor_pods_total", {"outcome": outcome}) or 0.0


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as running:
        yield running


def test_a_refused_pod_is_deleted_when_it_is_old_enough(server: FakeApiServer) -> None:
    stage = Stage(server)
    stage.see(failed_pod("old"))
    stage.now = 300.0
    stage.see(failed_pod("young"))

    stage.now = 599.0
    assert stage.step() is None
    stage.now = 600.0
    assert stage.step() == "old"
    assert stage.step() is None, "one at a time, and the other one is too young"
    assert server.pods.get("old") is None
    assert server.pods.get("young") is not None
    assert stage.counted("deleted") == 1


@pytest.mark.parametrize(
    "pod",
    [
        failed_pod("no-owner", owner=""),
        failed_pod("of-a-job", owner="Job"),
        failed_pod("of-a-workflow", owner="Workflow"),
        failed_pod("static", owner="Node"),
        failed_pod("evicted", reason="Evicted", message="The node was low on resource: memory."),
        failed_pod("not-admission", message="Pod ran and failed"),
        failed_pod("running", phase="Running"),
        failed_pod("totals", reason="OutOfcpu", message="Pod was rejected: Node didn't have enough resource: cpu"),
    ],
    ids=lambda pod: pod["metadata"]["name"],
)
def test_other_pods_stay(server: FakeApiServer, pod: Json) -> None:
    stage = Stage(server)
    stage.see(pod)

    stage.now = 1e6
    assert stage.step() is None
    assert server.pods.get(pod["metadata"]["name"]) is not None


def test_a_dry_run_only_counts(server: FakeApiServer) -> None:
    stage = Stage(server, "dry-run")
    stage.see(failed_pod("old"))

    stage.now = 1e6
    assert stage.step() == "old"
    assert server.pods.get("old") is not None
    assert (stage.counted("would_delete"), stage.counted("deleted")) == (1, 0)


def test_a_standby_deletes_nothing(server: FakeApiServer) -> None:
    stage = Stage(server)
    stage.see(failed_pod("old"))
    stage.now, stage.leads = 1e6, False

    assert stage.step() is None
    stage.leads = True
    assert stage.step() == "old"


def test_another_pod_of_the_same_name_is_spared(server: FakeApiServer) -> None:
    stage = Stage(server)
    stage.see(failed_pod("p"))
    server.pods.delete("p")
    server.pods.create({**failed_pod("p"), "metadata": {**failed_pod("p")["metadata"], "uid": "uid-new"}})

    stage.now = 1e6
    assert stage.step() == "p"
    assert stage.counted("gone") == 1
    assert server.pods.get("p") is not None


def test_pods_that_are_gone_are_forgotten_and_the_rest_is_bounded(server: FakeApiServer) -> None:
    stage = Stage(server)
    record = stage.see(failed_pod("p"))
    stage.janitor.apply(Batch((Changed(record, record),)))
    stage.janitor.apply(Batch((Gone(record),)))
    stage.now = 1e6
    assert stage.step() is None

    decode = PodDecoder()
    for i in range(MAX_KEPT + 50):
        pod = failed_pod(f"p{i}")
        found = decode(pod)
        assert found is not None
        stage.janitor.apply(Batch((Seen(found[1]),)))
    assert len(stage.janitor._failed) == MAX_KEPT
