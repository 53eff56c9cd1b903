"""A scene in which nothing happens fails: outcomes recorded on the real parts, judged by the bounds of the scenes."""

import ast
import inspect
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.live.book import Entry
from tests.live.bounds import show_binds, show_given, show_load, show_spared, show_without
from tests.live.load import Round
from tests.live.mutants import MUTANTS
from tests.live.node import Given
from tests.live.report import Findings
from tests.live.scenes import SCENES
from tests.live.scenes.arrivals import ADMITTED as OF_ARRIVALS
from tests.live.scenes.beside_echo import p90, play_beside_echo, waits_in
from tests.live.scenes.jobs import longest_stall
from tests.live.tally import Tally
from tests.live.whole.comparing import PLACEMENT
from tests.live.workload import Fed, simple_pod


@dataclass(frozen=True)
class Recorded:
    """Counts of one run of `mixed`. `broken`: the rows that must break in every scene, by their first words."""

    fed: Fed
    admitted: int
    refused: Mapping[str, int] = field(default_factory=dict)
    audit: Mapping[str, int] = field(default_factory=dict)
    broken: frozenset[str] = frozenset()

    def judged(self, **options: Any) -> set[str]:
        """The rows whose bounds break."""
        findings = Findings("recorded")
        found = Round(self.fed, Tally(admitted=self.admitted, refused=Counter(self.refused)))
        show_load(findings, found, Counter(self.audit), **options)
        return {row.what.split(" ")[0] for row in findings.rows if not row.ok}


