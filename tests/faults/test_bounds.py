"""Every drill can fail: its judgement finds each fault in the measurements of a bad run, and `main` ends with 1."""

from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.faults import __main__ as program
from tests.faults.attack_drill import Seen
from tests.faults.exporter_kills import Kills
from tests.faults.hostile_inputs import TARGETS, Tally
from tests.faults.outage import Outage
from tests.faults.rude_clients import MIB, Storm, broken
from tests.faults.soak import Soak
from tests.faults.takeover import Story

TAKEOVER = Story(pods=10, bound=9, nowhere=1, kills=1, seconds_without_leader=[3.0], peak_rss_bytes=76 << 20)
OUTAGE = Outage(seconds=10, answers=9, refused_binds=9, reads_by_token=9, went_stale_after=2.5, back_after=10)
KILLS = Kills(kills=3, looks=9, reports_seen=3, caught_up_after=0.4)
SEEN = Seen(
    "quiet",
    idle_p99_ms=30,
    p99_ms=90,
    idle_cpu_ms=3,
    cpu_ms=4,
    alive_seconds=0.4,
    grown_mib=99,
    own_seconds=2.4,
    calls=300,
    refused=6,
)
SOAK = Soak(
    60, idle_p99_ms=30, before_mib=80, rss_mib=[(t, 100) for t in range(60)], p99_ms=[80, 90, 1000],
    alive_seconds=[0.1, 0.4, 9.0], stolen=[0.01, 0.02, 0.03], calls=300, refused=6, strikes={"B1": 3},
)  # fmt: skip
IDLE = Storm("nobody", calls=20, p99_ms=30, before=75 * MIB, peak=75 * MIB)
RUDE = Storm("rude", 600, calls=20, p99_ms=150, before=75 * MIB, peak=170 * MIB)


