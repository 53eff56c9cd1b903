"""The drill can fail: its judgement finds each fault in the measurements of a bad run, and `main` ends with 1."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.drill import __main__ as program
from tests.drill.drill import Outcome

GOOD = Outcome(
    pods=1000,
    gate=True,
    admitted=990,
    refused=Counter(),
    unforeseen=0,
    refused_again=Counter(),
    refusals=[],
    given_up=10,
    leaks=[],
    in_flight=0,
    restarts=Counter(kubelet=3),
    outages=1,
    lost_reports=2,
    scheduling=Counter(),
    audit=Counter(agreed=980, placement=1),
)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pods": 1001}, "1 of 1001 pods were neither admitted nor refused nor taken back"),
        ({"admitted": 991}, "-1 of 1000 pods"),
        ({"admitted": 0, "pods": 0, "given_up": 0}, "no pod was admitted"),
        ({"in_flight": 2}, "2 pods were still in flight"),
        ({"leaks": ["node-1: 2 states"]}, "node-1: 2 states"),
        ({"given_up": 101, "admitted": 899}, "101 of 1000 pods fitted nowhere"),
        ({"refused": Counter(OutOfcpu=1), "admitted": 989}, "other totals than the gate: {'OutOfcpu': 1}"),
        ({"refused": Counter(SMTAlignmentError=1), "refusals": ["p7"], "admitted": 989}, "1 pods were refused"),
        ({"unexplained": 3}, "3 pods landed elsewhere"),
    ],
)
def test_the_drill_fails_on_each_of_its_bounds(change: dict[str, Any], words: str) -> None:
    assert GOOD.broken == []
    (fault,) = replace(GOOD, **change).broken
    assert words in fault


def test_without_the_gate_kubelets_may_refuse() -> None:
    without = replace(GOOD, gate=False, refused=Counter(OutOfcpu=2, SMTAlignmentError=3), admitted=985)
    assert without.broken == []
    assert replace(without, in_flight=1).broken


@pytest.mark.parametrize(("in_flight", "code"), [(0, 0), (1, 1)])
def test_the_program_ends_with_its_judgement(monkeypatch: pytest.MonkeyPatch, in_flight: int, code: int) -> None:
    monkeypatch.setattr(program, "_play", lambda _plan, _console: replace(GOOD, in_flight=in_flight))
    result = CliRunner().invoke(program.main, ["--only", "gate"])
    assert result.exit_code == code
    assert ("still in flight" in result.output.split("virtual, real")[-1]) is bool(in_flight)
