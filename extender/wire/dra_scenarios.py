"""Scenario lines of DRA recordings, see tests/vectors/dra/README.md: worlds, expressions, pods and claims of CPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from extender.dra.cpu_driver import GROUPS, GroupRequest
from extender.dra.extended import RequestingContainer
from extender.dra.objects import DeviceClass, DraNode, ResourceClaim, ResourceSlice, SliceDevice
from extender.dra.rules import NAMED_GATES
from extender.kubelet.errors import MachineError
from extender.kubelet.machine import CPUFacts, Machine, NUMANodeFacts
from extender.kubelet.sets import parse_list
from extender.wire.dra import (
    MAX_EXPRESSION,
    MOST,
    claim_from_json,
    class_from_json,
    device_from_json,
    dra_node_from_json,
    slice_from_json,
)
from extender.wire.errors import WireError
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
    """Claims in the order in which dra-driver-cpu prepares them. `reserved`: raw bits."""

    id: str
    machine: Machine
    grouped_by: str
    reserved: int
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
        id=text_at(line.get("id", ""), "id"), machine=machine, grouped_by=grouped_by, reserved=reserved, claims=claims
    )


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