UNCHANGED: Final = Recorded(Fed(300, 1), 299, audit={"agreed": 275})
OF_MUTANTS: Final = {
    "refuses_all": Recorded(Fed(40, 40), 0, broken=frozenset({"admitted", "not"})),
    "passes_all": Recorded(
        Fed(60), 53, {"TopologyAffinityError": 7}, audit={"agreed": 53}, broken=frozenset({"refused"})
    ),
    "forgets_in_flight": Recorded(
        Fed(60), 58, {"TopologyAffinityError": 2}, broken=frozenset({"refused", "predictions"})
    ),
    "answers_late": Recorded(Fed(40, 40), 0, broken=frozenset({"admitted", "not"})),
    "loses_watch": Recorded(Fed(60, 11), 49, audit={"agreed": 44}, broken=frozenset({"not"})),
}
"""By the name of the mutant: `make live LIVE='--scene mixed --mutant NAME --nodes 6'`, with 40 and 60 pods."""
OPTIONS: Final[Mapping[str, dict[str, Any]]] = {
    "as it is": {},
    "arrivals": {"admitted": OF_ARRIVALS},
    "kills": {"not_placed": 0.0},
    "restarts": {"excuses_unforeseen": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_an_extender_as_it_is_passes(options: dict[str, Any]) -> None:
    broken = UNCHANGED.judged(**options)
    assert broken == ({"not"} if options.get("not_placed") == 0 else set())  # `kills` waits longer than `mixed`


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_breaks_the_bounds_of_every_load(mutant: str, options: dict[str, Any]) -> None:
    recorded = OF_MUTANTS[mutant]
    assert recorded.broken <= recorded.judged(**options)


@pytest.mark.parametrize("pods", [1, 30, 300])
def test_an_empty_run_breaks_the_bounds_whatever_its_size(pods: int) -> None:
    assert Recorded(Fed(pods), 0).judged() == {"admitted", "predictions"}
    assert Recorded(Fed(0), 0).judged() == {"admitted", "predictions"}


def test_pods_that_were_not_placed_are_excused_only_if_every_kubelet_refuses_them() -> None:
    def judged(*reasons: str) -> set[str]:
        findings = Findings("recorded")
        found = Round(Fed(20, 2), Tally(admitted=18))
        found.alone = {"a": {"n": "TopologyAffinityError"}, "b": {f"n{i}": each for i, each in enumerate(reasons)}}
        show_load(findings, found, Counter(agreed=18), not_placed=0.0)
        return {row.what.split(" ")[0] for row in findings.rows if not row.ok}

    assert judged("TopologyAffinityError", "SMTAlignmentError") == set()
    assert judged("TopologyAffinityError", "") == {"not"}


def test_refusals_are_excused_only_where_nobody_could_know() -> None:
    def judged(*bound_after_stop: float) -> set[str]:
        entries, stopped = [], {}
        for number, seconds in enumerate(bound_after_stop):
            pod = simple_pod(str(number), 1)
            pod["metadata"]["uid"] = str(number)
            entries.append(Entry({**pod, "status": {}}, 0.0, ["n"], bound_at=100.0 + seconds))
            stopped[str(number)] = 100.0
        tally = Tally(300, refused=Counter(SMTAlignmentError=len(entries)), refused_first=stopped)
        findings = Findings("recorded")
        show_load(findings, Round(Fed(300), tally, entries), Counter(agreed=300), excuses_unforeseen=True)
        return {row.what.split(" ")[0] for row in findings.rows if not row.ok}

    assert judged(-0.2, 0.9) == set()
    assert judged(-0.2, 1.1) == {"of"}
    assert judged(*[0.5] * 10) == {"refused"}


def test_bind_calls_that_filter_should_have_spared_are_bounded() -> None:
    findings = Findings("recorded")
    show_spared(findings, Counter(bound=290, starting=15), "starting", 0.05)
    assert findings.ok
    show_spared(findings, Counter(bound=3, starting=304), "starting", 0.05)
    assert not findings.ok


def test_a_pod_that_the_extender_did_not_bind_is_found() -> None:
    def judged(**binds: int) -> bool:
        findings = Findings("recorded")
        entries = [Entry({}, 0.0, ["n"], bound_at=1.0) for _ in range(3)]
        show_binds(findings, Counter(binds), Round(Fed(3), Tally(), entries))
        return findings.ok

    assert judged(bound=3, refused=2)
    assert judged(bound=2, unsure=1)
    assert not judged(bound=2, refused=1)


def test_a_load_that_no_kubelet_refuses_without_the_extender_is_no_trial() -> None:
    findings = Findings("recorded")
    show_without(findings, Round(Fed(30), Tally(28, refused=Counter(TopologyAffinityError=2))))
    assert findings.ok
    show_without(findings, Round(Fed(30), Tally(30)))
    assert not findings.ok


def test_predictions_of_other_cpus_are_bounded() -> None:
    assert Recorded(Fed(300), 300, audit={"agreed": 280, "placement": 6}).judged() == set()
    assert Recorded(Fed(300), 300, audit={"agreed": 280, "placement": 7}).judged() == {"predictions"}
    assert Recorded(Fed(300), 300, audit={"agreed": 290, "false_admit": 1}).judged() == {"predictions"}


def test_every_scene_that_feeds_a_load_has_its_bounds() -> None:
    modules = [sys.modules[play.__module__] for play in SCENES.values()]
    beside_echo = inspect.getsource(sys.modules[play_beside_echo.__module__])
    sources = [(each.__name__, inspect.getsource(each)) for each in modules]
    assert [name for name, source in sources if "left out" not in source.lower()] == []
    played = [(name, beside_echo if "return play_beside_echo(" in source else source) for name, source in sources]
    assert [name for name, source in played if "ok=True" in source] == []
    assert [name for name, source in played if "feed(" in source and "show_load(" not in source] == []
    assert [name for name, source in played if "show_load(" not in source and "show_audit(" not in source] == []


CIRCUMSTANCES: Final = {
    "kube-apiserver",
    "kubelets",
    "nodes",
    "nodes, pods",
    "nodes, pods, recipe",
    "nodes, pods, rounds",
    "nodes at the end, pods",
    "nodes, seconds of quiet",
    "pods, rounds",
    "rounds",
    "seconds from creation to binding, their median, p90, longest: ours; echo",
}


def test_only_circumstances_are_shown_without_a_bound() -> None:
    modules = {play.__module__ for play in (*SCENES.values(), play_beside_echo)}
    shown = {text for module in modules for text in shown_by(inspect.getsource(sys.modules[module]))}
    assert shown == CIRCUMSTANCES


def shown_by(source: str) -> list[str]:
    """The first argument of each `findings.show`, as it is written."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [ast.unparse(call.args[0]).strip("'f") for call in calls if ast.unparse(call.func) == "findings.show"]


def test_waits_of_a_fault_are_those_of_the_pods_that_met_it() -> None:
    def entry(created: float, bound: float | None, ended: float | None = None) -> Entry:
        return Entry({"metadata": {"name": f"at-{created}"}}, created, bound_at=bound, ended_at=ended)

    before, during, after = entry(0, 9), entry(9, 11), entry(31, 32)
    never = entry(15, None, 60)
    pods, faults = [before, during, after, never], [(10.0, 10.5, 30.0)]
    assert waits_in(pods, faults, {}, excused=True) == [1.5, 45]
    assert waits_in(pods, faults, {}, excused=False) == [2.0, 45]
    assert waits_in(pods, faults, {"at-9": 10.8, "at-15": 14.0}, excused=True) == [pytest.approx(0.2), 45]
    assert p90([float(each) for each in range(11)]) == 9


def test_a_queue_stalls_while_a_pod_waits_and_nothing_is_bound() -> None:
    def entry(created: float, bound: float | None) -> Entry:
        return Entry({}, created, bound_at=bound)

    assert longest_stall([entry(0, 1), entry(0, 5), entry(3, 6)]) == 4
    assert longest_stall([entry(0, 1), entry(20, 22), entry(0, None)]) == 2
    assert longest_stall([]) == 0


def test_what_containers_were_given_and_refused_reports_are_bounded() -> None:
    said = '{"certainty":"exact","containers":{"c0":{"cpus":"1-2","memory":[]}}}'
    entries = [Entry({"metadata": {"uid": str(i), "annotations": {PLACEMENT: said}}}, 0.0) for i in range(50)]

    def judged(*given: str, refused_reports: Sequence[str] = ()) -> set[str]:
        findings = Findings("recorded")
        told = [Given("default", f"p{i}", str(i), "c0", cpus, "") for i, cpus in enumerate(given)]
        show_given(findings, Round(Fed(50), Tally(), entries, told, refused_reports))
        return {row.what.split(" ")[0].strip(",") for row in findings.rows if not row.ok}

    assert judged(*["1-2"] * 48, *["2-3"] * 2) == set()
    assert judged(*["1-2"] * 47, *["2-3"] * 3) == {"containers"}
    assert judged("1-2", refused_reports=["node-00: publishing failed outcome=refused"]) == {"reports"}
