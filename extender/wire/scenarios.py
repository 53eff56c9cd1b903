"""Scenario files: a machine, a kubelet configuration, devices and a history of pods, one JSON object a line.

The parts (`machine_from_json`, `kubelet_config_from_json`, `devices_from_json`) have the same shape in node reports.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from extender.kubelet.config import KubeletConfig, ReservedMemory
from extender.kubelet.machine import CPUFacts, Machine, MachineError, NUMANodeFacts, TooLargeError
from extender.kubelet.sets import parse_list
from extender.kubelet.state import Device
from extender.replay.pod import Pod
from extender.wire.errors import CapError, WireError, shown
from extender.wire.fields import Json, list_at, object_at, optional_object_at
from extender.wire.pods import pod_from_json
from extender.wire.quantity import parse_milli, parse_whole

MAX_DEVICES: Final = 16_384
"""Devices of a node, of all resources together."""
MAX_DEVICE_KINDS: Final = 2_048
"""Limit on different NUMA sets of the devices of one resource. A machine with 64 NUMA nodes has about that many."""
MAX_PAGE_SIZES: Final = 32
MAX_STEPS: Final = 100_000
MAX_NUMA_ID_IN_DEVICE: Final = 4096
_BINARY_UNITS: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}

Devices = dict[str, dict[str, Device]]


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


def scenario_from_json(document: object) -> Scenario:
    """Read one scenario. Raises WireError naming the path of the first error."""
    scenario = object_at(document, "")
    version = _string(scenario.get("kubelet_version"), "kubelet_version")
    config = kubelet_config_from_json(version, scenario.get("kubelet"), "kubelet", rules=scenario.get("rules"))
    error = scenario.get("kubelet_error")
    return Scenario(
        id=_string(scenario.get("id"), "id"),
        machine=machine_from_json(scenario.get("machine"), "machine"),
        config=config,
        devices=devices_from_json(scenario.get("devices") or {}, "devices"),
        steps=tuple(_steps(scenario.get("steps"))),
        kubelet_error=None if error is None else _string(error, "kubelet_error"),
    )


def _steps(value: object) -> Iterator[Step]:
    for i, item in enumerate(_array(value, "steps", MAX_STEPS)):
        path = f"steps[{i}]"
        step = object_at(item, path)
        op = step.get("op")
        if op == "admit":
            pod = pod_from_json(step.get("pod"), f"{path}.pod")
            expect = step.get("expect")
            before = step.get("state_before")
            yield Step(
                op="admit",
                uid=pod.uid,
                pod=pod,
                expect=None if expect is None else object_at(expect, f"{path}.expect"),
                varies=tuple(str(v) for v in list_at(step.get("varies"), f"{path}.varies", MAX_STEPS)),
                state_before=None if before is None else object_at(before, f"{path}.state_before"),
            )
        elif op in ("start", "remove"):
            yield Step(op="start" if op == "start" else "remove", uid=_string(step.get("uid"), f"{path}.uid"))
        else:
            raise WireError(f"{path}.op", f"{shown(op)} is none of admit, start, remove")


def machine_from_json(value: object, path: str = "machine") -> Machine:
    """A machine: `cpus` as [cpu, core_id, socket, numa, uncore_cache], `numa`, and the kubelet's own counts.

    The counts `num_sockets`, `num_cpus` and `num_cores` are optional; without one the rows are counted.

    Raises:
        WireError: a wrong type, or CPUs and NUMA nodes that contradict each other.
    """
    machine = object_at(value, path)
    cpus = []
    for i, item in enumerate(_array(machine.get("cpus"), f"{path}.cpus", 8192)):
        row = _array(item, f"{path}.cpus[{i}]", 8192)
        if len(row) != 5:
            raise WireError(f"{path}.cpus[{i}]", "five entries are expected: cpu, core_id, socket, numa, uncore_cache")
        cpu, core, socket, numa = (_integer(v, f"{path}.cpus[{i}][{j}]", signed=True) for j, v in enumerate(row[:4]))
        uncore = None if row[4] is None else _integer(row[4], f"{path}.cpus[{i}][4]", signed=True)
        cpus.append(CPUFacts(cpu, core, socket, numa, uncore))
    nodes = [
        _numa_node(object_at(item, f"{path}.numa[{i}]"), f"{path}.numa[{i}]")
        for i, item in enumerate(_array(machine.get("numa"), f"{path}.numa", 4096))
    ]
    sockets, num_cpus, num_cores = (
        None if machine.get(name) is None else _integer(machine[name], f"{path}.{name}")
        for name in ("num_sockets", "num_cpus", "num_cores")
    )
    try:
        return Machine.build(cpus, nodes, sockets, num_cpus=num_cpus, num_cores=num_cores)
    except MachineError as error:
        kind = CapError if isinstance(error, TooLargeError) else WireError
        raise kind(f"{path}.{error.field}", error.reason) from None


def _numa_node(node: Json, path: str) -> NUMANodeFacts:
    hugepages = optional_object_at(node.get("hugepages"), f"{path}.hugepages")
    if len(hugepages) > MAX_PAGE_SIZES:
        raise CapError(f"{path}.hugepages", f"{len(hugepages)} page sizes, more than {MAX_PAGE_SIZES}")
    distances = list_at(node.get("distances"), f"{path}.distances", 4096)
    return NUMANodeFacts(
        id=_integer(node.get("id"), f"{path}.id", signed=True),
        memory_bytes=_integer(node.get("memory") or 0, f"{path}.memory"),
        hugepages={
            page_size_from_text(size, f"{path}.hugepages"): _integer(pages, f"{path}.hugepages.{size}")
            for size, pages in hugepages.items()
        },
        distances=tuple(_integer(d, f"{path}.distances[{j}]") for j, d in enumerate(distances)),
    )


def page_size_from_text(text: str, path: str) -> int:
    """A page size in bytes: `2Mi` -> 2097152. Raises WireError."""
    unit = _BINARY_UNITS.get(text[-2:], 0)
    number = text[:-2]
    if not unit or not (number.isascii() and number.isdigit()) or len(number) > 6 or not int(number):
        raise WireError(path, f"{shown(text)} is not a page size such as 2Mi or 1Gi")
    return int(number) * unit


def kubelet_config_from_json(version: str, value: object, path: str = "kubelet", rules: object = None) -> KubeletConfig:
    """A kubelet configuration with KubeletConfiguration's field names. Empty strings mean the kubelet's defaults.

    Raises:
        WireError: a wrong type or a quantity that does not parse. Values that a kubelet refuses are checked in
            `startup`.
    """
    kubelet = object_at(value, path)
    reservation = optional_object_at(kubelet.get("reservation"), f"{path}.reservation")
    reserved_cpus = _string(kubelet.get("reservedSystemCPUs") or "", f"{path}.reservedSystemCPUs")
    try:
        reserved_bits = parse_list(reserved_cpus)
    except ValueError as error:
        raise WireError(f"{path}.reservedSystemCPUs", str(error)) from None
    return KubeletConfig(
        kubelet_version=version,
        cpu_manager_policy=_string(kubelet.get("cpuManagerPolicy") or "none", f"{path}.cpuManagerPolicy"),
        cpu_manager_policy_options=_texts(kubelet, "cpuManagerPolicyOptions", path),
        memory_manager_policy=_string(kubelet.get("memoryManagerPolicy") or "None", f"{path}.memoryManagerPolicy"),
        reserved_memory=tuple(_reserved_memory(kubelet.get("reservedMemory"), f"{path}.reservedMemory")),
        topology_manager_policy=_string(
            kubelet.get("topologyManagerPolicy") or "none", f"{path}.topologyManagerPolicy"
        ),
        topology_manager_scope=_string(
            kubelet.get("topologyManagerScope") or "container", f"{path}.topologyManagerScope"
        ),
        topology_manager_policy_options=_texts(kubelet, "topologyManagerPolicyOptions", path),
        reserved_system_cpus=reserved_bits,
        reservation_cpu_milli=parse_milli(reservation.get("cpu") or "0", f"{path}.reservation.cpu"),
        reservation_bytes={
            name: parse_whole(amount, f"{path}.reservation.{name}")
            for name, amount in reservation.items()
            if name != "cpu"
        },
        feature_gates=_booleans(kubelet.get("featureGates"), f"{path}.featureGates"),
        rule_overrides=_booleans(rules, "rules"),
    )


def _reserved_memory(value: object, path: str) -> Iterator[ReservedMemory]:
    for i, item in enumerate(list_at(value, path, 4096)):
        entry = object_at(item, f"{path}[{i}]")
        limits = object_at(entry.get("limits"), f"{path}[{i}].limits")
        yield ReservedMemory(
            numa=_integer(entry.get("numaNode"), f"{path}[{i}].numaNode"),
            limits_bytes={k: parse_whole(v, f"{path}[{i}].limits.{k}") for k, v in limits.items()},
        )


def devices_from_json(value: object, path: str = "devices") -> Devices:
    """Devices by resource and id; `numa` null: the plugin reported no topology. Raises WireError."""
    result: Devices = {}
    total = 0
    for resource, items in object_at(value, path).items():
        where = f"{path}.{resource}"
        devices: dict[str, Device] = {}
        for i, item in enumerate(_array(items, where, MAX_DEVICES)):
            device = object_at(item, f"{where}[{i}]")
            device_id = _string(device.get("id"), f"{where}[{i}].id")
            if device_id in devices:
                raise WireError(f"{where}[{i}].id", f"device {shown(device_id)} is listed twice")
            healthy = device.get("healthy", True)
            if not isinstance(healthy, bool):
                raise WireError(f"{where}[{i}].healthy", f"{shown(healthy)} is not true or false")
            devices[device_id] = Device(_device_numa(device.get("numa"), f"{where}[{i}].numa"), healthy)
        result[resource] = devices
        total += len(devices)
        if total > MAX_DEVICES:
            raise CapError(where, f"more than {MAX_DEVICES} devices of all resources")
        kinds = len({device.numa for device in devices.values()})
        if kinds > MAX_DEVICE_KINDS:
            raise CapError(where, f"devices with {kinds} different sets of NUMA nodes, more than {MAX_DEVICE_KINDS}")
    return result


def _device_numa(value: object, path: str) -> int | None:
    if value is None:
        return None
    bits = 0
    for i, item in enumerate(_array(value, path, 64)):
        numa = _integer(item, f"{path}[{i}]")
        if numa > MAX_NUMA_ID_IN_DEVICE:
            raise WireError(f"{path}[{i}]", f"NUMA id {numa} is above {MAX_NUMA_ID_IN_DEVICE}")
        bits |= 1 << numa
    return bits


def _array(value: object, path: str, most: int) -> list[object]:
    if value is None:
        raise WireError(path, "missing")
    return list_at(value, path, most)


def _string(value: object, path: str) -> str:
    if isinstance(value, str) and len(value) <= 4096:
        return value
    raise WireError(path, "missing" if value is None else f"{shown(value)} is not a text of at most 4096 characters")


def _integer(value: object, path: str, *, signed: bool = False) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and (-(2**31) if signed else 0) <= value < 2**63:
        return value
    raise WireError(path, "missing" if value is None else f"{shown(value)} is not an integer in range")


def _texts(kubelet: Json, key: str, path: str) -> dict[str, str]:
    values = optional_object_at(kubelet.get(key), f"{path}.{key}")
    return {k: _string(v, f"{path}.{key}.{k}") for k, v in values.items()}


def _booleans(value: object, path: str) -> dict[str, bool]:
    result = {}
    for k, v in optional_object_at(value, path).items():
        if not isinstance(v, bool):
            raise WireError(f"{path}.{k}", f"{shown(v)} is not true or false")
        result[k] = v
    return result
