"""Refusing feasible nodes gives the same result for packed names, for parsed names and for lists.

The law is checked against a plain computation over lists, for any sequence of refusals, and whichever names are known.
"""

from collections.abc import Callable, Sequence

import orjson
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.name_table import NameTable
from extender.scheduling.feasibility import (
    HELD,
    NOT_TOGETHER,
    Filtered,
    avoid,
    newly_refused,
    only,
    only_place,
    refuse_all,
    refused_for_groups,
    with_feasible,
    without,
)
from extender.scheduling.name_positions import has_name, positions_of, shared_names
from extender.scheduling.reasons import RefusalReason
from extender.wire.node_names import NodeNames
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs, filter_reply
from tests.reports import pod_of

NAMES = ["a", *(f"ip-10-0-{i}-17.example.internal" for i in range(7)), "b" * 60]
POD = pod_from_json(pod_of())
Step = tuple[str, list[str]]
some_names = st.lists(st.sampled_from(NAMES), unique=True)
steps = st.lists(st.tuples(st.sampled_from(["without", "avoid", "refuse all"]), some_names), max_size=4)
forms = st.sampled_from(["packed", "parsed", "list"])


def in_form(form: str, names: Sequence[str]) -> Sequence[str]:
    if form == "list":
        return list(names)
    proven = NodeNames.proven(orjson.dumps(names)) if form == "packed" else None
    return proven or NodeNames.of(names)


def table_of(names: Sequence[str]) -> NameTable:
    table = NameTable()
    for name in names:
        table.add(name)
    return table


def expected_of(kind: str, names: list[str], feasible: list[str]) -> list[str]:
    """Which of the feasible nodes a step should refuse."""
    if kind == "refuse all":
        return feasible
    found = [name for name in feasible if name in names]
    return [] if kind == "avoid" and found == feasible else found


def step(kind: str, names: list[str], text: str, filtered: Filtered, table: NameTable) -> Filtered:
    by_kind: dict[str, Callable[[], Filtered]] = {
        "without": lambda: without(filtered, names, text, table),
        "avoid": lambda: avoid(filtered, names, table, RefusalReason.PROMISED),
        "refuse all": lambda: refuse_all(filtered, text),
    }
    return by_kind[kind]()


@given(forms, some_names, some_names, steps)
def test_refusals_are_those_of_lists(form: str, candidates: list[str], known: list[str], taken: list[Step]) -> None:
    table, first = table_of(known), Filtered(feasible=in_form(form, candidates))
    filtered = first
    feasible, refused = list(candidates), dict[str, str]()

    for number, (kind, names) in enumerate(taken):
        before, text = filtered, RefusalReason.PROMISED.text if kind == "avoid" else f"reason {number}"
        filtered = step(kind, names, text, before, table)
        new = dict.fromkeys(expected_of(kind, names, feasible), text)
        feasible, refused = [name for name in feasible if name not in new], refused | new

        assert newly_refused(before, filtered) == new
        assert (filtered is before) == (not new)
        assert newly_refused(filtered, filtered) == {}
        assert list(filtered.feasible) == feasible
        assert dict(filtered.refused) == refused
        assert len(filtered.refused) == len(refused)
        assert set(filtered.reasons) == set(refused.values())
    assert newly_refused(first, filtered) == refused
    args = SchedulerArgs(pod=POD, names=NodeNames.of(candidates), nodes=None)
    reply = orjson.loads(filter_reply(args, filtered.feasible, filtered.resolvable, filtered.refused))
    assert reply["NodeNames"] == feasible
    assert reply["FailedAndUnresolvableNodes"] == refused


@given(forms, some_names, some_names, some_names)
def test_names_are_found_whether_the_table_knows_them_or_not(
    form: str, candidates: list[str], known: list[str], wanted: list[str]
) -> None:
    names, table = in_form(form, candidates), table_of(known)

    for _ in range(2):
        assert [candidates[i] for i in positions_of(wanted, names, table)] == [n for n in candidates if n in wanted]
        assert set(shared_names(wanted, names, table)) == set(candidates) & set(wanted)
        assert all(has_name(names, name, table) == (name in candidates) for name in NAMES)
        for name in known:  # other names get the slots of these
            table.remove(name)
        for name in reversed(known):
            table.add(name)


def test_one_place_is_offered_beside_what_is_refused() -> None:
    table = table_of(NAMES)
    before = without(Filtered(feasible=in_form("packed", NAMES)), ["a"], "first", table)

    after = only(without(before, NAMES[1:3], RefusalReason.HELD.text, table), NAMES[4])

    assert only_place(before, after) == NAMES[4]
    assert only_place(before, before) == ""
    assert refused_for_groups(before, after) == dict.fromkeys(NAMES[1:3], HELD)
    assert set(refused_for_groups(before, refuse_all(before, "2 of 3 pods fit")).values()) == {NOT_TOGETHER}
    assert only(before, "") is before


def test_a_refused_node_can_be_made_feasible_again() -> None:
    table = table_of(NAMES)
    before = without(Filtered(feasible=in_form("packed", NAMES)), NAMES[:2], "first", table)

    after = with_feasible(before, "a")

    assert sorted(after.feasible) == sorted([*NAMES[2:], "a"])
    assert dict(after.refused) == {NAMES[1]: "first"}
    assert newly_refused(before, after) == {}
    assert dict(without(after, ["a"], "second", table).refused) == {NAMES[1]: "first", "a": "second"}
