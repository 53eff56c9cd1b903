"""Laws of the records of groups, whatever comes in whatever order: consistent, bounded in number and in time."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.config.settings import Settings
from extender.features.groups import groups as module
from extender.features.groups.groups import MAX_HOLDING, Groups
from extender.features.groups.record import OPEN_HOLDS, HeldPlace, HeldPlan
from extender.scheduling.pod_shape import PodShape
from extender.wire.groups import Group
from extender.wire.pods import pod_from_json
from tests.reports import pod_of

HOLD_SECONDS = 30.0
SHAPE = PodShape(pod_from_json(pod_of(2)))
UIDS = st.sampled_from([f"u{i}" for i in range(7)])
GROUPS = st.builds(
    Group,
    st.tuples(st.just("annotation"), st.sampled_from(["ns", "other"]), st.sampled_from("abcd")),
    st.integers(0, 5),
)
NODES = st.lists(st.sampled_from(["", "n0", "n1", "n2"]), min_size=1, max_size=5)
STEP = st.one_of(
    st.tuples(st.just("claim"), GROUPS, UIDS, st.sampled_from(["", "n0", "n1"])),
    st.tuples(st.just("hold"), GROUPS, UIDS, NODES),
    st.tuples(st.sampled_from(["spare", "lose", "open", "failed", "bound", "give back", "unseen"]), GROUPS, UIDS),
    st.tuples(st.just("seen bound"), GROUPS, UIDS, st.sampled_from(["n0", "n3"])),
    st.tuples(st.just("gone"), UIDS),
    st.tuples(st.just("wait"), st.sampled_from([0.5, 14.0, 29.0, 31.0, 299.0])),
)


class Story:
    """The records, and the time."""

    def __init__(self) -> None:
        self.groups = Groups(Settings(port=0, gang_hold_seconds=30, gang_rest_seconds=60, gang_max_pods=4))
        self.now = 1000.0

    def play(self, kind: str, *values: Any) -> None:
        groups = self.groups
        groups.expire(self.now)
        if kind == "wait":
            self.now += values[0]
        elif kind == "gone":
            groups.see_gone(values[0], self.now)
        elif kind == "seen bound":
            group, uid, node_name = values
            groups.see_bound(group, uid, node_name, self.now)
        else:
            self._on_record(kind, *values)

    def _on_record(self, kind: str, group: Group, uid: str, where: Any = None) -> None:  # noqa: ANN401
        """As filter and bind do: of a group that plans no places they change nothing."""
        groups, now = self.groups, self.now
        record = groups.join(group, uid, len(uid), now)
        is_free = uid not in record.bound and not record.is_full
        if kind == "claim" and is_free and record.missing(uid) > 0:
            groups.claim(record, uid, HeldPlace(where, SHAPE), now)
        elif kind == "hold" and is_free and (record.is_open or groups.may_hold(record)):
            places = [HeldPlace(name, SHAPE) for name in where[: max(0, record.missing(uid))]]
            if places:
                claims = {each: place for each, place in record.claims.items() if each != uid}
                groups.hold(record, uid, HeldPlan(places[0], claims, places[1:]), now)
        elif kind == "spare" and is_free:
            place = groups.take_spare(record, SHAPE.pod, lambda name: name != "n2")
            if place is not None:
                groups.claim(record, uid, place, now)
        elif kind == "open" and is_free:
            groups.open(record, uid, now)
        elif kind in ("failed", "bound"):
            if kind == "bound":
                groups.bind(record, uid, "n1", now)
            groups.end_binding(record, uid, now, may_be_bound=kind == "bound")
        elif kind == "lose":
            groups.lose(record, uid, now)
        elif kind == "give back":
            groups.give_back(record, now)
        elif kind == "unseen":
            groups.forget_unseen(record, now)

    def check(self) -> None:
        groups = self.groups
        groups.expire(self.now)
        holds = sorted((hold.key, hold.uid, name) for name, each in groups.held.items() for hold in each)
        places = [(each.key, uid, place.node_name) for each in groups for uid, place in each.places if place.node_name]
        assert holds == sorted(places)
        for record in groups:
            assert all(groups.of_pod(uid) is record for uid in (*record.claims, *record.bound))
            assert not record.claims.keys() & record.bound.keys()
            if record.has_places:
                assert self.now < record.hold_until <= self.now + 2 * HOLD_SECONDS
                assert record.open_until >= record.hold_until
                assert record.is_opened or record.bound or record.hold_until <= record.held_since + 2 * HOLD_SECONDS
            else:
                assert not record.is_opened
        assert len(groups) <= module.MAX_GROUPS
        assert all(self.now < until for until in [each.hold_until for each in groups if each.has_places])


@settings(max_examples=100, deadline=None)
@given(st.lists(STEP, max_size=30))
def test_records_are_consistent_and_everything_is_given_back_in_time(steps: list[tuple[Any, ...]]) -> None:
    story = Story()
    for kind, *values in steps:
        story.play(kind, *values)
        story.check()
    for _ in range(2 * OPEN_HOLDS + 2):
        story.now += HOLD_SECONDS
        story.groups.expire(story.now)
    assert not story.groups.held
    assert not any(record.has_places for record in story.groups)
    assert not story.groups.resting(story.now + 61)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), UIDS), max_size=60))
def test_groups_are_bounded_in_number(steps: list[tuple[int, str]]) -> None:
    """At the limit of 12 groups. One that holds places stays."""
    groups = Groups(Settings(port=0, gang_hold_seconds=30, gang_rest_seconds=60, gang_max_pods=4))
    limit, module.MAX_GROUPS = module.MAX_GROUPS, 12  # type: ignore[misc]
    try:
        for number, uid in steps:
            record = groups.join(Group(("annotation", f"ns{number % 3}", str(number)), 3), uid, 0, 0.0)
            if number % 2 and groups.may_hold(record) and record.missing(uid) > 0:
                groups.claim(record, uid, HeldPlace("n0", SHAPE), 0.0)
            elif number % 5 == 0:
                groups.bind(record, uid, "n1", 0.0)
            assert len(groups) <= 12
            assert sum(each.has_places for each in groups) <= MAX_HOLDING + sum(each.is_open for each in groups)
            assert groups.get(record.key) is record
            assert all(groups.of_pod(each) is found for found in groups for each in (*found.claims, *found.bound))
    finally:
        module.MAX_GROUPS = limit  # type: ignore[misc]
