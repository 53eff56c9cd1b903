"""Runs scenarios of Dynamic Resource Allocation, and compares the answers with recorded ones."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from extender.conformance.agreement import Difference
from extender.dra.cel import match, selector
from extender.dra.cpu_driver import driver_machine, prepare_claim
from extender.dra.errors import CelCompileError, CelError, NotReplayedError
from extender.dra.extended import special_claim
from extender.dra.pools import SliceIndex
from extender.dra.replay import ALLOCATED, UNKNOWN, AllocatorAnswer, ClusterDevices, allocate
from extender.dra.requests import AllocatedState
from extender.dra.rules import UnknownAllocatorError, rules_for
from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError
from extender.kubelet.sets import format_list
from extender.wire.dra_scenarios import CelCase, CpuSeries, DraScenario, DraWorld, ExtendedCase

COUNTED: Final = ("scenarios", "answers", "possible", "unknown", "differ")
"""What is counted. `possible`: cases with several possible answers. `unknown`: cases without a known answer."""
_MAX_STEPS: Final = 1_000_000

Answer = Mapping[str, Any]


def run(scenario: DraScenario) -> Answer:
    """The answer to one line, in the form of the recordings."""
    match scenario:
        case DraWorld():
            answers = _answers(scenario, scenario.version)
            nodes = zip(scenario.nodes, answers, strict=True)
            return {"id": scenario.id, "results": [_result(node.name, found) for node, found in nodes]}
        case CelCase():
            return {"result": _evaluated(scenario)}
        case ExtendedCase():
            return {"id": scenario.id, **_special(scenario)}


def check(scenario: DraScenario, counts: Counter[str]) -> Sequence[Difference]:
    """Compare the answer to one line with the recording. Adds to *counts* and returns every difference."""
    counts["scenarios"] += 1
    match scenario:
        case DraWorld():
            found = [each for version in scenario.recorded for each in _of_world(scenario, version, counts)]
        case CelCase():
            result = _evaluated(scenario)
            counts["unknown"] += result == UNKNOWN
            differs = scenario.recorded not in ("", result) and result != UNKNOWN
            found = [_difference(scenario.expression, "result", scenario.recorded, result)] if differs else []
        case ExtendedCase():
            answer = _special(scenario)
            expected = {key: each for key, each in scenario.recorded.items() if each is not None}
            found = [_difference(scenario.id, "verdict", expected, answer)] if expected and expected != answer else []
    counts["answers"] += not isinstance(scenario, DraWorld)
    counts["differ"] += len(found)
    return found


def _answers(world: DraWorld, version: str) -> list[list[AllocatorAnswer]]:
    """The possible answers for each node."""
    try:
        rules = rules_for(version, world.gates)
    except UnknownAllocatorError as error:
        return [[AllocatorAnswer(UNKNOWN, reason=str(error))] for _ in world.nodes]
    matches = partial(match, with_lists=rules.lists_in_cel)
    held = AllocatedState(world.claims, rules)
    cluster = ClusterDevices(SliceIndex(world.slices, rules), world.classes, held, matches, rules)
    return [allocate(cluster, node, world.allocate) for node in world.nodes]


def _result(node: str, answers: Sequence[AllocatorAnswer]) -> dict[str, Any]:
    several = {"any": [_answer(each) for each in answers]} if len(answers) > 1 else {}
    return {"node": node, **_answer(answers[0]), **several}


def _answer(answer: AllocatorAnswer) -> dict[str, Any]:
    found: dict[str, Any] = {"verdict": answer.verdict}
    if answer.verdict == ALLOCATED:
        found["allocations"] = answer.allocations
    if answer.reason:
        found["reason"] = answer.reason
    return found


def _of_world(world: DraWorld, version: str, counts: Counter[str]) -> Iterator[Difference]:
    for node, recorded, answers in zip(world.nodes, world.recorded[version], _answers(world, version), strict=True):
        counts["answers"] += 1
        counts["possible"] += len(answers) > 1
        counts["unknown"] += answers[0].verdict == UNKNOWN
        ours = [(each.verdict, list(each.allocations)) for each in answers]
        theirs = [
            (each.get("verdict"), each.get("allocations", [])) for each in (recorded, *recorded.get("others", ()))
        ]
        if answers[0].verdict != UNKNOWN and not all(each in ours for each in theirs):
            yield _difference(world.id, f"{node.name} with {version}", theirs, ours)
        elif len(answers) == 1 and answers[0].steps != (recorded.get("steps") or answers[0].steps):
            yield _difference(world.id, f"steps of {node.name} with {version}", recorded["steps"], answers[0].steps)


def _difference(scenario: str, path: str, recorded: object, replayed: object) -> Difference:
    return Difference(scenario=scenario, step=None, path=path, recorded=recorded, replayed=replayed)


def _evaluated(case: CelCase) -> str:
    try:
        compiled = selector(case.expression, with_lists=case.with_lists)
        holds = compiled.holds(case.driver, case.device, Budget(_MAX_STEPS), with_lists=case.with_lists)
    except CelCompileError:
        return "compile-error"
    except CelError:
        return "error"
    except NotReplayedError:
        return UNKNOWN
    return "true" if holds else "false"


def _special(case: ExtendedCase) -> dict[str, Any]:
    claim = special_claim(case.containers, case.classes, case.allocatable)
    if not claim.requests:
        return {"verdict": claim.verdict}
    exact = [
        {"allocationMode": each.mode, "count": each.number, "deviceClassName": each.class_name}
        for each in claim.requests
    ]
    mappings = [
        {"containerName": each.container, "resourceName": each.resource, "requestName": each.request}
        for each in claim.mappings
    ]
    requests = [{"name": each.name, "exactly": part} for each, part in zip(claim.requests, exact, strict=True)]
    return {"verdict": claim.verdict, "requests": requests, "requestMappings": mappings}


def run_cpus(series: CpuSeries) -> Answer:
    """What each claim of a series gets. After a claim whose CPUs are not known nothing is known.

    Raises:
        UnknownDeviceError: a device is no group of the machine.
    """
    machine = driver_machine(series.machine)
    held: list[int] = []
    answers: list[dict[str, str]] = []
    budget = Budget(_MAX_STEPS)
    for claim in series.claims:
        if claim.ends >= 0:
            held[claim.ends] = 0
        free = machine.all_cpus & ~series.reserved & ~sum(held)
        try:
            prepared = prepare_claim(machine, series.grouped_by, free, claim.requests, budget)
        except BudgetError as error:
            return {"claims": [*answers, *({"error": f"{UNKNOWN}: {error}"} for _ in series.claims[len(answers) :])]}
        held.append(prepared.cpus)
        answer = {"cpus": format_list(prepared.cpus) if prepared.cpus else ""}
        answers.append({**answer, "error": prepared.error} if prepared.error else answer)
    return {"claims": answers}


def check_cpus(series: CpuSeries, counts: Counter[str]) -> Sequence[Difference]:
    """Compare a series with its recording, claim by claim."""
    counts["scenarios"] += 1
    found = []
    for number, (claim, answer) in enumerate(zip(series.claims, run_cpus(series)["claims"], strict=True)):
        ours = answer.get("cpus", ""), answer.get("error", "")
        counts["answers"] += 1
        counts["unknown"] += "cpus" not in answer
        if claim.recorded not in (None, ours) and "cpus" in answer:
            found.append(_difference(series.id, f"claims[{number}]", claim.recorded, ours))
    counts["differ"] += len(found)
    return found
