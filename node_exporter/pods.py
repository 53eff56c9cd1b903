"""The pods and devices of a node, joined from podresources and the state files.

Rules of this file
- podresources has no UIDs, and the state files have only UIDs. They are joined by the name of a pod's log directory
  (NAMESPACE_NAME_UID, created by the kubelet), checked against the CPUs and devices that each pod holds.
- `counted` is set only if it is certain (pkg/kubelet/kubelet_pods.go filterOutInactivePods). A pod that is not listed
  is not active in any version. A listed pod is certainly active from 1.34 on, where List shows active pods only.
- If an active pod were reported as not counted, its CPUs would seem free. So None is reported in every doubt.
- podresources decides about the health of devices. A device that only the checkpoint contains is published as not
  healthy, with a problem that names both sources: its plugin may be gone.
- Without podresources the checkpoint's RegisteredDevices count as healthy, and NUMA ids are known only for devices that
  have been allocated.
- Unhealthy devices are in no list, but their NUMA ids count for hints (DEV/topology_hints.go). So a device seen before
  keeps its NUMA ids.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from node_exporter.checkpoints import cpu_texts
from node_exporter.cpu_lists import parse_cpu_list
from node_exporter.files import list_names
from node_exporter.observation import DeviceNuma, ListedPod, PodLogs, PodResources
from node_exporter.report import JsonObject, KubeletState, Problem, ReportedDevice, ReportedPod

DEVICES_SOURCE = "devices"
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
        problem = Problem(
            source=DEVICES_SOURCE, path="kubelet_internal_checkpoint", reason=reason[:200], severity="error"
        )
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
        return [Problem(source=DEVICES_SOURCE, path=resource, reason=reason)] if unknown else []
    listed = frozenset(live.get(resource, {}))
    problems = []
    if gone := registered.get(resource, frozenset()) - listed:
        reason = f"devices in the checkpoint and not in podresources: {_some(gone)}; counted as not healthy"
        problems.append(Problem(source=DEVICES_SOURCE, path=resource, reason=reason))
    if registered and (new := listed - registered.get(resource, frozenset())):
        reason = f"devices in podresources and not in the checkpoint: {_some(new)}; counted as healthy"
        problems.append(Problem(source=DEVICES_SOURCE, path=resource, reason=reason, severity="info"))
    return problems


def _some(ids: frozenset[str]) -> str:
    """The first few ids, and how many more there are."""
    return ", ".join(sorted(ids)[:MAX_SHOWN]) + (f" and {len(ids) - MAX_SHOWN} more" if len(ids) > MAX_SHOWN else "")


SOURCE = "pods"
MAX_POD_LOGS = 20_000
"""Limit on pod log directories. A node has some for each of its pods, and those of pods that ended a short time ago."""
FIRST_MINOR_LISTING_ACTIVE_ONLY = 34

Holdings = frozenset[int | tuple[str, str]]
"""What belongs exclusively to one pod: CPU ids, and (resource, device id) pairs."""


def read_pod_logs(log_dir: Path) -> PodLogs | None:
    """The pods that have a log directory. None if the directory cannot be read."""
    found: dict[tuple[str, str], set[str]] = {}
    try:
        names = list_names(log_dir, MAX_POD_LOGS)
    except (OSError, ValueError):
        return None
    for name in names:
        parts = name.split("_")
        if len(parts) == 3:
            found.setdefault((parts[0], parts[1]), set()).add(parts[2])
    return {pod: frozenset(uids) for pod, uids in found.items()}


def join_pods(
    podresources: PodResources | None, state: KubeletState, logs: PodLogs | None, kubelet_version: str | None
) -> tuple[tuple[ReportedPod, ...] | None, tuple[Problem, ...]]:
    """Listed pods with their UIDs, then pods known from state files only. None if podresources did not reply."""
    if podresources is None:
        return None, ()
    holdings = state_holdings(state)
    counted = True if lists_active_pods_only(kubelet_version) else None
    pods = [
        ReportedPod(
            namespace=listed.namespace,
            name=listed.name,
            uid=_uid(listed, logs or {}, holdings),
            counted=counted,
            containers=listed.containers,
        )
        for listed in sorted(podresources.pods, key=lambda pod: (pod.namespace, pod.name))
    ]
    unlisted, problems = _unlisted(pods, logs or {}, holdings)
    return (*pods, *unlisted), problems


def lists_active_pods_only(kubelet_version: str | None) -> bool:
    """Whether podresources List of this version certainly omits finished pods (1.34+; back-ports are unknown)."""
    match = re.match(r"v?1\.(\d+)", kubelet_version or "")
    return match is not None and int(match[1]) >= FIRST_MINOR_LISTING_ACTIVE_ONLY


def state_holdings(state: KubeletState) -> Mapping[str, Holdings]:
    """What each pod UID holds in the state files. Empty for a pod with memory only. Malformed parts are skipped."""
    holdings: dict[str, set[int | tuple[str, str]]] = {}
    cpus = state.cpu_manager_state or {}
    for key in ("entries", "podEntries"):
        for uid, entry in _items(cpus.get(key)):
            held = holdings.setdefault(uid, set())
            for text in cpu_texts({key: {uid: entry}}):
                try:
                    held.update(parse_cpu_list(text))
                except ValueError:
                    continue
    for uid, _ in _items((state.memory_manager_state or {}).get("entries")):
        holdings.setdefault(uid, set())
    data = (state.kubelet_internal_checkpoint or {}).get("Data")
    entries = data.get("PodDeviceEntries") if isinstance(data, Mapping) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and "PodUID" in entry:
            held = holdings.setdefault(str(entry["PodUID"]), set())
            try:
                held.update((str(entry.get("ResourceName")), id_) for _, id_ in device_ids(entry.get("DeviceIDs")))
            except (TypeError, ValueError):
                continue
    return {uid: frozenset(held) for uid, held in holdings.items()}


def _listed_holdings(listed: ListedPod) -> Holdings:
    held: set[int | tuple[str, str]] = set(listed.cpus)
    for container in listed.containers:
        held.update(container.cpus)
        held.update((resource, id_) for resource, ids in container.devices.items() for id_ in ids)
    return frozenset(held)


def _uid(listed: ListedPod, logs: PodLogs, holdings: Mapping[str, Holdings]) -> str | None:
    """The UID of a listed pod, if it is certain: from what it holds, else from the only log directory with its name."""
    held = _listed_holdings(listed)
    owners = [uid for uid, of_uid in holdings.items() if held & of_uid]
    if len(owners) == 1:
        return owners[0]
    candidates = logs.get((listed.namespace, listed.name), frozenset())
    if len(candidates) != 1 or owners:
        return None
    (uid,) = candidates
    is_contradicted = uid in holdings and bool(held or holdings[uid])
    return None if is_contradicted else uid


def _unlisted(
    pods: list[ReportedPod], logs: PodLogs, holdings: Mapping[str, Holdings]
) -> tuple[list[ReportedPod], tuple[Problem, ...]]:
    """Pods in the state files that are not listed.

    A pod is not counted if a log directory names it and no pod of that name is listed.
    """
    names = {uid: pod for pod, uids in logs.items() for uid in uids}
    listed_names = {(pod.namespace, pod.name) for pod in pods}
    listed_uids = {pod.uid for pod in pods}
    unlisted: list[ReportedPod] = []
    problems: list[Problem] = []
    for uid in sorted(holdings.keys() - listed_uids):
        namespace, name = names.get(uid, ("", ""))
        counted = False if name and (namespace, name) not in listed_names else None
        unlisted.append(ReportedPod(namespace=namespace, name=name, uid=uid, counted=counted))
        told = "not counted" if counted is False else "whether it is counted is not known"
        reason = f"in the state files, not in podresources; {told}"
        problems.append(Problem(source=SOURCE, path=uid, reason=reason, severity="info"))
    return unlisted, tuple(problems)


def _items(mapping: object) -> tuple[tuple[str, object], ...]:
    return tuple((str(key), value) for key, value in mapping.items()) if isinstance(mapping, Mapping) else ()
