"""Switches of the replay in one line of text, as the setting NUMA_EXTENDER_KUBELET_SWITCHES has them."""

import pytest

from extender.wire.switches import switches_from_text


@pytest.mark.parametrize(
    ("text", "switches"),
    [
        ("", {}),
        (" , ", {}),
        ("distribute_inside_hint", {"distribute_inside_hint": True}),
        (
            "distribute_inside_hint = true, smt_check_after_held=false",
            {"distribute_inside_hint": True, "smt_check_after_held": False},
        ),
    ],
)
def test_switches_are_read(text: str, switches: dict[str, bool]) -> None:
    assert switches_from_text(text) == switches


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("minor", "'minor' is not a switch; known are"),
        ("distribute_well", "'distribute_well' is not a switch; known are"),
        ("spread_by_topology=yes", "'spread_by_topology=yes': each switch is NAME"),
        ("spread_by_topology,spread_by_topology=false", "is given once"),
        ("=true", "'' is not a switch"),
    ],
)
def test_what_names_no_switch_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        switches_from_text(text)
