"""Reads and runs scenarios of Dynamic Resource Allocation (tests/vectors/dra/README.md), and compares the answers."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from extender.conformance.agreement import Difference
from extender.dra.cel import match, selector
from extender.dra.cpu_driver import GROUPS, GroupRequest, PreparedClaims
from extender.dra.errors import CelCompileError, CelError, NotReplayedError
from extender.dra.extended import RequestingContainer, special_claim
from extender.dra.objects import DeviceClass, DraNode, ResourceClaim, ResourceSlice, SliceDevice
from extender.dra.pools import SliceIndex
from extender.dra.replay import ALLOCATED, UNKNOWN, AllocatorAnswer, ClusterDevices, allocate
from extender.dra.requests import AllocatedState
from extender.dra.rules import NAMED_GATES, UnknownAllocatorError, rules_for
from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError, MachineError
from extender.kubelet.machine import CPUFacts, Machine, NUMANodeFacts
from extender.kubelet.sets import format_list, parse_list
from extender.wire.dra import (
    MAX_EXPRESSION,
    MOST,
    claim_from_json,
    class_from_json,
    device_from_json,
    dra_node_from_json,
    slice_from_json,
)
from extender.wire.errors import WireError, shown
from extender.wire.parsing import Json, integer_at, list_at, mapping, object_at, parse_whole, text_at

RECORDED_WITH: Final = "1.36.2"
"""The version of kube-scheduler that made recordings without `version`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraWorld:
    """A cluster and the claims of a pod. `recorded`: answers for all nodes, by the version that gave them."""

    id: str
    version: str
    gates: str | Mapping[str, bool]
    nodes: Sequence[DraNode]
    slices: Sequence[ResourceSlice]
    classes: Mapping[str, DeviceClass]
    claims: Sequence[ResourceClaim]
    allocate: Sequence[ResourceClaim]
    recorded: Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CelCase:
    """An expression and a device. `recorded` empty: the result is not known."""

    expression: str
    driver: str
    device: SliceDevice
    with_lists: bool
    recorded: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendedCase:
    """A pod with extended resources, the classes, and what the node has. `recorded`: the answer, if there is one."""

    id: str
    containers: Sequence[RequestingContainer]
    classes: Sequence[DeviceClass]
    allocatable: Mapping[str, int]
    recorded: Json


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuClaim:
    """One claim of a series. `ends`: the claim that ends before it; -1: none. `recorded`: what it got, if known."""

    ends: int
    requests: Sequence[GroupRequest]
    recorded: tuple[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuSeries:
    """Claims in the order in which dra-driver-cpu prepares them. `reserved`: raw bits. `version`: of the driver."""

    id: str
    machine: Machine
    grouped_by: str
    reserved: int
    version: tuple[int, int]
    claims: Sequence[CpuClaim]


DraScenario: TypeAlias = DraWorld | CelCase | ExtendedCase


def scenario_from_json(value: object) -> DraScenario:
    """A world, or a line with `expression` or `pod`. Raises WireError."""
    line = object_at(value, "")
    if "expression" in line:
        return _cel_case(line)
    return _extended_case(line) if "pod" in line else _world(line)


def _world(line: Json) -> DraWorld:
    gates = line.get("gates") or ""
    is_known = gates in NAMED_GATES if isinstance(gates, str) and gates else isinstance(gates, str | dict)
    if not is_known or not all(isinstance(on, bool) for on in mapping(gates).values()):
        raise WireError("gates", f"a gate with true or false each, or one of {', '.join(NAMED_GATES)} is expected")
    classes = [class_from_json(each, path) for each, path in _listed(line, "deviceClasses")]
    claims = {each.name: each for each in (claim_from_json(*entry) for entry in _listed(line, "resourceClaims"))}
    wanted = [(text_at(each, path), path) for each, path in _listed(line, "allocate")]
    for name, path in wanted:
        if name not in claims or claims[name].allocated is not None:
            raise WireError(path, f"{name!r} is not the name of a claim that is not allocated")
    version = line.get("version")
    recorded = {RECORDED_WITH: line.get("results"), "1.36.3": line.get("results_1.36.3", line.get("results"))}
    if version is not None:
        of_version = line.get(f"results_{version}", line.get("results"))
        recorded = {text_at(version, "version"): of_version}
    return DraWorld(
        id=text_at(line.get("id", ""), "id"),
        version=RECORDED_WITH if version is None else text_at(version, "version"),
        gates=gates if isinstance(gates, str | dict) else "",
        nodes=[dra_node_from_json(*entry) for entry in _listed(line, "nodes")],
        slices=[slice_from_json(*entry) for entry in _listed(line, "resourceSlices")],
        classes={each.name: each for each in classes},
        claims=list(claims.values()),
        allocate=[claims[name] for name, _ in wanted],
        recorded={each: list_at(answers, "results", MOST) for each, answers in recorded.items() if answers is not None},
    )


def _listed(line: Json, key: str) -> list[tuple[object, str]]:
    return [(each, f"{key}[{i}]") for i, each in enumerate(list_at(line.get(key), key, MOST))]


def _cel_case(line: Json) -> CelCase:
    expression = line.get("expression")
    if not isinstance(expression, str) or len(expression) > MAX_EXPRESSION:
        raise WireError("expression", f"a text of at most {MAX_EXPRESSION} characters is expected")
    return CelCase(
        expression=expression,
        driver=text_at(line.get("driver"), "driver"),
        device=device_from_json({**line, "name": "device"}, ""),
        with_lists=line.get("lists") is True,
        recorded=text_at(line.get("result", ""), "result"),
    )


def _extended_case(line: Json) -> ExtendedCase:
    spec = object_at(object_at(line.get("pod"), "pod").get("spec"), "pod.spec")
    containers = []
    for key in ("initContainers", "containers"):
        for i, each in enumerate(list_at(spec.get(key), f"pod.spec.{key}", MOST)):
            path = f"pod.spec.{key}[{i}]"
            container = object_at(each, path)
            ends = key == "initContainers" and container.get("restartPolicy") != "Always"
            requests = _amounts(mapping(container.get("resources")).get("requests"), f"{path}.resources.requests")
            containers.append(RequestingContainer(text_at(container.get("name"), f"{path}.name"), requests, ends))
    status = mapping(object_at(line.get("node"), "node").get("status"))
    return ExtendedCase(
        id=text_at(line.get("id", ""), "id"),
        containers=containers,
        classes=[class_from_json(*entry) for entry in _listed(line, "deviceClasses")],
        allocatable=_amounts(status.get("allocatable"), "node.status.allocatable"),
        recorded={key: line.get(key) for key in ("verdict", "requests", "requestMappings") if "verdict" in line},
    )


def _amounts(value: object, path: str) -> dict[str, int]:
    return {name: parse_whole(amount, f"{path}.{name[:64]}") for name, amount in mapping(value).items()}


def cpu_series_from_json(value: object) -> CpuSeries:
    """A series of claims of dra-driver-cpu. Raises WireError."""
    line = object_at(value, "")
    grouped_by = text_at(line.get("groupBy"), "groupBy")
    if grouped_by not in GROUPS:
        raise WireError("groupBy", f"one of {', '.join(GROUPS)} is expected")
    try:
        reserved = parse_list(text_at(line.get("reserved", ""), "reserved"))
        cpus = [_cpu(*entry) for entry in _listed(line, "cpus")]
        machine = Machine.build(cpus, [NUMANodeFacts(numa, 0) for numa in sorted({each.numa for each in cpus})])
    except MachineError as error:
        raise WireError(error.field, error.reason) from None
    except ValueError as error:
        if isinstance(error, WireError):
            raise
        raise WireError("reserved", str(error)) from None
    claims = [_cpu_claim(*entry, number) for number, entry in enumerate(_listed(line, "claims"))]
    return CpuSeries(
        id=text_at(line.get("id", ""), "id"),
        machine=machine,
        grouped_by=grouped_by,
        reserved=reserved,
        version=_driver_version(text_at(line.get("driver", "0.3"), "driver")),
        claims=claims,
    )


def _driver_version(said: str) -> tuple[int, int]:
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})", said, re.ASCII)
    if found is None:
        raise WireError("driver", f"{shown(said)} is no version of dra-driver-cpu, such as 0.2.0")
    return int(found[1]), int(found[2])


