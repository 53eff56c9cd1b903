"""Refusing feasible nodes, whatever the sequence of refusals."""

from collections.abc import Callable

import orjson
from hypothesis import given
from hypothesis import strategies as st

from extender.scheduling.objections import (
    Filtered,
    avoid,
    newly_refused,
    refuse_all,
    with_feasible,
    without,
)
from extender.scheduling.reasons import RefusalReason
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs, filter_reply
from tests.reports import pod_of

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
        "without": lambda: without(filtered, names, text),
        "avoid": lambda: avoid(filtered, names, RefusalReason.PROMISED),
        "refuse all": lambda: refuse_all(filtered, text),
    }
    return by_kind[kind]()


@given(some_names, steps)
def test_refusals_are_those_of_lists(candidates: list[str], taken: list[Step]) -> None:
    first = Filtered(feasible=candidates)
    filtered = first
    feasible, refused = list(candidates), dict[str, str]()

    for number, (kind, names) in enumerate(taken):
        before, text = filtered, RefusalReason.PROMISED.text if kind == "avoid" else f"reason {number}"
        filtered = step(kind, names, text, before)
        new = dict.fromkeys(expected_of(kind, names, feasible), text)
        feasible, refused = [name for name in feasible if name not in new], refused | new

        assert newly_refused(before, filtered) == new
        assert (filtered is before) == (not new)
        assert newly_refused(filtered, filtered) == {}
        assert list(filtered.feasible) == feasible
        assert dict(filtered.refused) == refused
        assert len(filtered.refused) == len(refused)
    assert newly_refused(first, filtered) == refused
    args = SchedulerArgs(pod=POD, names=candidates, nodes=None)
    reply = orjson.loads(filter_reply(args, filtered.feasible, filtered.resolvable, filtered.refused))
    assert reply["NodeNames"] == feasible
    assert reply["FailedAndUnresolvableNodes"] == refused


def test_a_refused_node_can_be_made_feasible_again() -> None:
    before = without(Filtered(feasible=NAMES), NAMES[:2], "first")

    after = with_feasible(before, "a")

    assert sorted(after.feasible) == sorted([*NAMES[2:], "a"])
    assert dict(after.refused) == {NAMES[1]: "first"}
    assert newly_refused(before, after) == {}
    assert dict(without(after, ["a"], "second").refused) == {NAMES[1]: "first", "a": "second"}
