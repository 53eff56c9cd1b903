"""The scheduler comes first: a small version of the drill `people`, and proof that the drill can fail."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.people import Bounds, Story, play


def test_people_who_ask_and_leave_do_not_keep_the_scheduler_waiting(tmp_path: Path) -> None:
    """How long a call takes depends on the machine: here a minute is too long, `make faults` holds the real bounds."""
    bounds = Bounds(known_floor_ms=60_000, new_seconds=60, alive_seconds=60, idle_again_seconds=55, end_seconds=60)

    story = play(tmp_path, nodes=60, states=20, seconds=1, bounds=bounds, filter_seconds=20)

    assert story.broken == []
    assert story.outcomes.get("client_left", 0) > 0
    assert story.outcomes.get("refused", 0) > 0


GOOD = Story(
    idle_p50_ms=2, idle_p99_ms=5, load_p50_ms=3, load_p99_ms=12, calls=100, new_calls=10, new_worst_seconds=0.1,
    alive_worst_seconds=0.1, idle_again_seconds=1, end_seconds=2, peak_rss_mib=300,
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"calls": 0}, "no call"),
        ({"new_calls": 0}, "no call"),
        ({"wrong": 1}, "1 calls were answered wrongly"),
        ({"load_p99_ms": 21.0}, "known shapes took 21 ms"),
        ({"new_worst_seconds": 1.71}, "a new shape took 1.71 s"),
        ({"alive_worst_seconds": 1.1}, "/livez"),
        ({"idle_again_seconds": 5.1}, "went on after the clients had left"),
        ({"end_seconds": 15.1}, "SIGTERM took 15.1 s"),
        ({"left_over": 1}, "left over"),
        ({"peak_rss_mib": 1537}, "1537 MiB"),
    ],
)
def test_the_drill_fails_on_each_of_its_bounds(change: dict[str, float], words: str) -> None:
    assert GOOD.broken == []
    (fault,) = replace(GOOD, **change).broken  # type: ignore[arg-type]
    assert words in fault
