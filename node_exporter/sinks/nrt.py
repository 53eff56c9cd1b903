"""Publishes a report as one NodeResourceTopology v1alpha2 object through the API server, by server-side apply.

Rules of this file
- The object is written when the report has changed, and otherwise every `refresh_seconds`, so that readers can tell a
  silent node from an unchanged one. It is read only once, at startup.
- No other program may write the object. If another field manager has written zones or attributes, nothing is written,
  and the reply names the manager. Two publishers in one object would show a node that never existed.
- The Node owns the object, so that both are deleted together. The Node's UID is in our own token (Kubernetes 1.30 and
  later). Otherwise the Node is read; without permission to read it the object has no owner.
- Programs that read such objects of NFD or RTE can read ours: zones "node-N" sorted by id with capacity, allocatable
  and available of each resource, distances, policies and scope of the Topology Manager, the fingerprint of the pods.
- The fingerprint ("pfp0v001…") is XXH64 over the sorted XXH64 hashes of the pods. Each pod's hash is of its name,
  seeded with the hash of its namespace. Order does not matter, repetition does. UIDs do not count: a pod recreated
  under the same name looks the same. Consumers compare it with their own.
- Attribute names are the kubelet's own option names in lowerCamelCase, sorted, none twice. Equal reports give equal
  objects.
- An annotation carries the whole report, compressed. Annotations of an object have 256 KiB in all: what does not fit is
  left out in steps, and `LEFT_OUT` names it. Without the report even our extender has only counts per zone.

RBAC: `get`, `create`, `patch` on noderesourcetopologies (topology.node.k8s.io); `get` on nodes only before 1.30. RBAC
cannot say "only of your own node"; an admission policy that compares name and token can.
"""

import base64
import gzip
import logging
import lzma
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import xxhash

from node_exporter.bounded_http import Connection, HTTPReply
from node_exporter.files import mapping, objects, parse_json, read_token
from node_exporter.report import Amount, NodeReport, ReportedContainer, ReportedKubeletConfig, Zone
from node_exporter.sinks import Delivery, Reply
from node_exporter.sinks.http import no_answer, refused

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
XZ_PRESET = 1
"""xz has half of gzip's size if ids are repeated at distances above 32 KiB. It uses 9 MiB of memory meanwhile."""
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
    small = partial(lzma.compress, preset=XZ_PRESET)
    for content, pack, left_out in ((report, partial(gzip.compress, mtime=0), ""), (_spared(report), small, SPARED)):
        packed = base64.b64encode(pack(orjson.dumps(content))).decode()
        if len(packed) <= most:
            return {REPORT: packed} | ({LEFT_OUT: left_out} if left_out else {})
    return {LEFT_OUT: "all"}


def _spared(report: NodeReport) -> NodeReport:
    """A shorter report: only what the replay reads."""
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


LOG = logging.getLogger(__name__)

FIELD_MANAGER = "numa-node-exporter"
CONFIRMED_AT = "numa-extender/confirmed-at"
"""Annotation: when the exporter last confirmed this state, by the node's clock."""
REFRESH_SECONDS = "numa-extender/refresh-seconds"
"""Annotation: how long after `CONFIRMED_AT` the next confirmation is due, with or without changes."""
MAX_ANSWER_BYTES = 2 << 20
METADATA_ONLY = {"accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"}
CONTENT = frozenset({"f:zones", "f:attributes", "f:topologyPolicies"})


@dataclass(slots=True)
class _Written:
    """The object as last accepted, and when, by the monotonic clock."""

    content: dict[str, Any]
    at: float = field(default_factory=time.monotonic)


