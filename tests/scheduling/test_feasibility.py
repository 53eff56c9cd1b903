"""Refusing feasible nodes, whatever the sequence of refusals."""

import asyncio
from collections.abc import Callable

import orjson
from hypothesis import given
from hypothesis import strategies as st

from extender.config.settings import Settings
from extender.kubelet.verdict import Certainty
from extender.scheduling.judgement import Judgement
from extender.scheduling.objections import (
    FilterCall,
    Filtered,
    Objector,
    avoid,
    only,
    refuse_all,
    with_feasible,
    without,
)
from extender.scheduling.reasons import RefusalReason
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs, filter_reply
from tests.reports import pod_of
from tests.world.cluster import World

NAMES = ["a", *(f"ip-10-0-{i}-17.example.internal" for i in range(7)), "b" * 60]
POD = pod_from_json(pod_of())
Step = tuple[str, list[str]]
some_names = st.lists(st.sampled_from(NAMES), unique=True)
steps = st.lists(st.tuples(st.sampled_from(["without", "avoid", "refuse all"]), some_names), max_size=4)


def expected_of(kind: str, names: list[str], feasible: list[str]) -> list[str]:
    """Which of the feasible nodes a step should refuse."""
    if kind == "refuse all":
        return feasible
    found = [name for name in feasible if name in names]
    return [] if kind == "avoid" and found == feasible else found


def step(kind: str, names: list[str], text: str, filtered: Filtered) -> Filtered:
    by_kind: dict[str, Callable[[], Filtered]] = {
        "without": lambda: without(filtered, names, RefusalReason.HELD, text=text),
        "avoid": lambda: avoid(filtered, names, RefusalReason.PROMISED),
        "refuse all": lambda: refuse_all(filtered, RefusalReason.HELD, text),
    }
    return by_kind[kind]()


@given(some_names, steps)
def test_refusals_are_those_of_lists(candidates: list[str], taken: list[Step]) -> None:
    filtered = Filtered(feasible=candidates)
    feasible, refused, instead = list(candidates), dict[str, str](), dict[str, Judgement]()

    for number, (kind, names) in enumerate(taken):
        reason = RefusalReason.PROMISED if kind == "avoid" else RefusalReason.HELD
        before, text = filtered, reason.text if kind == "avoid" else f"reason {number}"
        filtered = step(kind, names, text, before)
        new = dict.fromkeys(expected_of(kind, names, feasible), text)
        feasible, refused = [name for name in feasible if name not in new], refused | new
        instead |= dict.fromkeys(new, Judgement(reason, Certainty.EXACT))

        assert (filtered is before) == (not new)
        assert list(filtered.feasible) == feasible
        assert dict(filtered.refused) == refused
        assert dict(filtered.instead) == instead
    args = SchedulerArgs(pod=POD, names=candidates, nodes=None)
    reply = orjson.loads(filter_reply(args, filtered.feasible, filtered.resolvable, filtered.refused))
    assert reply["NodeNames"] == feasible
    assert reply["FailedAndUnresolvableNodes"] == refused


def test_a_refused_node_can_be_made_feasible_again() -> None:
    before = without(Filtered(feasible=NAMES), NAMES[:2], RefusalReason.UNSETTLED, Certainty.POSSIBLE)

    after = with_feasible(before, "a")

    assert sorted(after.feasible) == sorted([*NAMES[2:], "a"])
    assert dict(after.refused) == {NAMES[1]: RefusalReason.UNSETTLED.text}
    assert dict(after.instead) == {NAMES[1]: Judgement(RefusalReason.UNSETTLED, Certainty.POSSIBLE)}
    again = without(after, ["a"], RefusalReason.HELD)
    assert dict(again.refused) == {NAMES[1]: RefusalReason.UNSETTLED.text, "a": RefusalReason.HELD.text}


def test_one_place_is_offered_beside_what_is_refused() -> None:
    before = without(Filtered(feasible=NAMES), ["a"], RefusalReason.HELD)

    after = only(before, NAMES[4])

    assert (list(after.feasible), after.place, after.refused) == ([NAMES[4]], NAMES[4], before.refused)
    assert only(Filtered(feasible=["b"]), "b").place == ""
    assert only(before, "") is before


class _All(Objector):
    """Refuses every node."""

    async def filter(self, _call: FilterCall, filtered: Filtered) -> Filtered:
        return refuse_all(filtered, RefusalReason.HELD)


class _Nothing(_All):
    """As long as it has no grounds, it refuses none."""

    grounds = ()


def test_a_feature_with_a_filter_of_its_own_is_asked_unless_it_says_that_it_has_no_grounds() -> None:
    world = World(settings=Settings(question_workers=0))
    args = SchedulerArgs(pod=POD, names=("unknown",), nodes=None)
    scheduling = world.service.scheduling

    scheduling.objectors.append(_Nothing())
    assert list(asyncio.run(scheduling.filter.filter(args)).feasible) == ["unknown"]
    scheduling.objectors.append(_All())
    assert asyncio.run(scheduling.filter.filter(args)).refused == {"unknown": RefusalReason.HELD.text}
