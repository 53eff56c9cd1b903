"""The machine, the kubelet configuration and the devices of a node, from the declared types of a report.

Scenarios, questions and the linter write the same documents; `scenarios` reads those into the declared types.
"""

import itertools
from collections.abc import Mapping, Sequence, Sized
from typing import Final

from extender.kubelet.config import KubeletConfig, ReservedMemory
from extender.kubelet.errors import MachineError, TooLargeError
from extender.kubelet.machine import MAX_CPUS, MAX_NUMA_NODE_ID, CPUFacts, Machine, NUMANodeFacts
from extender.kubelet.sets import bits_of, parse_list
from extender.kubelet.state import Device
from extender.wire.errors import CapError, WireError, shown
from extender.wire.parsing import NO_SWITCHES, parse_milli, parse_whole
from node_exporter.report import NumaNode, ReportedDevice, ReportedKubeletConfig, ReportedMachine

MAX_DEVICES: Final = 16_384
"""Limit on the devices of a node, of all resources together."""
MAX_DEVICE_KINDS: Final = 2_048
"""Limit on different NUMA sets of the devices of one resource. A machine with 64 NUMA nodes has about that many."""
MAX_PAGE_SIZES: Final = 32
MAX_RESERVED: Final = 4096
MAX_NUMA_ID_IN_DEVICE: Final = 4096
MAX_TEXT: Final = 4096
"""Limit on the characters of a device's id, or of a policy."""
_BINARY_UNITS: Final = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}

Devices = dict[str, dict[str, Device]]


def machine_of(reported: ReportedMachine, path: str = "machine", *, counts_sockets: bool = False) -> Machine:
    """The machine that a report describes. *counts_sockets*: instead of taking their number from the report.

    Raises:
        WireError: CPUs and NUMA nodes that contradict each other, or a value out of range.
    """
    check_length(reported.cpus, MAX_CPUS, f"{path}.cpus")
    check_length(reported.numa, MAX_NUMA_NODE_ID + 1, f"{path}.numa")
    for i, row in enumerate(reported.cpus):
        for j, number in enumerate(row):
            if number is not None:
                _check_range(number, f"{path}.cpus[{i}][{j}]", least=-(2**31))
    try:
        return Machine.build(
            itertools.starmap(CPUFacts, reported.cpus),
            [_numa_node(node, f"{path}.numa[{i}]") for i, node in enumerate(reported.numa)],
            None if counts_sockets else _check_range(reported.num_sockets, f"{path}.num_sockets"),
            num_cpus=reported.num_cpus,
            num_cores=reported.num_cores,
        )
    except MachineError as error:
        kind = CapError if isinstance(error, TooLargeError) else WireError
        raise kind(f"{path}.{error.field}", error.reason) from None


def _numa_node(node: NumaNode, path: str) -> NUMANodeFacts:
    check_length(node.hugepages, MAX_PAGE_SIZES, f"{path}.hugepages")
    return NUMANodeFacts(
        id=_check_range(node.id, f"{path}.id", least=-(2**31)),
        memory_bytes=_check_range(node.memory, f"{path}.memory"),
        hugepages={
            page_size_from_text(size, f"{path}.hugepages"): _check_range(pages, f"{path}.hugepages.{size}")
            for size, pages in node.hugepages.items()
        },
        distances=tuple(_check_range(d, f"{path}.distances[{j}]") for j, d in enumerate(node.distances or ())),
    )


def page_size_from_text(text: str, path: str) -> int:
    """A page size in bytes: `2Mi` -> 2097152. Raises WireError."""
    unit = _BINARY_UNITS.get(text[-2:], 0)
    number = text[:-2]
    if not unit or not (number.isascii() and number.isdigit()) or len(number) > 6 or not int(number):
        raise WireError(path, f"{shown(text)} is not a page size such as 2Mi or 1Gi")
    return int(number) * unit


