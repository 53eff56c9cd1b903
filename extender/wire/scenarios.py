"""Scenario files: a machine, a kubelet configuration, devices and a history of pods, one JSON object a line.

`machine`, `kubelet` and `devices` have the same shape in node reports: `machines` converts them for both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Final, Literal

import msgspec

from extender.kubelet.config import KubeletConfig
from extender.kubelet.machine import Machine
from extender.replay.pod import Pod
from extender.wire.errors import WireError
from extender.wire.machines import Devices, check_length, devices_of, kubelet_config_of, machine_of
from extender.wire.parsing import NO_SWITCHES, converted
from extender.wire.pods import pod_from_json
from node_exporter.report import NumaNode, ReportedDevice, ReportedKubeletConfig, ReportedMachine

MAX_STEPS: Final = 100_000

CONFIG_FIELDS: Final = tuple(each.name for each in fields(ReportedKubeletConfig))
"""Fields of KubeletConfiguration that admission depends on, and `reservation`."""
Json = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event of a scenario. `pod` is set for admit; `expect` and `varies` only in vectors."""

    op: Literal["admit", "start", "remove"]
    uid: str
    pod: Pod | None = None
    expect: Json | None = None
    varies: tuple[str, ...] = ()
    state_before: Json | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario. `kubelet_error`: the error with which the kubelet fails to start, in a vector."""

    id: str
    machine: Machine
    config: KubeletConfig
    devices: Devices
    steps: tuple[Step, ...]
    kubelet_error: str | None = None


class _Step(msgspec.Struct):
    op: Literal["admit", "start", "remove"]
    uid: str = ""
    pod: object = None
    expect: dict[str, object] | None = None
    varies: tuple[str, ...] = ()
    state_before: dict[str, object] | None = None


class _Scenario(msgspec.Struct):
    id: str
    kubelet_version: str
    machine: object
    kubelet: object
    steps: list[_Step]
    devices: object = None
    rules: dict[str, bool] | None = None
    kubelet_error: str | None = None


def scenario_from_json(document: object) -> Scenario:
    """Read one scenario. Raises WireError naming the path of the first error."""
    scenario = converted(document, _Scenario, "")
    check_length(scenario.steps, MAX_STEPS, "steps")
    return Scenario(
        id=scenario.id,
        machine=machine_from_json(scenario.machine),
        config=kubelet_config_from_json(scenario.kubelet_version, scenario.kubelet, rules=scenario.rules or {}),
        devices=devices_from_json(scenario.devices or {}),
        steps=tuple(_step(step, f"steps[{i}]") for i, step in enumerate(scenario.steps)),
        kubelet_error=scenario.kubelet_error,
    )


def _step(step: _Step, path: str) -> Step:
    pod = pod_from_json(step.pod, f"{path}.pod") if step.op == "admit" else None
    uid = step.uid if pod is None else pod.uid
    if not uid and pod is None:
        raise WireError(f"{path}.uid", "missing")
    return Step(op=step.op, uid=uid, pod=pod, expect=step.expect, varies=step.varies, state_before=step.state_before)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NumaNode(NumaNode):
    """As in a report; what is left out is nothing."""

    memory: int = 0
    hugepages: Mapping[str, int] = field(default_factory=dict)
    distances: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine(ReportedMachine):
    """As in a report. `num_sockets` -1: as many as there are in `cpus`."""

    numa: Sequence[_NumaNode]
    num_sockets: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Device(ReportedDevice):
    """As in a report; healthy unless it says otherwise."""

    numa: Sequence[int] | None = None
    healthy: bool = True


def machine_from_json(value: object, path: str = "machine") -> Machine:
    """The machine in the `machine` of a report or scenario; raises WireError. A scenario may leave out counts."""
    reported = converted(value, _Machine, path)
    return machine_of(reported, path, counts_sockets=reported.num_sockets == -1)


def kubelet_config_from_json(
    version: str, value: object, path: str = "kubelet", rules: Mapping[str, bool] = NO_SWITCHES
) -> KubeletConfig:
    """The configuration in the `kubelet` of a report or scenario; raises WireError. A null is as if left out."""
    given = {key: each for key, each in value.items() if each is not None} if isinstance(value, dict) else value
    return kubelet_config_of(version, converted(given, ReportedKubeletConfig, path), path, rules)


def devices_from_json(value: object, path: str = "devices") -> Devices:
    """The devices in the `devices` of a report or scenario; raises WireError."""
    return devices_of(converted(value, dict[str, list[_Device]], path), path)
