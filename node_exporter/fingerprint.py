"""The fingerprint of a set of pods that consumers of NodeResourceTopology compare with their own ("pfp0v001…").

XXH64 over the sorted XXH64 hashes of the pods. Each pod's hash is of its name, seeded with the hash of its namespace.
Order does not matter, repetition does. UIDs do not count: a pod recreated under the same name looks the same.
"""

from collections.abc import Iterable

import xxhash

from node_exporter.report import NodeReport, ReportedContainer, ReportedDevice

PREFIX = "pfp0v001"
METHOD = "with-exclusive-resources"
"""The pods that count: those with a container that holds CPUs, pinned memory, or a device with NUMA nodes."""


def fingerprint(pods: Iterable[tuple[str, str]]) -> str:
    """The fingerprint of (namespace, name) pairs."""
    hashes = sorted(_hash(name, seed=_hash(namespace, seed=0)) for namespace, name in pods)
    return PREFIX + xxhash.xxh64_hexdigest(b"".join(value.to_bytes(8, "little") for value in hashes), seed=0)


def exclusive_pods(report: NodeReport) -> list[tuple[str, str]] | None:
    """(namespace, name) of the listed pods that count; None if the pods could not be listed."""
    if report.pods is None:
        return None
    placed = {
        (resource, device.id)
        for resource, devices in (report.devices or {}).items()
        for device in devices
        if _has_numa(device)
    }
    return [
        (pod.namespace, pod.name)
        for pod in report.pods
        if pod.name and pod.counted is not False and any(_is_exclusive(each, placed) for each in pod.containers)
    ]


def _hash(text: str, *, seed: int) -> int:
    return xxhash.xxh64_intdigest(text.encode(), seed=seed)


def _is_exclusive(container: ReportedContainer, placed: set[tuple[str, str]]) -> bool:
    return bool(
        container.cpus
        or any(block.numa for block in container.memory)
        or any((resource, id_) in placed for resource, ids in container.devices.items() for id_ in ids)
    )


def _has_numa(device: ReportedDevice) -> bool:
    return bool(device.numa)
