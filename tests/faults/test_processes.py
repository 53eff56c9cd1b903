"""Small drills with the real programs; `python -m tests.faults` runs long ones."""

from pathlib import Path

from tests.faults import exporter_kills, outage


def test_an_exporter_that_is_killed_and_killed_again(tmp_path: Path) -> None:
    story = exporter_kills.play(tmp_path, seed=3, kills=2)

    assert story.wrong == []
    assert story.went_back == 0
    assert story.kills == 2


def test_an_api_server_that_is_away_for_a_while(tmp_path: Path) -> None:
    story = outage.play(tmp_path, seconds=3.0)

    assert story.wrong == []
    assert story.answers == story.refused_binds == story.reads_by_token
    assert story.went_stale_after > 0.0
