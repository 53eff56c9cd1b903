"""The law: after each plan every evicted pod runs again, or the controller has stopped; whatever happens meanwhile.

Clusters, waiting pods and mishaps are drawn. Each second the rules are checked against what really runs.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from extender.features.room.record import MovePlan
from tests.fakes.apiserver import FakeApiServer
from tests.features.room.room_world import RoomWorld

NODES: Final = ("a", "b", "c")
SECONDS: Final = 45
PER_HOUR: Final = 4
SHAPE: Final = {"eight": "requests: {cpu: 8, memory: 1Gi}\ncopies: 1"}
MISHAPS: Final = ("restart", "late", "fails", "budget", "foreign", "gone", "flap", "refusal", "elsewhere")
NODE: Final = st.tuples(st.sampled_from((0, 13, 14)), st.lists(st.integers(2, 6), min_size=1, max_size=2))
"""CPUs of a pod without a controller, which often fills the first NUMA node, and of pods that may be moved."""


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    nodes=st.tuples(NODE, NODE, NODE),
    waiting=st.lists(st.integers(12, 16), min_size=1, max_size=2),
    mishaps=st.dictionaries(st.integers(3, SECONDS - 10), st.sampled_from(MISHAPS), max_size=2),
)
def test_every_evicted_pod_runs_again_or_the_controller_has_stopped(
    nodes: Sequence[tuple[int, Sequence[int]]], waiting: Sequence[int], mishaps: Mapping[int, str]
) -> None:
    pods = [
        (name, cpus, has_controller)
        for name, (filler, movable) in zip(NODES, nodes, strict=True)
        for cpus, has_controller in ((filler, False), *((each, True) for each in movable))
        if cpus
    ]
    with FakeApiServer() as server:
        story = Story(server, pods, waiting, mishaps)
        asyncio.run(story.play())
    for what in story.seen:
        event(what)


class Story:
    """One drawn story."""

    def __init__(
        self,
        server: FakeApiServer,
        pods: Sequence[tuple[str, int, bool]],
        waiting: Sequence[int],
        mishaps: Mapping[int, str],
    ) -> None:
        self.server, self.waiting, self.mishaps = server, waiting, mishaps
        self.world = RoomWorld(server, *NODES, shapes=SHAPE, room_per_hour=PER_HOUR)
        self.staying = set[str]()
        for number, (node, cpus, has_controller) in enumerate(pods):
            pod = self.world.run(f"app-{number}" if has_controller else "", cpus, node)
            if not has_controller:
                self.staying.add(pod["metadata"]["uid"])
        for pod in [pod for pod in self.world.pods() if pod["status"]["phase"] == "Failed"]:  # it never fitted
            self.world.server.pods.delete(pod["metadata"]["name"])
            self.world.replicas.pop(pod["metadata"]["labels"]["app"], None)
            self.staying.discard(pod["metadata"]["uid"])
        self.world.observe()
        self.ended, self.seen = 0, list[str]()

    async def play(self) -> None:
        await self.world.tick(2)
        for number, cpus in enumerate(self.waiting):
            self.world.run(f"large-{number}", cpus)
        for second in range(SECONDS):
            if (mishap := self.mishaps.get(second)) is not None:
                self.happen(mishap)
            before = self.evictions()
            was_pending, was_stopped = self.pending(), bool(self.world.stored().get("stopped"))
            await self.world.tick()
            assert self.evictions() - before <= (not was_pending and not was_stopped), "one eviction at a time"
            self.check()

    def happen(self, mishap: str) -> None:
        self.seen.append(mishap)
        world, apps = self.world, {name for name in self.world.replicas if name.startswith("app")}
        record = world.controller.record
        plan = None if record is None else record.plan
        if mishap == "restart":
            world.start_controller()
        elif mishap == "late":
            world.waits = apps
        elif mishap == "fails":
            world.refuses = apps
        elif mishap == "budget":
            budget = {"metadata": {"name": "all", "namespace": "default"}, "spec": {"selector": {}}}
            self.server.pdbs.create({**budget, "status": {"disruptionsAllowed": 0}}) if not len(
                self.server.pdbs
            ) else None
        elif mishap == "foreign":
            world.run("foreign", 3)
        elif mishap == "gone":
            for pod in world.pods("large-0"):
                world.replicas.pop("large-0", None)
                if not pod["spec"].get("nodeName"):
                    self.server.pods.delete(pod["metadata"]["name"])
        elif mishap == "flap":
            world.service.known.nodes.drop_node("a")
        elif mishap == "refusal":
            world.controller.note_refusal(plan.nodes[0] if plan is not None else "a")
        elif mishap == "elsewhere":
            world.scheduler = lambda _pod, offered: offered[::-1]

    def evictions(self) -> int:
        return sum(count for call, count in self.server.access.calls.items() if call.resource == "pods/eviction")

    def pending(self) -> bool:
        plan = self.world.stored().get("plan")
        return plan is not None and any(each["state"] in ("evicting", "evicted") for each in plan["moves"])

    def check(self) -> None:
        stored, record = self.world.stored(), self.world.controller.record
        assert self.evictions() <= PER_HOUR
        assert self.staying <= {pod["metadata"]["uid"] for pod in self.world.pods()}, "pods without controllers stay"
        assert record is None or len(record.evicted_at) <= PER_HOUR
        plan = stored.get("plan")
        assert plan is None or sum(each["state"] in ("evicting", "evicted") for each in plan["moves"]) <= 1
        history = [] if record is None else record.history
        for ended in history[: len(history) - self.ended]:
            self.seen.append(f"{ended.state}, {sum(move.state == 'running' for move in ended.moves)} moved")
            self.check_ended(ended, stored)
        self.ended = len(history)

    def check_ended(self, plan: MovePlan, stored: Mapping[str, Any]) -> None:
        if plan.state == "stopped":
            assert stored["stopped"]
            return
        for move in plan.moves:
            assert move.state in ("planned", "running")
            owner = move.labels["app"]
            assert move.state == "planned" or self.world.running(owner).get(move.replacement) == move.to, owner
        if plan.state == "done":
            owner = plan.subject.partition("/")[2].rpartition("-")[0]
            assert plan.purpose == "shape" or plan.target in self.world.running(owner).values()
            assert plan.after["eight"] >= min(plan.before["eight"], 1)


@pytest.mark.parametrize(
    ("mishaps", "state"),
    [({}, "done"), ({12: "restart"}, "done"), ({3: "late"}, "stopped"), ({3: "fails"}, "stopped"), ({3: "gone"}, "")],
)
def test_the_stories_see_each_end_of_a_plan(mishaps: Mapping[int, str], state: str) -> None:
    pods = [("a", 14, False), ("a", 4, True), ("b", 14, False), ("b", 4, True), ("c", 12, False), ("c", 13, False)]
    with FakeApiServer() as server:
        story = Story(server, pods, [14], mishaps)
        asyncio.run(story.play())
        record = story.world.controller.record
        assert record is not None
        assert [plan.state for plan in record.history][-1:] == ([state] if state else [])