def kubelet_config_of(
    version: str, reported: ReportedKubeletConfig, path: str = "kubelet", rules: Mapping[str, bool] = NO_SWITCHES
) -> KubeletConfig:
    """The configuration that a report describes. Empty strings mean the kubelet's defaults.

    Raises:
        WireError: a quantity or a list of CPUs that does not parse. Values that a kubelet refuses are checked in
            `startup`.
    """
    for name, text in (
        ("cpuManagerPolicy", reported.cpuManagerPolicy),
        ("memoryManagerPolicy", reported.memoryManagerPolicy),
        ("topologyManagerPolicy", reported.topologyManagerPolicy),
        ("topologyManagerScope", reported.topologyManagerScope),
    ):
        check_length(text, MAX_TEXT, f"{path}.{name}")
    try:
        reserved_bits = parse_list(reported.reservedSystemCPUs)
    except ValueError as error:
        raise WireError(f"{path}.reservedSystemCPUs", str(error)) from None
    reservation = dict(reported.reservation)
    reserved_milli = parse_milli(reservation.pop("cpu", "") or "0", f"{path}.reservation.cpu")
    check_length(reported.reservedMemory, MAX_RESERVED, f"{path}.reservedMemory")
    return KubeletConfig(
        kubelet_version=version,
        cpu_manager_policy=reported.cpuManagerPolicy or "none",
        cpu_manager_policy_options=reported.cpuManagerPolicyOptions,
        memory_manager_policy=reported.memoryManagerPolicy or "None",
        reserved_memory=tuple(
            ReservedMemory(
                numa=_check_range(each.numaNode, f"{path}.reservedMemory[{i}].numaNode"),
                limits_bytes=_bytes_of(each.limits, f"{path}.reservedMemory[{i}].limits"),
            )
            for i, each in enumerate(reported.reservedMemory)
        ),
        topology_manager_policy=reported.topologyManagerPolicy or "none",
        topology_manager_scope=reported.topologyManagerScope or "container",
        topology_manager_policy_options=reported.topologyManagerPolicyOptions,
        reserved_system_cpus=reserved_bits,
        reservation_cpu_milli=reserved_milli,
        reservation_bytes=_bytes_of(reservation, f"{path}.reservation"),
        feature_gates=reported.featureGates,
        rule_overrides=rules,
    )


def _bytes_of(amounts: Mapping[str, str], path: str) -> dict[str, int]:
    return {name: parse_whole(amount, f"{path}.{name}") for name, amount in amounts.items()}


def devices_of(reported: Mapping[str, Sequence[ReportedDevice]], path: str = "devices") -> Devices:
    """Devices by resource and id; `numa` None: the plugin reported no topology. Raises WireError."""
    result: Devices = {}
    total = 0
    for resource, items in reported.items():
        where = f"{path}.{resource}"
        total += len(items)
        if total > MAX_DEVICES:
            raise CapError(where, f"more than {MAX_DEVICES} devices of all resources")
        devices: dict[str, Device] = {}
        for i, each in enumerate(items):
            check_length(each.id, MAX_TEXT, f"{where}[{i}].id")
            if each.id in devices:
                raise WireError(f"{where}[{i}].id", f"device {shown(each.id)} is listed twice")
            devices[each.id] = Device(_device_numa(each.numa, f"{where}[{i}].numa"), each.healthy)
        result[resource] = devices
        kinds = len({device.numa for device in devices.values()})
        if kinds > MAX_DEVICE_KINDS:
            raise CapError(where, f"devices with {kinds} different sets of NUMA nodes, more than {MAX_DEVICE_KINDS}")
    return result


def _device_numa(numas: Sequence[int] | None, path: str) -> int | None:
    if numas is None:
        return None
    check_length(numas, 64, path)
    for i, numa in enumerate(numas):
        if not 0 <= numa <= MAX_NUMA_ID_IN_DEVICE:
            raise WireError(f"{path}[{i}]", f"NUMA id {shown(numa)} is outside 0..{MAX_NUMA_ID_IN_DEVICE}")
    return bits_of(numas)


def _check_range(number: int, path: str, least: int = 0) -> int:
    if not least <= number < 2**63:
        raise WireError(path, f"{shown(number)} is not an integer in range")
    return number


def check_length(value: Sized, most: int, path: str) -> None:
    """Raise CapError if *value* is longer than *most*."""
    if len(value) > most:
        raise CapError(path, f"{len(value)} {'characters' if isinstance(value, str) else 'entries'}, more than {most}")
