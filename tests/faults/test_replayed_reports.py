"""A small one of the drill that replays hostile reports, and the drill against a program that is set up to fail it."""

from pathlib import Path

from tests.faults import replayed_reports
from tests.faults.replayed_reports import MIB, Bounds

SLOW_MACHINE = Bounds(calls=40, call_seconds=60.0, report_seconds=60.0, alive_seconds=60.0)
"""Other tests run beside this one; `make faults` holds the program to the bounds proper."""


def test_whatever_nodes_report_the_scheduler_gets_its_answers(tmp_path: Path) -> None:
    story = replayed_reports.play(tmp_path, seed=20_261_121, rounds=12, bounds=SLOW_MACHINE, filter_seconds=1.5)

    assert story.wrong == []
    assert story.calls == 36
    assert story.replayable > 12, "reports are really replayed"


def test_the_drill_can_fail(tmp_path: Path) -> None:
    """Every node is stale at once and refused, and no bound can be kept."""
    impossible = Bounds(call_seconds=0.0, report_seconds=0.0, alive_seconds=0.0, rss_bytes=MIB)
    story = replayed_reports.play(
        tmp_path,
        seed=1,
        rounds=2,
        bounds=impossible,
        filter_seconds=1.5,
        stale_nodes="refuse",
        stale_after_seconds=0.000_001,
    )

    for fault in ("a report of", "a filter call took", "honest nodes not offered", "/livez", "MiB resident"):
        assert any(fault in wrong for wrong in story.wrong), fault
