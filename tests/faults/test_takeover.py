"""A small story of two extenders; `python -m tests.faults` plays longer ones."""

from pathlib import Path

from tests.faults.takeover import play


def test_a_killed_leader_loses_nothing_and_nothing_is_given_away_twice(tmp_path: Path) -> None:
    story = play(tmp_path, seed=7, kills=1, nodes=2, pods=14)

    assert story.kills == 1
    assert story.false_admits == []
    assert story.bound + story.nowhere == 14
