"""What filter answers for pods of groups."""

from extender.features.groups.answers import HELD, NOT_TOGETHER, only, only_place, refused_for_groups
from extender.scheduling.objections import Filtered, refuse_all, without
from extender.scheduling.reasons import RefusalReason
from tests.scheduling.test_feasibility import NAMES


def test_one_place_is_offered_beside_what_is_refused() -> None:
    before = without(Filtered(feasible=NAMES), ["a"], "first")

    after = only(without(before, NAMES[1:3], RefusalReason.HELD.text), NAMES[4])

    assert only_place(before, after) == NAMES[4]
    assert only_place(before, before) == ""
    assert refused_for_groups(before, after) == dict.fromkeys(NAMES[1:3], HELD)
    assert set(refused_for_groups(before, refuse_all(before, "2 of 3 pods fit")).values()) == {NOT_TOGETHER}
    assert only(before, "") is before