@pytest.mark.parametrize(
    ("good", "change", "words"),
    [
        (TAKEOVER, {"bound": 8}, "8 bound and 1 refused of 10 pods"),
        (TAKEOVER, {"bound": 0, "nowhere": 10}, "no pod was bound"),
        (TAKEOVER, {"kills": 0}, "no leader was killed"),
        (TAKEOVER, {"false_admits": ["pod-1"]}, "refused by its kubelet: pod-1"),
        (TAKEOVER, {"seconds_without_leader": [3.0, 15.1]}, "for 15.1 s there was no leader"),
        (TAKEOVER, {"peak_rss_bytes": 3 << 30}, "3072 MiB"),
        (OUTAGE, {"answers": 0}, "no filter call was answered"),
        (OUTAGE, {"slowest_filter": 3.1}, "a filter call took 3.1 s"),
        (OUTAGE, {"slowest_bind": 4.1}, "a bind call took 4.1 s"),
        (OUTAGE, {"refused_binds": 8}, "succeeded without an API server"),
        (OUTAGE, {"reads_by_token": 8}, "a known token was refused"),
        (OUTAGE, {"went_stale_after": 0.0}, "never went stale"),
        (OUTAGE, {"back_after": 61.0}, "61 s to recover"),
        (OUTAGE, {"rss_after": 101 * MIB}, "grew by 101 MiB"),
        (OUTAGE, {"wrong": ["bound: []"]}, "bound: []"),
        (KILLS, {"kills": 0}, "never killed"),
        (KILLS, {"looks": 0}, "nobody looked"),
        (KILLS, {"reports_seen": 0}, "no report arrived"),
        (KILLS, {"went_back": 1}, "an older report replaced a newer one"),
        (KILLS, {"caught_up_after": 21.0}, "only after 21 s"),
        (KILLS, {"wrong": ["lost"]}, "lost"),
        (SOAK, {"calls": 0, "refused": 0}, "nothing was measured"),
        (SOAK, {"stolen": [0.2, 0.3, 0.4]}, "others took the CPUs all the time"),
        (SOAK, {"unanswered": 1}, "1 honest calls were not answered"),
        (SOAK, {"refused": 7}, "7 of 300 honest calls were offered no honest node"),
        (SOAK, {"p99_ms": [80, 91, 92]}, "honest filter p99 was 91 ms (median of quiet windows), more than 90"),
        (SOAK, {"alive_seconds": [0.1, 0.6, 0.7]}, "/livez took 0.60 s"),
        (SOAK, {"before_mib": -1}, "memory grew by 101 MiB"),
        (SOAK, {"rss_mib": [(t, 100 + t) for t in range(60)]}, "memory still grew by 29 MiB in the second half"),
        (SOAK, {"strikes": {"B1": 3, "B2": 0}}, "B2 never struck"),
        (SOAK, {"waiting": ["p"]}, "1 honest pods were not placed"),
        (SOAK, {"wrong": ["at the end: blind"]}, "at the end: blind"),
        (SEEN, {"calls": 0, "refused": 0}, "no honest call was made"),
        (SEEN, {"unanswered": 1}, "1 honest calls were not answered"),
        (SEEN, {"refused": 7}, "7 of 300 honest calls were offered no honest node"),
        (SEEN, {"p99_ms": 91.0}, "honest filter p99 was 91 ms, more than 90"),
        (SEEN, {"cpu_ms": 3.0, "p99_ms": 1001.0}, "honest filter p99 was 1001 ms"),
        (SEEN, {"alive_seconds": 0.51}, "/livez took 0.51 s"),
        (SEEN, {"grown_mib": 101}, "memory grew by 101 MiB"),
        (SEEN, {"own_seconds": 4.1}, "a call for the attacker's own pod took 4.1 s"),
        (SEEN, {"waiting": ["p"]}, "1 honest pods were not placed"),
        (SEEN, {"log_mib": 0.3}, "the log grew by 0.3 MiB"),
        (SEEN, {"wrong": ["under attack: blind"]}, "under attack: blind"),
    ],
)
def test_a_drill_fails_on_each_of_its_bounds(
    good: Story | Outage | Kills | Seen | Soak, change: dict[str, object], words: str
) -> None:
    assert good.broken == []
    (fault,) = replace(good, **change).broken  # type: ignore[arg-type]
    assert words in fault


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"calls": 0}, "no call was made"),
        ({"unanswered": 20}, "20 of 20 calls were not answered"),
        ({"p99_ms": 151.0}, "p99 was 151 ms"),
        ({"peak": 3072 * MIB}, "resident memory reached 3072 MiB"),
    ],
)
def test_rude_clients_fail_the_drill(change: dict[str, float], words: str) -> None:
    assert broken([IDLE, RUDE]) == []
    (fault,) = broken([IDLE, replace(RUDE, **change)])  # type: ignore[arg-type]
    assert fault.startswith("rude: ")
    assert words in fault


def test_hostile_inputs_fail_the_drill() -> None:
    good = Tally()
    good.taken.update(list(TARGETS))
    good.slowest["report"] = 1.0
    assert program.broken_inputs(good, len(TARGETS)) == []

    bad = Tally(broken=["report: RecursionError"], slowest={"report": 11.0})
    found = program.broken_inputs(bad, 7)

    assert "report: RecursionError" in found
    assert "an input for report took 11.0 s" in found
    assert "1 of 7 inputs were tried" in found
    assert any("none was taken" in fault for fault in found)


@pytest.mark.parametrize(("faults", "code"), [([], 0), (["20 of 20 calls were not answered"], 1)])
def test_a_failed_drill_ends_the_program_with_1(monkeypatch: pytest.MonkeyPatch, faults: list[str], code: int) -> None:
    monkeypatch.setattr(program, "DRILLS", {"clients": lambda *_: program.Result(["figures"], faults)})

    result = CliRunner().invoke(program.main, [])

    assert result.exit_code == code
    assert all(fault in result.output for fault in faults)
    assert ("failed" in result.output) is bool(faults)
