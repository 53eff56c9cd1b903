"""Filter's deadline and barrier, the audit's demotion, locks: by a clock and a link of the test's own."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.cluster.events import PodFinished, PodRefused, PodSeen
from extender.cluster.pods import PodRegistry
from extender.config.settings import Settings
from extender.samples.nodes import Workload
from extender.scheduling.barrier import Barrier
from extender.scheduling.binder import NotBound, PodBound
from extender.scheduling.judgement import Action
from extender.scheduling.locks import NodeLocks, SharedBudget
from extender.wire.pods import pod_from_json
from tests.reports import args_of, pod_of, report_of, sample
from tests.waiting import PATIENCE_SECONDS
from tests.world.clock import Clock
from tests.world.cluster import Answers, gate
from tests.world.exporters import report_all
from tests.world.scheduler import binding_of

HOUR = 3600.0

FULL = [Workload(name="w", resources={"cpu": 14, "memory": "1Gi"})]


def _client(service: Service) -> TestClient:
    return TestClient(make_app(service), client=("127.0.0.1", 50_000))


def _report(client: TestClient, **report: Any) -> None:
    report_all(client, report_of(sample(**report)))


def _bind(client: TestClient, name: str) -> str:
    return str(client.post("/scheduler/bind", json=binding_of(pod_of(name=name), "node-a")).json()["Error"])


@pytest.mark.parametrize(("late", "passed"), [("error", None), ("pass", ["node-a", "node-b"])])
def test_filter_answers_in_time_and_goes_on_where_it_stopped(clock: Clock, late: Any, passed: Any) -> None:  # noqa: ANN401
    async def slow(work: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        clock.now += 1
        return work(*args)

    service = make_service(Settings(filter_seconds=0.5, late_nodes=late), clock, offload=slow)
    with _client(service) as client:
        _report(client)
        args = args_of(pod_of(name="p"), "node-a", "node-b")
        reply = client.post("/scheduler/filter", json=args).json()

    assert reply["NodeNames"] == passed
    assert ("out of time" in reply["Error"]) is (late == "error")


def test_an_api_server_that_refuses_leaves_the_room_free(clock: Clock) -> None:
    service = make_service(Settings(), clock)
    refusing = Answers(NotBound("forbidden"))
    service.known.link.binder = gate(refusing)
    with _client(service) as client:
        _report(client)
        client.post("/scheduler/filter", json=args_of(pod_of(16, name="p"), "node-a"))
        assert "forbidden" in _bind(client, "p")
        assert service.known.nodes.pods_in_flight == 0

        service.known.link.binder = gate(Answers(PodBound()))
        assert _bind(client, "p") == ""
    assert len(refusing.bindings) == 1
    assert service.known.nodes.pods_in_flight == 1


@pytest.mark.parametrize("cpus", [2, 10])
def test_a_node_that_changes_during_the_last_look_is_not_bound_to(clock: Clock, cpus: int) -> None:
    """Two pods that others have bound are seen while the gate asks what if one had ended."""

    async def meanwhile(work: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        if service.known.nodes.pods_in_flight == 1:
            for name in ("x", "y"):
                service.known.nodes.apply(
                    PodSeen("node-a", pod_from_json(pod_of(cpus, name=name)), started=False), now=clock()
                )
        return work(*args)

    service = make_service(Settings(), clock, offload=meanwhile)
    binder = Answers(PodBound())
    service.known.link.binder = gate(binder)
    with _client(service) as client:
        _report(client)
        pod = pod_of(9, name="p")
        pod["spec"]["containers"].append(pod["spec"]["containers"][0] | {"name": "second"})
        # No NUMA node has room for both containers, so bind replays the exits of other pods.
        client.post("/scheduler/filter", json=args_of(pod, "node-a"))
        error = _bind(client, "p")

    assert ("pods coming to or leaving the node decide" in error) is (cpus == 10)
    assert len(binder.bindings) == (cpus == 2)
    assert service.known.nodes.pods_in_flight == 2 + len(binder.bindings)


def test_a_pod_that_waits_for_what_ended_pods_held_is_tried_again_soon(clock: Clock) -> None:
    """A refusal would let it wait for the next event, up to five minutes; a nomination must not end by an error."""
    service = make_service(Settings(), clock)
    service.known.link.binder = gate(Answers(PodBound()))
    pod = pod_of(16, name="p")
    with _client(service) as client:

        def filtered(**status: str) -> Any:  # noqa: ANN401
            asked = pod | {"status": pod["status"] | status}
            return client.post("/scheduler/filter", json=args_of(asked, "node-a")).json()

        _report(client)
        old = pod_from_json(pod_of(16, name="old"))
        service.known.nodes.apply(PodSeen("node-a", old, started=True), now=clock())
        reply = filtered()
        assert (reply["Error"], reply["NodeNames"]) == ("", [])
        service.known.nodes.apply(PodFinished("node-a", old.uid), now=clock())
        assert "before kubelets release what ended pods held" in filtered()["Error"]
        reply = filtered(nominatedNodeName="node-b")
        assert (reply["Error"], reply["NodeNames"]) == ("", [])
        clock.now += 3.1
        assert filtered()["NodeNames"] == ["node-a"]

        is_error = []
        for number in range(40):  # jobs that end all the time must not keep the pod from preemption
            job = pod_from_json(pod_of(16, name=f"job-{number}"))
            service.known.nodes.apply(PodSeen("node-a", job, started=True), now=clock())
            service.known.nodes.apply(PodFinished("node-a", job.uid), now=clock())
            reply = filtered()
            assert not reply["NodeNames"]
            is_error.append(bool(reply["Error"]))
            clock.now += 1
        assert is_error == [True] * 17 + [False] * 20 + [True] * 3


@pytest.mark.parametrize(("listens", "seconds"), [(True, 10.0), (False, 50.0)])
def test_a_node_whose_kubelet_restarts_takes_no_pod_until_it_has_started(
    clock: Clock,
    listens: bool,  # noqa: FBT001
    seconds: float,
) -> None:
    """Filter offers other nodes, and nothing that bind would refuse; a pod that nothing aligns does not wait."""
    service = make_service(Settings(), clock)
    service.known.link.binder = gate(Answers(PodBound()))
    document = report_of(sample())
    document["podresources"] = {"available": listens, "certain": True, "since": document["observed_at"] - 1}
    with _client(service) as client:
        _report(client, name="node-b")
        assert client.put("/v1/nodes/node-a/report", content=orjson.dumps(document)).status_code == 200
        both, alone = args_of(pod_of(name="p"), "node-a", "node-b"), args_of(pod_of(name="p"), "node-a")
        assert client.post("/scheduler/filter", json=both).json()["NodeNames"] == ["node-b"]
        reply = client.post("/scheduler/filter", json=alone).json()
        assert reply["NodeNames"] in (None, [])
        assert "the node's kubelet is starting" in reply["Error"]
        nominated = pod_of(name="nominated")
        nominated["status"]["nominatedNodeName"] = "node-a"
        reply = client.post("/scheduler/filter", json=args_of(nominated, "node-a", "node-b")).json()
        assert reply["NodeNames"] == ["node-a", "node-b"], "victims made room there"
        service.known.link.binder, binder = None, service.known.link.binder
        assert client.post("/scheduler/filter", json=alone).json()["NodeNames"] == ["node-a"], "kube-scheduler binds"
        service.known.link.binder = binder
        clock.now += seconds - 1.1
        assert "the node's kubelet is starting" in _bind(client, "p")
        unaligned = pod_of("500m", name="q")
        unaligned["status"]["qosClass"] = "Burstable"
        del unaligned["spec"]["containers"][0]["resources"]["limits"]
        offered = client.post("/scheduler/filter", json=args_of(unaligned, "node-a")).json()
        assert offered["NodeNames"] == ["node-a"]
        assert _bind(client, "q") == ""

        clock.now += 0.2
        after = client.post("/scheduler/filter", json=both).json()
        assert after["NodeNames"] == (["node-a", "node-b"] if listens else ["node-b"])
        said = _bind(client, "p")
        assert said == "" if listens else "the node's kubelet does not answer and may not start again" in said


def test_a_pod_that_nothing_aligns_is_bound_whatever_is_known(clock: Clock) -> None:
    service = make_service(Settings(unknown_nodes=Action.REFUSE), clock)
    service.known.link.binder = gate(Answers(PodBound()))
    pod = pod_of(name="p")
    pod["status"]["qosClass"] = "Burstable"
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    with _client(service) as client:
        assert client.post("/scheduler/filter", json=args_of(pod, "node-a")).json()["NodeNames"] == ["node-a"]
        assert _bind(client, "p") == ""


@pytest.mark.parametrize("body", [b"", b"[]", b'{"PodName": "p"}', b'{"PodName": 1}', b"\xff"])
def test_a_bind_that_is_not_understood_is_an_error(service: Service, body: bytes) -> None:
    service.known.link.binder = gate(Answers(PodBound()))
    with _client(service) as client:
        reply = client.post("/scheduler/bind", content=body)

    assert reply.status_code == 200
    assert reply.json()["Error"].startswith("numa-extender: ")


def test_a_node_that_keeps_disagreeing_is_shown_and_then_only_ranks(clock: Clock) -> None:
    service = make_service(Settings(distrust_after=2), clock)
    service.known.link.binder = gate(Answers(PodBound()))
    with _client(service) as client:
        _report(client, workloads=FULL)
        assert client.post("/scheduler/filter", json=args_of(pod_of(17), "node-a")).json()["NodeNames"] == []
        for name in ("a", "b"):
            client.post("/scheduler/filter", json=args_of(pod_of(2, name=name), "node-a"))
            assert _bind(client, name) == ""
            service.known.nodes.apply(PodRefused("node-a", f"uid-{name}", "TopologyAffinityError"), now=clock.now)
        _report(client, workloads=FULL)
        document = {**report_of(sample(workloads=FULL)), "sequence": 2}
        client.put("/v1/nodes/node-a/report", content=orjson.dumps(document))

        nodes = client.get("/v1/audit").json()["nodes"]
        assert client.post("/scheduler/filter", json=args_of(pod_of(17), "node-a")).json()["NodeNames"] == ["node-a"]
        metrics = client.get("/metrics").text

    assert nodes == [{"name": "node-a", "disagreements": 2, "results": 2, "distrusted": True}]
    assert "numa_extender_distrusted_nodes 1.0" in metrics
    assert 'outcome="false_admit",policy="single-numa-node",scope="container"} 2.0' in metrics


def test_the_barrier_waits_for_the_pods_offered_before_and_for_each_only_once() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        pods = PodRegistry(10)
        barrier = Barrier(HOUR, pods, loop.time)
        first, second = (pod_from_json(pod_of(name=name)) for name in "ab")
        pods.answer(first, loop.time(), offered=True)

        def see() -> None:
            pods.watch(first.uid, "node-a")
            barrier.seen()

        loop.call_later(0.01, see)
        await barrier.wait(pods.offered(loop.time()))

        pods.answer(second, loop.time(), offered=True)
        barrier.seconds, started = 0.05, loop.time()
        await barrier.wait(pods.offered(loop.time()))
        assert loop.time() - started >= 0.045
        barrier.seconds = HOUR
        await barrier.wait(pods.offered(loop.time()))

    asyncio.run(asyncio.wait_for(story(), PATIENCE_SECONDS))


def test_a_barrier_of_nothing_is_none() -> None:
    async def story() -> None:
        pods = PodRegistry(10)
        pods.answer(pod_from_json(pod_of(name="a")), 0.0, offered=True)
        barrier = Barrier(0.0, pods, lambda: 0.0)
        await asyncio.wait_for(barrier.wait({"a"}), 0.01)

    asyncio.run(story())


def test_one_at_a_time_for_each_node_and_no_lock_is_left_behind() -> None:
    async def story() -> None:
        locks = NodeLocks()
        order: list[str] = []

        async def work(name: str, what: str) -> None:
            async with locks.hold(name, 1.0):
                order.append(f"{what}+")
                await asyncio.sleep(0)
                order.append(f"{what}-")

        await asyncio.gather(work("n", "a"), work("n", "b"), work("m", "c"))
        assert [o for o in order if o[0] in "ab"] == ["a+", "a-", "b+", "b-"]
        async with locks.hold("n", 1.0):
            with pytest.raises(TimeoutError):
                await locks.hold("n", 0.01).__aenter__()
        assert len(locks) == 0

    asyncio.run(story())


def test_who_is_at_work_shares_what_there_is() -> None:
    shares = SharedBudget(512, least=64)
    with shares.share() as alone, shares.share() as second:
        with ExitStack() as others:
            parts = [others.enter_context(shares.share()) for _ in range(20)]
        with shares.share() as third:
            pass

    assert (alone, second, third) == (512, 256, 170)
    assert parts[-1] == 64
