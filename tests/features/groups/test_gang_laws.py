"""Laws of held places, whatever comes: they are bounded, fit beside the pods, and leave nothing behind."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.features.groups.groups import MAX_HOLDING
from extender.scheduling.binder import PodBound
from extender.scheduling.fit_together import Candidate, fit_together
from tests.features.groups.gang_world import GangWorld, member
from tests.reports import pod_of

Json = dict[str, Any]
SIZES = {"a": 2, "b": 3, "c": 4, "d": 7}
CPUS = {"a": 14, "b": 6, "c": 10, "d": 4}
MEMBER = st.tuples(st.sampled_from(sorted(SIZES)), st.integers(0, 6))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("member"), MEMBER),
        st.tuples(st.just("single"), st.integers(1, 16)),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 8.0, 40.0])),
    ),
    max_size=16,
)


class Story:
    """A world, and the pods that were bound in it."""

    def __init__(self) -> None:
        self.world = GangWorld("n0", "n1", "n2")
        self.bound: dict[str, str] = {}
        self.singles = 0

    async def play(self, kind: str, value: Any) -> None:  # noqa: ANN401 - one kind of value for each kind of step
        if kind == "wait":
            self.world.clock.now += value
            return
        if kind == "single":
            self.singles += 1
            pod = pod_of(value, name=f"s{self.singles}")
        else:
            group, number = value
            pod = member(f"{group}{number % SIZES[group]}", group, SIZES[group], cpus=CPUS[group])
        name = pod["metadata"]["name"]
        feasible = [] if name in self.bound else list((await self.world.filter(pod)).feasible)
        if feasible and await self.world.bind(pod, feasible[0]) == PodBound():
            self.bound[name] = feasible[0]

    def check(self) -> None:
        """What holds at every moment."""
        groups, nodes = self.world.groups, self.world.service.known.nodes
        unopened = [record for record in groups if record.has_places and not record.is_open]
        assert len(unopened) <= MAX_HOLDING
        for record in groups:
            assert len(record.bound) + len(record.claims) + len(record.spare) <= max(record.size, len(record.bound))
            assert record.hold_until - self.world.clock() <= 30 or not record.has_places
            in_group = [name for name in self.bound if name[0] == record.key[2]]
            assert not in_group or record.is_complete or record.is_open
        for name, holds in groups.held.items():
            found = nodes.get(name)
            assert found is not None
            candidate = Candidate(name=name, node_class=found.node_class)
            judge = self.world.service.judging.judge
            assert fit_together(judge, [hold.shape for hold in holds], candidate), "they fit beside the pods"


@settings(max_examples=8, deadline=None)
@given(STEPS)
def test_places_are_bounded_fit_by_replay_and_leave_nothing_behind(steps: list[tuple[str, Any]]) -> None:
    story = Story()

    async def play() -> None:
        for kind, value in steps:
            await story.play(kind, value)
            story.check()
        story.world.clock.now += 1000
        singles = [pod_of(cpus, name=f"last-{cpus}") for cpus in (1, 4, 8, 14, 16)]
        feasible = [list((await story.world.filter(pod)).feasible) for pod in singles]
        assert not story.world.groups.held
        plain = GangWorld("n0", "n1", "n2", gangs="off")
        for name, node in story.bound.items():
            cpus = story_cpus(story, name)
            pod = pod_of(cpus, name=name)
            await plain.filter(pod)
            assert await plain.bind(pod, node) == PodBound()
        assert [list((await plain.filter(pod)).feasible) for pod in singles] == feasible

    def story_cpus(story: Story, name: str) -> int:
        known = story.world.service.known.pods.get(f"uid-{name}").pod
        assert known is not None
        return known.containers[0].requests_milli["cpu"] // 1000

    asyncio.run(play())


@settings(max_examples=6, deadline=None)
@given(st.lists(st.sampled_from(sorted(SIZES)), min_size=1, max_size=6, unique=True), st.randoms(use_true_random=False))
def test_groups_are_whole_or_not_begun_in_whatever_order_their_pods_come(groups: list[str], random: Any) -> None:  # noqa: ANN401
    pods = [member(f"{g}{i}", g, SIZES[g], cpus=CPUS[g]) for g in groups for i in range(SIZES[g])]
    world = GangWorld("n0", "n1", "n2")
    bound: set[str] = set()

    async def play() -> None:
        before = -1
        while len(bound) > before:  # until all is at rest
            before = len(bound)
            random.shuffle(pods)
            for pod in pods:
                if pod["metadata"]["name"] not in bound and await world.place(pod):
                    bound.add(pod["metadata"]["name"])
            world.clock.now += 5

    asyncio.run(play())
    for group in groups:
        assert sum(name[0] == group for name in bound) in (0, SIZES[group]), (group, sorted(bound))
    assert bound, "the first of them fits"
