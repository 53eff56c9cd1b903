"""The record of a request for nodes, in a PodTemplate, which Cluster Autoscaler reads as well.

Autoscalers know totals only. By totals, the pod fits on the nodes that refused it, and more pods fit on a new node than
its NUMA nodes allow. So the template differs from the pod in three ways: it excludes the nodes that refused the pod, it
names the pools whose empty node takes it, and one template pod stands for one new node.

Rules of this file
- The PodTemplate is the record. It is created first and deleted last, and an annotation of it has all that the
  controller knows (`Record`). So a process that takes over continues where the one before it ended.
- Names follow from the first pod: what is created twice is one object. Pods of one owner can have several requests.
- It belongs to the pods (`ownerReferences`). If all pods are deleted, the API server deletes it.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import orjson

from extender.features.autoscaling.pools import HOSTNAME, NodePool
from extender.kube.client import JSON
from extender.kube.objects import Json, ObjectName, items, mapping, strings
from extender.wire.placement_rules import REQUIRED

LABEL: Final = "numa-extender.io/scale-up"
RECORD: Final = "numa-extender.io/record"
MAX_EXCLUDED: Final = 5_000
"""How many nodes a template excludes: a name takes 30 bytes, and an object may have 1.5 MB."""
_CONTAINER: Final = ("name", "image", "resources", "ports", "restartPolicy")
_SPEC: Final = (
    "nodeSelector",
    "tolerations",
    "priorityClassName",
    "topologySpreadConstraints",
    "runtimeClassName",
    "overhead",
    "schedulerName",
    "resources",
)
"""What scheduling reads of a pod, beside containers, affinity and volumes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What is known of one request. `since`: Unix seconds of its creation. `nodes`: how many it asks for.

    `refused_on`: the nodes that refused the pods. `asked`: the autoscaler has all that asks for the nodes.
    `ended`: why nothing is asked for any more; "" while it is. `guarded`: UIDs of pods that the controller guards.
    """

    namespace: str
    name: str
    pods: tuple[ObjectName, ...]
    pools: tuple[NodePool, ...]
    nodes: int
    refused_on: tuple[str, ...]
    since: int
    asked: bool = False
    ended: str = ""
    guarded: tuple[str, ...] = ()


_RECORD: Final = msgspec.json.Decoder(Record)


def record_of(template: Json) -> Record:
    """The record in a PodTemplate. Raises msgspec.MsgspecError: the annotation is missing or cannot be read."""
    return _RECORD.decode(strings(mapping(template, "metadata"), "annotations").get(RECORD, ""))


def annotated(record: Record) -> JSON:
    """The merge patch that writes the record to its PodTemplate."""
    return {"metadata": {"annotations": {RECORD: msgspec.json.encode(record).decode()}}}


def shape_of(manifest: Json) -> bytes:
    """Equal for v1.Pods that scheduling reads as equal."""
    return orjson.dumps(_spec(manifest), option=orjson.OPT_SORT_KEYS)


def name_for(first: ObjectName) -> str:
    """The name of the objects of a request whose first pod this is."""
    return f"numa-extender-{hashlib.sha256(first.uid.encode()).hexdigest()[:16]}"


def template_of(record: Record, manifest: Json, excluded: Sequence[str]) -> JSON:
    """The PodTemplate. *manifest*: one of the v1.Pods. *excluded*: host names of the nodes that refused it."""
    spec = _spec(manifest)
    spec["affinity"] = {**mapping(spec, "affinity"), "nodeAffinity": _node_affinity(spec, record, excluded)}
    if record.nodes > 1:
        term = {"labelSelector": {"matchLabels": {LABEL: record.name}}, "topologyKey": HOSTNAME}
        own = mapping(spec["affinity"], "podAntiAffinity")
        spec["affinity"]["podAntiAffinity"] = {**own, REQUIRED: [*items(own, REQUIRED), term]}
    labels = {**strings(mapping(manifest, "metadata"), "labels"), LABEL: record.name}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {**metadata_of(record), **annotated(record)["metadata"]},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }


def metadata_of(record: Record) -> JSON:
    """The metadata of an object of this request that belongs to its pods."""
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid} for pod in record.pods]
    labels = {"app.kubernetes.io/managed-by": "numa-extender", LABEL: record.name}
    return {"name": record.name, "namespace": record.namespace, "labels": labels, "ownerReferences": owners}


def _spec(manifest: Json) -> JSON:
    """What scheduling reads of the pod's spec."""
    spec = mapping(manifest, "spec")
    found: JSON = {key: spec[key] for key in (*_SPEC, "affinity") if spec.get(key) is not None}
    for key in ("initContainers", "containers"):
        if containers := items(spec, key):
            found[key] = [{each: c[each] for each in _CONTAINER if c.get(each) is not None} for c in containers]
    if volumes := [each for each in items(spec, "volumes") if "persistentVolumeClaim" in each]:
        found["volumes"] = volumes
    return found


def _node_affinity(spec: Json, record: Record, excluded: Sequence[str]) -> JSON:
    """The pod's own rules, and besides: one of the pools, and none of the excluded nodes."""
    own = mapping(mapping(spec, "affinity"), "nodeAffinity")
    terms = items(mapping(own, REQUIRED), "nodeSelectorTerms") or [{}]
    more = list(_pool_rules(record.pools))
    if excluded:
        rule = {"key": HOSTNAME, "operator": "NotIn", "values": list(excluded[:MAX_EXCLUDED])}
        more = [[*each, rule] for each in more]
    both = [
        {**term, "matchExpressions": [*items(term, "matchExpressions"), *rules]} for term in terms for rules in more
    ]
    return {**own, REQUIRED: {"nodeSelectorTerms": both}}


def _pool_rules(pools: Sequence[NodePool]) -> Iterator[list[JSON]]:
    """The rules of one term for each label of pools."""
    for label in sorted({pool.label for pool in pools}):
        values = sorted({pool.value for pool in pools if pool.label == label})
        yield [{"key": label, "operator": "In", "values": values}]
