"""Converts a NodeReport to a NodeResourceTopology v1alpha2. Pure.

Rules of this file
- Programs that read such objects of NFD or RTE can read ours: zones "node-N" sorted by id with capacity, allocatable
  and available of each resource, distances, policies and scope of the Topology Manager, the fingerprint of the pods.
- The fingerprint ("pfp0v001…") is XXH64 over the sorted XXH64 hashes of the pods. Each pod's hash is of its name,
  seeded with the hash of its namespace. Order does not matter, repetition does. UIDs do not count: a pod recreated
  under the same name looks the same. Consumers compare it with their own.
- Attribute names are the kubelet's own option names in lowerCamelCase, sorted, none twice.
- An annotation carries the whole report, compressed. Annotations of an object have 256 KiB in all: what does not fit is
  left out in steps, and `LEFT_OUT` names it. Without the report even our extender has only counts per zone.
- Equal reports give equal objects.
"""

import base64
import gzip
import lzma
from collections.abc import Iterable
from dataclasses import replace

import orjson
import xxhash

from node_exporter.report import Amount, NodeReport, ReportedContainer, ReportedKubeletConfig, Zone

API_VERSION = "topology.node.k8s.io/v1alpha2"
KIND = "NodeResourceTopology"
REPORT = "numa-extender/report"
"""Annotation: the NodeReport's JSON, in gzip or xz, in base64."""
LEFT_OUT = "numa-extender/report-left-out"
"""Annotation: the parts of the report that did not fit: `SPARED`, or "all". Absent: nothing was left out."""
SPARED = "zones,containers,RegisteredDevices"
"""What the replay does not need: amounts per zone, what podresources lists of containers, names stored twice."""
MAX_CARRIED_CHARS = 224 << 10
"""Share of the 256 KiB. The rest is for other annotations, ours and those of other programs."""
GZIP_LEVEL = 9
XZ_PRESET = 1
MAX_NUMA_OPTION = "max-allowable-numa-nodes"
PREFIX = "pfp0v001"
METHOD = "with-exclusive-resources"
"""The pods that count: those with a container that holds CPUs, pinned memory, or a device with NUMA nodes."""

Json = dict[str, object]


def to_nrt(report: NodeReport, *, node_uid: str | None = None, max_carried_chars: int = MAX_CARRIED_CHARS) -> Json:
    """The object of a report. `node_uid` None: no owner, so that the object remains when its node is deleted."""
    metadata: Json = {"name": report.node_name, "annotations": _carried(report, max_carried_chars)}
    if node_uid:
        owner = {"apiVersion": "v1", "kind": "Node", "name": report.node_name, "uid": node_uid}
        metadata["ownerReferences"] = [owner]
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "attributes": [{"name": name, "value": value} for name, value in sorted(_attributes(report).items())],
        "zones": [_zone(zone) for zone in report.zones],
    }


def _carried(report: NodeReport, most: int) -> dict[str, str]:
    """The annotations with as much of the report as fits into `most` characters."""
    for content, pack, left_out in ((report, _gzip, ""), (_spared(report), _xz, SPARED)):
        packed = base64.b64encode(pack(orjson.dumps(content))).decode()
        if len(packed) <= most:
            return {REPORT: packed} | ({LEFT_OUT: left_out} if left_out else {})
    return {LEFT_OUT: "all"}


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, GZIP_LEVEL, mtime=0)


def _xz(content: bytes) -> bytes:
    """Half of gzip's size if ids are repeated at distances above 32 KiB. Uses 9 MiB of memory meanwhile."""
    return lzma.compress(content, preset=XZ_PRESET)


def _spared(report: NodeReport) -> NodeReport:
    """The report without what the replay does not read."""
    pods = None if report.pods is None else tuple(replace(pod, containers=()) for pod in report.pods)
    checkpoint = report.state.kubelet_internal_checkpoint
    data = checkpoint.get("Data") if checkpoint else None
    if checkpoint and isinstance(data, dict):
        checkpoint = {**checkpoint, "Data": {**data, "RegisteredDevices": {}}}
    return replace(report, zones=(), pods=pods, state=replace(report.state, kubelet_internal_checkpoint=checkpoint))


def _attributes(report: NodeReport) -> dict[str, str]:
    attributes = _policies(report.kubelet) if report.kubelet else {}
    pods = exclusive_pods(report)
    if pods is not None:
        attributes["nodeTopologyPodsFingerprint"] = fingerprint(pods)
        attributes["nodeTopologyPodsFingerprintMethod"] = METHOD
    return attributes


def _policies(kubelet: ReportedKubeletConfig) -> dict[str, str]:
    attributes = {
        "topologyManagerPolicy": kubelet.topologyManagerPolicy,
        "topologyManagerScope": kubelet.topologyManagerScope,
        "cpuManagerPolicy": kubelet.cpuManagerPolicy,
        "memoryManagerPolicy": kubelet.memoryManagerPolicy,
    }
    for option, value in kubelet.topologyManagerPolicyOptions.items():
        if option == MAX_NUMA_OPTION:
            attributes["topologyManagerMaxNUMANodes"] = value
        else:
            attributes[f"topologyManagerOption{_camel_case(option)}"] = value
    for option, value in kubelet.cpuManagerPolicyOptions.items():
        attributes[f"cpuManagerPolicyOption{_camel_case(option)}"] = value
    return attributes


def _camel_case(option: str) -> str:
    """For example "PreferClosestNumaNodes" for prefer-closest-numa-nodes."""
    return "".join(word[:1].upper() + word[1:] for word in option.split("-"))


def _zone(zone: Zone) -> Json:
    content: Json = {"name": zone.name, "type": zone.type}
    if zone.costs:
        content["costs"] = [{"name": name, "value": value} for name, value in zone.costs.items()]
    content["resources"] = [_resource(name, amount) for name, amount in zone.resources.items()]
    return content


def _resource(name: str, amount: Amount) -> Json:
    return {
        "name": name,
        "capacity": str(amount.capacity),
        "allocatable": str(amount.allocatable),
        "available": str(amount.free),
    }


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
        if device.numa
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
