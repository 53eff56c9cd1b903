"""A small storm of half-open handshakes against the real program; `make faults` runs the large ones."""

from pathlib import Path

from tests.faults import half_open


def test_half_open_handshakes_cost_no_call_and_no_memory(tmp_path: Path) -> None:
    story = half_open.play(tmp_path, storms=1, size=400, max_connections=256, floor_ms=60_000)

    assert [storm.opened for storm in story.storms] == [400]
    assert story.broken == []


def test_a_bad_story_is_found() -> None:
    """A storm that cost 700 MiB and calls of each kind, as the first version did."""
    good = half_open.Calls(milliseconds=[5.0] * 100)
    bad = half_open.Calls(milliseconds=[5.0] * 99 + [9000.0], unanswered=1)
    idle = {"plain": good, "kept": good, "new": good}
    storm = half_open.Storm(opened=10_000, after=775 << 20, calls={"plain": bad, "kept": bad, "new": bad})

    found = half_open.Story(idle=idle, before=76 << 20, storms=[storm]).broken

    assert found == [
        "storm 1: 1 of 100 plain calls were not answered",
        "storm 1: 1 of 100 kept calls were not answered",
        "storm 1: 1 of 100 new calls were not answered",
        "p99 of plain calls during the storms was 9000 ms, not 3000",
        "p99 of kept calls during the storms was 9000 ms, not 3000",
        "p99 of new calls during the storms was 9000 ms, not 3000",
        "resident memory grew by 699 MiB over 1 storms, more than 100 MiB",
    ]
