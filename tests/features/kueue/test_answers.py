"""The admission check of Kueue: what is answered, when it is written, and what is held until pods are bound."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.features.kueue.controller import ENDING_SECONDS, MAX_ANSWERS
from extender.features.kueue.held import PER_NAMESPACE
from extender.features.kueue.workloads import PodSet
from extender.samples.machines import Hardware
from extender.scheduling.binder import BindFailure, NotBound, PodBound
from extender.scheduling.objections import BindCall
from extender.wire.errors import WireError
from extender.wire.pods import pod_from_json
from tests.fakes.apiserver import FakeApiServer
from tests.features.autoscaling.scale_up_world import SMALL
from tests.features.kueue.kueue_world import CHECK, KueueWorld
from tests.reports import pod_of, report_of, sample
from tests.world.kubelet import Kubelet

Story = Callable[[KueueWorld], Coroutine[Any, Any, None]]


def play(server: FakeApiServer, story: Story, *names: str, **settings: Any) -> KueueWorld:
    world = KueueWorld(server, *(names or ("n1", "n2")), **settings)
    asyncio.run(story(world))
    assert world.touched == [], "nothing is written after admission"
    return world


def test_a_queue_is_inactive_until_the_check_is_active_and_then_a_workload_is_admitted(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.submit("job", (4, 14))
        await world.tick(2, controller=False)
        assert not world.condition("job", "QuotaReserved"), "without a controller the queue is inactive"
        await world.until("job", "Ready")
        assert world.check("job")["message"].startswith("4 pods have places on 2 nodes, held for 30 s")
        await world.tick(2)
        assert world.nodes_of("job") == ["n1", "n1", "n2", "n2"]
        assert len(world.feature.held) == 0, "bound pods need no places"

    play(server, story)


def test_a_workload_waits_while_one_of_its_pods_has_no_numa_node(server: FakeApiServer) -> None:
    """By totals two pods of 10 CPUs fit on each node with 9 CPUs in use; on its NUMA nodes one does."""

    async def story(world: KueueWorld) -> None:
        for name in ("n1", "n2"):
            world.run(f"busy-{name}", 9, name)
        world.submit("job", (4, 10))
        await world.tick(2)
        assert world.check("job")["retryCount"] == 1
        assert not world.condition("job", "QuotaReserved")
        assert world.retry_at["job"] > world.clock() + 50
        world.end("busy-n1")
        world.end("busy-n2")
        await world.tick(70)
        assert world.condition("job", "Admitted")
        assert "requeueAfterSeconds" not in world.check("job")
        assert world.nodes_of("job") == ["n1", "n1", "n2", "n2"]

    play(server, story)


def test_each_retry_comes_later(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.run("busy", 9, "n1")
        world.submit("job", (2, 10))
        gaps = []
        for _ in range(3):
            await world.tick(2)
            gaps.append(round(world.retry_at["job"] - world.clock()))
            world.clock.now = world.retry_at["job"]
        assert gaps == [60, 119, 239]

    play(server, story, "n1")


def test_a_shape_that_no_empty_node_takes_is_rejected(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.submit("job", (1, 18))
        await world.tick(2)
        assert world.check("job")["retryCount"] == 1
        await world.until("job", "Rejected", most=70)
        assert "can ever take a pod of pod set set0" in world.check("job")["message"]
        await world.tick()
        assert world.workload("job")["spec"]["active"] is False

    play(server, story)


def test_nothing_is_rejected_for_a_report_that_flaps(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.kubelets["n1"] = Kubelet(report_of(sample("n1", hardware=SMALL), boot_id="boot-2"))
        world.submit("job", (1, 16))
        await world.tick(2)
        assert world.check("job")["retryCount"] == 1
        world.kubelets["n1"] = Kubelet(report_of(sample("n1"), boot_id="boot-3"))
        await world.tick(70)
        assert world.nodes_of("job") == ["n1"]

    play(server, story, "n1")


def test_a_shape_that_only_a_busy_node_refuses_is_not_rejected(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.run("busy", 15, "n1")
        world.submit("job", (1, 16))
        await world.tick(3)
        assert world.check("job")["retryCount"] == 1

    play(server, story, "n1")


def test_more_pods_than_the_flavor_has_room_for_are_not_rejected(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.submit("job", (5, 14))
        await world.tick(3)
        assert world.check("job")["retryCount"] == 1

    play(server, story)


def test_nothing_is_rejected_while_a_node_of_the_flavor_is_not_known(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.submit("job", (1, 18))
        await world.tick(3)
        assert world.check("job")["state"] == "Pending"
        assert "1 no report of the node" in world.check("job")["message"]
        version = world.workload("job")["metadata"]["resourceVersion"]
        await world.tick(30)
        assert world.workload("job")["metadata"]["resourceVersion"] == version, "an equal message is not written again"
        await world.tick(40)
        assert world.check("job")["retryCount"] == 1, "others get the quota after a minute"

    play(server, story, silent=("n2",))


def test_nodes_of_other_flavors_give_no_places(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.server.nodes.patch("n2", {"metadata": {"labels": {"pool": "b"}}})
        world.submit("job", (3, 14))
        await world.tick(3)
        assert world.check("job")["retryCount"] == 1

    play(server, story)


def test_nodes_of_other_flavors_do_not_count_when_a_shape_is_impossible(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.server.nodes.patch("n2", {"metadata": {"labels": {"pool": "b"}}})
        world.submit("job", (1, 18))
        await world.until("job", "Rejected", most=70)

    play(server, story, silent=("n2",))


@pytest.mark.parametrize(
    "pod_sets", [((2, 8), (1, 14)), ((1, 14), (2, 8)), ((1, 2), (1, 12), (1, 16)), ((4, 4), (1, 14))]
)
def test_pod_sets_of_different_shapes_are_placed_together(
    server: FakeApiServer, pod_sets: tuple[tuple[int, int], ...]
) -> None:
    """The NUMA nodes have 14 and 16 CPUs, and together no more than the pods need: in some orders not all fit."""

    async def story(world: KueueWorld) -> None:
        world.submit("job", *pod_sets)
        await world.tick(3)
        assert world.condition("job", "Admitted")

    play(server, story, "n1")


def test_two_workloads_do_not_get_the_same_places(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.submit("first", (2, 14))
        world.submit("second", (2, 14))
        await world.tick(8, scheduler=False)
        assert sorted(world.condition(name, "Admitted") for name in ("first", "second")) == [False, True]
        assert sorted(world.check(name).get("retryCount", 0) for name in ("first", "second")) == [0, 1]

    play(server, story, "n1")


def test_other_pods_leave_the_places_free_until_the_time_is_over(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.submit("job", (2, 14))
        await world.tick(2, scheduler=False)
        assert world.condition("job", "Admitted")
        world.run("other", 14, "")
        world.run("important", 14, "", priority=1)
        pods = {pod["metadata"]["name"]: pod for pod in world.server.pods.list()}
        assert await world.offered(pods["other"]) == []
        assert await world.offered(pods["important"]) == ["n1"]
        world.clock.now += 30
        await world.tick(2, scheduler=False)
        assert await world.offered(pods["other"]) == ["n1"]

    play(server, story, "n1")


def test_a_pod_beside_which_the_places_still_fit_is_not_kept_away(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.submit("job", (1, 14))
        await world.tick(2, scheduler=False)
        world.run("beside", 14, "")
        world.run("small", 2, "")
        pods = {pod["metadata"]["name"]: pod for pod in world.server.pods.list()}
        assert await world.offered(pods["beside"]) == ["n1"]
        assert await world.offered(pods["small"]) == ["n1"]

    play(server, story, "n1")


def test_a_place_is_given_back_if_the_workload_is_deleted(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.submit("job", (2, 14))
        await world.tick(2, scheduler=False)
        assert len(world.feature.held) == 2
        world.server.kueue_workloads.delete("job", "team")
        world.observe()
        assert len(world.feature.held) == 0

    play(server, story)


def test_topology_domains_that_kueue_assigned_are_respected(server: FakeApiServer) -> None:
    domains = {
        "levels": ["kubernetes.io/hostname"],
        "slices": [
            {
                "domainCount": 2,
                "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["1", "2"]}}],
                "podCounts": {"individual": [2, 1]},
            }
        ],
    }

    async def story(world: KueueWorld) -> None:
        world.run("busy", 9, "n1")
        for name, topology in (("free", None), ("fixed", domains)):
            world.paused = True
            workload = world.submit(name, (3, 10))
            await world.tick()
            world.reserve(workload, **({} if topology is None else {"topologyAssignment": topology}))
            await world.tick()
            expected = "Ready" if topology is None else "Retry"
            assert world.check(name)["state"] == expected, "two pods of 10 CPUs do not fit on n1"
            world.server.kueue_workloads.delete(name, "team")

    play(server, story)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"podSets": [{"name": "set0", "count": 1, "template": {"spec": {"containers": 7}}}]}, "containers"),
        ({"podSets": [{"name": "set0", "count": 100_000, "template": {"spec": {"containers": []}}}]}, "more than 1000"),
        ({"podSets": [{"name": "set0", "count": -1, "template": {"spec": {"containers": []}}}]}, "negative"),
        ({"podSets": [{"name": "set0", "count": 1}]}, "spec.podSets[0].template: missing"),
    ],
)
def test_a_workload_that_cannot_be_read_is_told_why_and_costs_others_nothing(
    server: FakeApiServer, spec: dict[str, Any], why: str
) -> None:
    async def story(world: KueueWorld) -> None:
        world.paused = True
        bad = world.submit("bad", **spec)
        good = world.submit("good", (1, 4))
        world.reserve(bad)
        world.reserve(good)
        await world.tick(3)
        assert world.check("bad")["state"] == "Retry"
        assert why in world.check("bad")["message"]
        assert world.check("good")["state"] == "Ready"

    play(server, story)


@pytest.mark.parametrize("value", ["\ud800", 10**40])
def test_what_the_api_server_passes_on_and_no_question_can_have_is_a_fault_of_the_workload(
    server: FakeApiServer, value: object
) -> None:
    document = pod_of(4) | {"extra": value}

    async def story(world: KueueWorld) -> None:
        await world.tick()
        with pytest.raises(WireError):
            await world.feature.planner.find([PodSet("main", {}, [(document, 1)])], "uid")

    play(server, story)


def test_a_tenant_with_a_thousand_workloads_costs_only_himself(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.paused = True
        for number in range(1000):
            world.reserve(world.submit(f"mine-{number}", (1, 2), namespace="greedy"))
        world.reserve(world.submit("theirs", (1, 2), namespace="quiet"))
        await world.tick(12, scheduler=False)
        ready = [
            each
            for each in world.server.kueue_workloads.list()
            if each["status"]["admissionChecks"][0]["state"] == "Ready"
        ]
        namespaces = [each["metadata"]["namespace"] for each in ready]
        assert namespaces.count("greedy") == PER_NAMESPACE
        assert namespaces.count("quiet") == 1

    play(server, story)


def test_namespaces_take_turns(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.paused = True
        for number in range(MAX_ANSWERS + 2):
            for each in range(5):
                world.reserve(world.submit(f"job-{each}", (5, 14), namespace=f"team-{number}"))
        await world.tick(3)
        answered = [
            each for each in world.server.kueue_workloads.list() if "requeueAfterSeconds" in str(each["status"])
        ]
        assert len({each["metadata"]["namespace"] for each in answered}) == MAX_ANSWERS + 2

    play(server, story)


def test_a_dry_run_writes_nothing_and_shows_the_answer(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.paused = True
        world.reserve(world.submit("job", (2, 14)))
        before = world.server.store.revision
        await world.tick(3)
        assert world.server.store.revision == before
        (shown,) = world.controller.shown.values()
        assert (shown.answer.state, shown.is_written, len(world.feature.held)) == ("Ready", False, 0)

    play(server, story, kueue="dry-run")


def test_a_check_of_another_controller_is_left_alone(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        server.kueue_checks.delete(CHECK, "")
        server.kueue_checks.create({"metadata": {"name": CHECK}, "spec": {"controllerName": "example.com/other"}})
        world.paused = True
        world.reserve(world.submit("job", (2, 14)))
        await world.tick(3)
        assert world.check("job")["state"] == "Pending"
        assert "status" not in server.kueue_checks.list()[0]

    play(server, story)


def test_a_pod_of_the_workload_is_offered_its_own_place_and_each_pod_another_one(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.submit("job", (3, 14))
        await world.tick(2, scheduler=False)
        pods = world.pods_of("job")
        offered = [await world.offered(pod) for pod in pods]
        assert sorted(offered) in ([["n1"], ["n1"], ["n2"]], [["n1"], ["n2"], ["n2"]])
        assert await world.offered(pods[0]) == offered[0], "the same one again"

    play(server, story)


def test_bind_refuses_a_pod_that_was_offered_the_node_before_the_places_were_held(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        await world.tick(2)
        world.run("early", 14, "")
        early = world.server.pods.get("early", "other")
        assert early is not None
        assert await world.offered(early) == ["n1"]
        world.submit("job", (2, 14))
        await world.tick(1, scheduler=False)
        assert len(world.feature.held) == 2
        refused = await world.bind(early, "n1")
        assert isinstance(refused, NotBound)
        assert refused.failure is BindFailure.HELD
        world.clock.now += 30
        await world.tick(1, scheduler=False)
        assert await world.bind(early, "n1") == PodBound()

    play(server, story, "n1")


def test_places_that_are_held_between_the_steps_of_a_binding_are_seen(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        await world.tick(2)
        world.run("early", 14, "")
        early = world.server.pods.get("early", "other")
        assert early is not None
        await world.offered(early)
        held = world.feature.held
        call = BindCall(pod_from_json(early), "n1", world.service.known.pods.get(early["metadata"]["uid"]))
        assert await held.permit(call) is None
        world.submit("job", (2, 14))
        await world.tick(1, scheduler=False)
        assert held.reserve(call) is not None

    play(server, story, "n1")


def test_the_time_of_a_retry_is_that_of_the_next_end(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.submit("first", (2, 14))
        await world.tick(2, scheduler=False)
        world.submit("second", (2, 14))
        await world.tick(1, scheduler=False)
        assert 0 < world.retry_at["second"] - world.clock() <= 30, "the places of the first one are given back then"
        world.clock.now += 40
        world.server.kueue_workloads.delete("first", "team")
        world.server.kueue_workloads.delete("second", "team")
        world.run("busy", 14, "n1")
        world.server.pods.delete("busy", "other", grace_seconds=30)
        world.submit("third", (2, 14))
        await world.tick(1, scheduler=False)
        assert world.retry_at["third"] - world.clock() == ENDING_SECONDS

    play(server, story, "n1")


def test_nodes_on_which_groups_have_places_get_no_pod(server: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: KueueWorld) -> None:
        (gangs,) = [each for each in world.service.scheduling.objectors if type(each).__name__ == "Gangs"]
        monkeypatch.setattr(gangs, "kept_nodes", lambda *_: {"n1": ()})
        world.submit("job", (3, 14))
        await world.tick(2)
        assert world.check("job")["retryCount"] == 1
        world.submit("small", (2, 14))
        await world.tick(2)
        assert world.nodes_of("small") == ["n2", "n2"]

    play(server, story, gangs="on")


@pytest.mark.parametrize(("pool", "state"), [("a", "Retry"), ("b", "Rejected")])
def test_a_profile_that_could_have_the_flavor_counts_as_an_empty_node(
    server: FakeApiServer, tmp_path: Path, pool: str, state: str
) -> None:
    large = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=16, threads=2, memory_gib=32, distances=(10, 21))
    report = report_of(sample("model", hardware=large))
    (tmp_path / "large.json").write_bytes(orjson.dumps({"labels": {"pool": pool}, "report": report}))

    async def story(world: KueueWorld) -> None:
        world.submit("job", (1, 18))
        await world.tick(2)
        world.paused = True
        world.reserve(world.workload("job"))
        await world.tick(1)
        assert world.check("job")["state"] == state

    play(server, story, node_profiles=tmp_path)
