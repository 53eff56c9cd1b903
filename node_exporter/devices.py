"""Devices of a node, joined from podresources (current, healthy devices only) and the device manager's checkpoint.

Rules of this file
- podresources decides about health. A device that only the checkpoint contains is published as not healthy, with a
  problem that names both sources, because a pod must not be given a device without a socket or plugin.
- Without podresources the checkpoint's RegisteredDevices count as healthy, and NUMA ids are known only for devices that
  have been allocated.
- Unhealthy devices are in no list, but their NUMA ids count for hints (DEV/topology_hints.go). So a device seen before
  keeps its NUMA ids.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from node_exporter.observation import DeviceNuma, PodResources
from node_exporter.report import JsonObject, Problem, ReportedDevice

SOURCE = "devices"
NO_TOPOLOGY = -1
"""The checkpoint's key for devices without topology (DEV/checkpoint nodeWithoutTopology)."""

MAX_SHOWN = 8

Devices = Mapping[str, tuple[ReportedDevice, ...]]
Remembered = Mapping[str, DeviceNuma]
"""Devices listed as healthy since the kubelet started, by resource."""


def join_devices(
    podresources: PodResources | None, checkpoint: JsonObject | None, remembered: Remembered
) -> tuple[Devices | None, tuple[Problem, ...]]:
    """All devices by resource, sorted by id. None if neither source could be read.

    `remembered`: devices that earlier snapshots listed as healthy since the kubelet started.
    """
    if podresources is None and checkpoint is None:
        return None, ()
    registered, allocated, problems = read_checkpoint(checkpoint)
    live = podresources.devices if podresources else None
    joined: dict[str, tuple[ReportedDevice, ...]] = {}
    for resource in sorted({*registered, *allocated, *(live or {}), *remembered}):
        known = {**remembered.get(resource, {}), **allocated.get(resource, {}), **(live or {}).get(resource, {})}
        healthy = registered.get(resource, frozenset()) if live is None else frozenset(live.get(resource, {}))
        ids = sorted({*known, *registered.get(resource, ())})
        numas = {id_: None if numa is None else tuple(sorted(numa)) for id_, numa in known.items()}
        joined[resource] = tuple(ReportedDevice(id=i, numa=numas.get(i), healthy=i in healthy) for i in ids)
        problems += _disagreements(resource, live, registered, healthy - known.keys())
    return joined, tuple(problems)


def remember(remembered: Remembered, podresources: PodResources | None) -> Remembered:
    """Add the devices that podresources lists now."""
    if podresources is None:
        return remembered
    resources = remembered.keys() | podresources.devices.keys()
    return {name: {**remembered.get(name, {}), **podresources.devices.get(name, {})} for name in resources}


def read_checkpoint(
    checkpoint: JsonObject | None,
) -> tuple[Mapping[str, frozenset[str]], Mapping[str, DeviceNuma], list[Problem]]:
    """The registered (healthy) ids and the NUMA ids of allocated devices, by resource. A problem if it is malformed.

    DeviceIDs is a map from NUMA id to device ids. In the format before 1.20, which kubelets up to 1.30 read, it is a
    list.
    """
    allocated: dict[str, dict[str, frozenset[int] | None]] = {}
    registered: dict[str, frozenset[str]] = {}
    try:
        data: Any = (checkpoint or {}).get("Data") or {}
        for resource, ids in (data.get("RegisteredDevices") or {}).items():
            registered[str(resource)] = frozenset(str(id_) for id_ in ids or ())
        for entry in data.get("PodDeviceEntries") or ():
            known = allocated.setdefault(str(entry["ResourceName"]), {})
            for node, id_ in device_ids(entry["DeviceIDs"]):
                before = known.get(id_) or frozenset()
                known[id_] = before | {node} if node != NO_TOPOLOGY else before or None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        reason = f"not a device manager checkpoint: {type(error).__name__}: {error}"
        problem = Problem(source=SOURCE, path="kubelet_internal_checkpoint", reason=reason[:200], severity="error")
        return registered, allocated, [problem]
    return registered, allocated, []


def device_ids(by_node: Any) -> Iterable[tuple[int, str]]:  # noqa: ANN401 - JSON of another program
    """Pairs of NUMA id (or NO_TOPOLOGY) and device id of one PodDeviceEntries entry. Raises ValueError, TypeError."""
    if isinstance(by_node, Mapping):
        return [(_node_id(node), str(id_)) for node, ids in by_node.items() for id_ in ids]
    return [(NO_TOPOLOGY, str(id_)) for id_ in by_node or ()]


def _node_id(text: str) -> int:
    node = int(text)
    if not NO_TOPOLOGY <= node < 1 << 31:
        raise ValueError(f"not a NUMA id: {text:.40}")
    return node


def _disagreements(
    resource: str,
    live: Mapping[str, DeviceNuma] | None,
    registered: Mapping[str, frozenset[str]],
    unknown: frozenset[str],
) -> list[Problem]:
    if live is None:
        reason = f"podresources did not reply: the NUMA nodes of {_some(unknown)} are unknown"
        return [Problem(source=SOURCE, path=resource, reason=reason)] if unknown else []
    listed = frozenset(live.get(resource, {}))
    problems = []
    if gone := registered.get(resource, frozenset()) - listed:
        reason = f"devices in the checkpoint and not in podresources: {_some(gone)}; counted as not healthy"
        problems.append(Problem(source=SOURCE, path=resource, reason=reason))
    if registered and (new := listed - registered.get(resource, frozenset())):
        reason = f"devices in podresources and not in the checkpoint: {_some(new)}; counted as healthy"
        problems.append(Problem(source=SOURCE, path=resource, reason=reason, severity="info"))
    return problems


def _some(ids: frozenset[str]) -> str:
    """The first few ids, and how many more there are."""
    return ", ".join(sorted(ids)[:MAX_SHOWN]) + (f" and {len(ids) - MAX_SHOWN} more" if len(ids) > MAX_SHOWN else "")