class NrtSink:
    """The object of one node, written again every *refresh_seconds*. Not thread-safe."""

    def __init__(self, api_server: Connection, node_name: str, *, refresh_seconds: float = 600.0) -> None:
        self._connection = api_server
        self._refresh_seconds = refresh_seconds
        self._node_name = node_name
        self._path = f"/apis/{API_VERSION}/noderesourcetopologies/{quote(node_name, safe='')}"
        self._node_uid: str | None = None
        self._is_ours = False
        self._written: _Written | None = None

    def put_report(self, report: NodeReport, body: bytes) -> Reply:
        """Write the object of the report."""
        del body
        try:
            if self._node_uid is None:
                self._node_uid = self._find_node_uid()
            content = to_nrt(report, node_uid=self._node_uid or None)
        except (OSError, ValueError) as error:
            return no_answer(error)
        self._warn_of_loss(content)
        return self._write(content)

    def post_heartbeat(self, body: bytes) -> Reply:
        """Write the object again if it is due. Otherwise do nothing."""
        del body
        if self._written is None:
            return Reply(outcome=Delivery.WANTS_REPORT)
        if time.monotonic() - self._written.at < self._refresh_seconds:
            return Reply(outcome=Delivery.ACCEPTED)
        return self._write(self._written.content)

    def close(self) -> None:
        """Close idle connections; the sink can be used again."""
        self._connection.close()

    def _write(self, content: dict[str, Any]) -> Reply:
        metadata = content["metadata"]
        signed = {
            CONFIRMED_AT: datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            REFRESH_SECONDS: f"{self._refresh_seconds:.0f}",
        }
        body = orjson.dumps({
            **content,
            "metadata": {**metadata, "annotations": metadata["annotations"] | signed},
        })  # fmt: skip
        try:
            reply = self._own() or self._apply(body)
        except (OSError, ValueError) as error:
            return no_answer(error)
        if reply.outcome is Delivery.ACCEPTED:
            self._written = _Written(content)
        return reply

    def _own(self) -> Reply | None:
        """None if the object is ours or does not exist. Checked once."""
        if self._is_ours:
            return None
        answer = self._connection.send("GET", self._path, headers=METADATA_ONLY)
        if answer.status != 404 and not answer.is_success:
            return _refused(answer)
        strangers = _strangers(answer) if answer.is_success else set()
        if strangers:
            return _belongs_to(strangers)
        self._is_ours = True
        return None

    def _apply(self, body: bytes) -> Reply:
        answer = self._connection.send(
            "PATCH",
            f"{self._path}?fieldManager={FIELD_MANAGER}&force=false",
            content=body,
            headers={"content-type": "application/apply-patch+yaml", **METADATA_ONLY},
        )
        if not answer.is_success:
            self._is_ours = self._is_ours and answer.status != 409
            return _refused(answer)
        if strangers := _strangers(answer):
            self._is_ours = False
            return _belongs_to(strangers)
        return Reply(outcome=Delivery.ACCEPTED, sent_bytes=len(body))

    def _find_node_uid(self) -> str:
        """The UID of our Node. Empty if we have no permission to read it."""
        if uid := _uid_in_token(self._connection.credentials.token_file, self._node_name):
            return uid
        answer = self._connection.send("GET", f"/api/v1/nodes/{quote(self._node_name, safe='')}", headers=METADATA_ONLY)
        if answer.status in (401, 403, 404):
            LOG.warning("the object will have no owner: node not readable status=%d", answer.status)
            return ""
        if not answer.is_success:
            raise ValueError(f"reading the Node: {_refused(answer).detail}")
        found = mapping(mapping(parse_json(answer.content)).get("metadata")).get("uid")
        return found if isinstance(found, str) else ""

    def _warn_of_loss(self, content: dict[str, Any]) -> None:
        annotations = content["metadata"]["annotations"]
        if REPORT not in annotations:
            LOG.warning("the report is too large for the object: readers know only counts by NUMA node")
        elif LEFT_OUT in annotations:
            LOG.info("parts of the report do not fit into the object left_out=%s", annotations[LEFT_OUT])


def _refused(answer: HTTPReply) -> Reply:
    if answer.status == 404:
        detail = "404: the API server does not know NodeResourceTopology v1alpha2; is its CRD installed?"
        return Reply(outcome=Delivery.UNAVAILABLE, detail=detail)
    return refused(answer)


def _belongs_to(strangers: set[str]) -> Reply:
    names = ", ".join(sorted(strangers))
    return Reply(
        outcome=Delivery.REFUSED, detail=f"the node's object is also written by {names}; it must have one writer"
    )


def _strangers(answer: HTTPReply) -> set[str]:
    """Other field managers that have written the fields that readers use."""
    metadata = mapping(mapping(parse_json(answer.content)).get("metadata"))
    return {
        str(entry.get("manager"))
        for entry in objects(metadata.get("managedFields"))
        if isinstance(entry, dict) and entry.get("manager") != FIELD_MANAGER and _has_content(entry)
    }


def _has_content(entry: Mapping[str, Any]) -> bool:
    """Whether a managedFields entry names more than metadata. True as well for an entry that names nothing."""
    fields = entry.get("fieldsV1")
    return not isinstance(fields, dict) or bool(CONTENT & fields.keys())


def _uid_in_token(path: Path | None, node_name: str) -> str:
    """The Node's UID in our service-account token. Empty if it has none, or names another node."""
    try:
        payload = read_token(path).split(".")[1] if path else ""
        claims = parse_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (OSError, ValueError, IndexError):
        return ""
    node = mapping(mapping(mapping(claims).get("kubernetes.io")).get("node"))
    return str(node.get("uid") or "") if node.get("name") == node_name else ""
