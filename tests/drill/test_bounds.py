"""The drill can fail: its judgement finds each fault in the measurements of a bad run, and `main` ends with 1."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from tests.drill import __main__ as program
from tests.drill.drill import Outcome
from tests.drill.promises import why_not_evicted
from tests.drill.tally import Restart

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
        ({"traces": ["node-9: not in the API server, and kept"]}, "node-9: not in the API server"),
        ({"given_up": 101, "admitted": 899}, "101 of 1000 pods fitted nowhere"),
        ({"refused": Counter(OutOfcpu=1), "admitted": 989}, "other totals than the gate: {'OutOfcpu': 1}"),
        ({"refused": Counter(SMTAlignmentError=1), "refusals": ["p7"], "admitted": 989}, "1 pods were refused"),
        (
            {"refused": Counter(SMTAlignmentError=2), "unforeseen": 1, "refusals": ["p7"], "admitted": 988},
            "1 pods were",
        ),
        ({"unexplained": 3}, "3 pods were placed elsewhere"),
        ({"against_demand": ["p8 on NUMA 0,1"], "unforeseen_demand": 4}, "1 pods were placed against their demand: p8"),
        ({"create_errors": ["p9: no CPUs"]}, "1 pods ended in CreateContainerError: p9"),
        ({"groups": 5, "half_placed": ["g1"]}, "1 of 5 groups are half placed: g1"),
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


@pytest.mark.parametrize(
    ("change", "decided", "unforeseen"),
    [
        ({}, 15.0, True),  # between the stop of the kubelet and its first report after the stop
        ({}, 25.0, False),  # the extender had been told
        ({"told": 0.0}, 25.0, True),  # it never was
        ({}, 45.0, False),  # after the first list: the pod did not meet the restart
        ({"stopped": 0.0, "told": 0.0, "first_list": 0.0}, 15.0, False),  # the kubelet never stopped
    ],
)
def test_only_a_restart_that_nobody_could_know_of_excuses_a_refusal(
    *, change: dict[str, float], decided: float, unforeseen: bool
) -> None:
    restart = Restart(stopped=10.0, told=20.0, started=30.0, first_list=40.0)

    assert replace(restart, **change).is_unforeseen(decided) is unforeseen  # type: ignore[arg-type] # stale stays


@pytest.mark.parametrize(
    ("apps", "priorities", "words"),
    [
        (("free", "free", "careful"), (0, 5, 0), []),
        (("careful", "careful"), (0, 0), ["the budget of p1 is used up"]),
        (("never",), (0,), ["the budget of p0 is used up"]),
        (("free",), (6,), ["the priority of p0 is higher"]),
    ],
)
def test_an_eviction_against_the_rules_is_found(
    apps: tuple[str, ...], priorities: tuple[int, ...], words: list[str]
) -> None:
    pods = [
        {"metadata": {"name": f"p{number}", "labels": {"app": app}}, "spec": {"priority": priority}}
        for number, (app, priority) in enumerate(zip(apps, priorities, strict=True))
    ]
    assert why_not_evicted(pods, 5) == words