def _cpu(value: object, path: str) -> CPUFacts:
    cpu = object_at(value, path)
    ids = [integer_at(cpu.get(key), f"{path}.{key}") for key in ("cpu", "core", "socket", "numa", "l3")]
    number, core, socket, numa, cache = ids
    return CPUFacts(number, core, socket, numa, cache if cache >= 0 else None)


def _cpu_claim(value: object, path: str, number: int) -> CpuClaim:
    """One claim. Its devices are under `requests`, in recordings under `results`."""
    claim = object_at(value, path)
    key = "requests" if "requests" in claim else "results"
    ends = integer_at(claim.get("ends_claim", -1), f"{path}.ends_claim")
    if not -1 <= ends < number:
        raise WireError(f"{path}.ends_claim", f"{ends} is not the number of an earlier claim, or -1")
    requests = []
    for i, each in enumerate(list_at(claim.get(key), f"{path}.{key}", MOST)):
        below = f"{path}.{key}[{i}]"
        request = object_at(each, below)
        count = integer_at(request.get("count"), f"{below}.count")
        requests.append(GroupRequest(text_at(request.get("device"), f"{below}.device"), count))
    recorded = None
    if "cpus" in claim:
        recorded = str(claim["cpus"]), str(claim.get("error", ""))
    return CpuClaim(ends=ends, requests=requests, recorded=recorded)


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
    prepared = PreparedClaims(
        series.machine, series.grouped_by, series.machine.all_cpus & ~series.reserved, series.version
    )
    answers: list[dict[str, str]] = []
    budget = Budget(_MAX_STEPS)
    for claim in series.claims:
        if claim.ends >= 0:
            prepared.end(claim.ends)
        try:
            given = prepared.prepare(claim.requests, budget)
        except BudgetError as error:
            return {"claims": [*answers, *({"error": f"{UNKNOWN}: {error}"} for _ in series.claims[len(answers) :])]}
        answer = {"cpus": format_list(given.cpus) if given.cpus else ""}
        answers.append({**answer, "error": given.error} if given.error else answer)
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
