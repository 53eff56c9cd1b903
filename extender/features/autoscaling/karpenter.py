"""Karpenter: a NodeClaim asks for each node.

Rules of this file
- A NodeClaim is what Karpenter itself would create for the NodePool, with the instance types whose empty node takes the
  pods. It is created once. If Karpenter deletes it, since there is no capacity, the request ends by its time.
- Karpenter checks limits only for NodeClaims of its own. So they are checked here: the sum of what it counts for the
  NodePool, of open requests, and of the new nodes. A limit that cannot be checked counts as reached.
- A node without pods may be deleted seconds after it is ready. So NodeClaims, and by them nodes, have the annotation of
  the guard until the request ends. It ends on both: Karpenter copies annotations to a node when that is registered, and
  never again, and reads those of the node from then on.
- While Karpenter has just created NodeClaims of the NodePool by itself, one waits for these: they may be for the pods.
- NodePools and new NodeClaims are read at most once in a step, however many pods wait.

RBAC: nodepools `get`, `list`; nodeclaims `get`, `list`, `create`, `patch`, `delete`; nodes `patch`.

Sources: Karpenter `karpenter.sh/v1`, August 2026: nodeclaimtemplate.go, registration.go, statenode.go.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from extender.features.autoscaling.autoscaler import Autoscaler, Guard, Wish
from extender.features.autoscaling.documents import Record
from extender.features.autoscaling.objects import PAGE, Objects, listed, unless
from extender.features.autoscaling.pools import HOSTNAME, INSTANCE_TYPE, KARPENTER_POOL, Model, NodePool, Room
from extender.kube.client import JSON, path_of
from extender.kube.errors import ApiError
from extender.kube.objects import Json, ObjectName, items, mapping, name_of, strings, text, texts
from extender.observability.logs import FewWarnings
from extender.wire.errors import WireError
from extender.wire.parsing import parse_milli, unix_seconds
from extender.wire.placement_rules import REQUIRED, LabelRequirement

LOG: Final = logging.getLogger(__name__)
LOG.addFilter(FewWarnings())
API: Final = "/apis/karpenter.sh/v1"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
GUARD: Final = Guard(DO_NOT_DISRUPT, "true")
GROWING_SECONDS: Final = 300
"""How long Karpenter takes to launch a node, or gives up (`LaunchTimeout`)."""
_ZONE: Final = "topology.kubernetes.io/zone"
_CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
_VARIES: Final = frozenset({_ZONE, _CAPACITY_TYPE, "topology.k8s.aws/zone-id", HOSTNAME})
"""Labels in which nodes of one instance type differ."""
_OF_PODS: Final = frozenset(
    {_ZONE, _CAPACITY_TYPE, "topology.kubernetes.io/region", "kubernetes.io/arch", "kubernetes.io/os"}
)
"""Requirements of pods that every NodeClaim may have; besides those that the NodePool itself has."""
_TEMPLATE: Final = ("taints", "startupTaints", "nodeClassRef", "expireAfter", "terminationGracePeriod")
_HASHES: Final = ("karpenter.sh/nodepool-hash", "karpenter.sh/nodepool-hash-version")
_INSTANCE_DOMAINS: Final = ("kubernetes.io", "k8s.io", "k8s.aws", "azure.com")
_INCLUSIVE: Final = {"Gte": ("Gt", -1), "Lte": ("Lt", 1)}


@dataclass
class Karpenter(Autoscaler):
    """See `Autoscaler`. `wall`: Unix seconds."""

    objects: Objects
    wall: Callable[[], float]
    guard: Guard = GUARD

    def limited(self, wish: Wish) -> Mapping[NodePool, Room] | None:
        """The rooms within the limits of the NodePools. A pool that may not grow has no room, with the reason."""
        if (node_pools := self._node_pools) is None:
            return {}
        found = {}
        for pool, room in wish.rooms.items():
            nodes, why = _allowed(node_pools.get(pool.value), pool, wish)
            found[pool] = room._replace(nodes=nodes) if nodes else Room(0, why, 0)
        names = {pool.value for pool, room in found.items() if room.copies}
        created = unix_seconds(mapping(wish.manifest, "metadata").get("creationTimestamp")) or 0
        if names and created > self.wall() - 2 * GROWING_SECONDS:
            own = {name for record in wish.opened for name in _names(record)}
            if any(pool in names and name not in own for name, pool in self._new_claims):
                return None
        return found

    @cached_property
    def _node_pools(self) -> Mapping[str, Json] | None:
        """The NodePools by name; None: they cannot be read."""
        try:
            listed = self.objects.client.request("GET", path_of(API, "nodepools"), query={"limit": str(PAGE)})
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            LOG.warning("no NodeClaims are made: the NodePools cannot be read reason=%r", str(error))
            return None
        return {name_of(each).name: each for each in items(listed, "items")}

    @cached_property
    def _new_claims(self) -> Sequence[tuple[str, str]]:
        """The names of the NodeClaims that were created of late and are no nodes yet, and of their NodePools."""
        found = []
        for claim in listed(self.objects.client, path_of(API, "nodeclaims"), KARPENTER_POOL):
            metadata = mapping(claim, "metadata")
            created = unix_seconds(metadata.get("creationTimestamp")) or 0
            if created > self.wall() - GROWING_SECONDS and "Initialized" not in _true_conditions(claim):
                found.append((name_of(claim).name, strings(metadata, "labels").get(KARPENTER_POOL, "")))
        return found

    def together(self, pools: Sequence[NodePool]) -> Sequence[NodePool]:
        """The instance types of one NodePool: Karpenter takes the cheapest."""
        return [pool for pool in pools if pool.value == pools[0].value]

    def asking(self, record: Record, manifest: Json) -> Sequence[JSON]:
        """The NodeClaims. Raises ApiError: the NodePool is gone."""
        node_pool = self.objects.client.request("GET", path_of(API, "nodepools", name=record.pools[0].value))
        return [claim_of(record, name, node_pool, mapping(manifest, "spec")) for name in _names(record)]

    def ask(self, record: Record, pods: Mapping[ObjectName, Json]) -> None:
        """Create the NodeClaims, once."""
        if record.asked:
            return
        for claim in self.asking(record, next(iter(pods.values()))):
            unless(409, self.objects.client, "POST", path_of(API, "nodeclaims"), claim)

    def withdraw(self, record: Record, pods: Mapping[ObjectName, Json]) -> None:  # noqa: ARG002 - they have no marks
        """Delete the NodeClaims that are no nodes yet, and leave the others to Karpenter."""
        for name in _names(record):
            if (claim := self._claim(name)) is None:
                continue
            path, node = path_of(API, "nodeclaims", name=name), text(mapping(claim, "status"), "nodeName")
            if "Registered" not in _true_conditions(claim):
                version = {"resourceVersion": text(mapping(claim, "metadata"), "resourceVersion")}
                unless(404, self.objects.client, "DELETE", path, {"preconditions": version})
            elif strings(mapping(claim, "metadata"), "annotations").get(DO_NOT_DISRUPT) == "true":
                freed: JSON = {"metadata": {"annotations": {DO_NOT_DISRUPT: None}}}
                unless(404, self.objects.client, "PATCH", path_of("/api/v1", "nodes", name=node), freed)
                unless(404, self.objects.client, "PATCH", path, freed)

    def outcomes(self, records: Sequence[Record]) -> Mapping[tuple[str, str], str]:
        """The last condition that is true of the NodeClaim that is the least far."""
        return {(each.namespace, each.name): min(map(self._step, _names(each)), default=(0, ""))[1] for each in records}

    def _step(self, name: str) -> tuple[int, str]:
        if (claim := self._claim(name)) is None:
            return 0, "NodeClaimGone"
        reached = ["", *(step for step in ("Launched", "Registered", "Initialized") if step in _true_conditions(claim))]
        return len(reached), reached[-1]

    def _claim(self, name: str) -> JSON | None:
        try:
            return self.objects.client.request("GET", path_of(API, "nodeclaims", name=name))
        except ApiError as error:
            if error.status == 404:
                return None
            raise


def claim_of(record: Record, name: str, node_pool: Json, spec: Json) -> JSON:
    """One NodeClaim. *spec*: of the pods."""
    template = mapping(mapping(node_pool, "spec"), "template")
    own, named = mapping(template, "spec"), name_of(node_pool)
    reference = mapping(own, "nodeClassRef")
    types = sorted(pool.instance_type for pool in record.pools)
    rules = [each for each in items(own, "requirements") if each.get("key") != INSTANCE_TYPE]
    keys = {text(each, "key") for each in rules} | _OF_PODS
    rules += [each for each in _rules_of_pods(spec) if text(each, "key") in keys]
    rules.append({"key": INSTANCE_TYPE, "operator": "In", "values": types})
    hashes = strings(mapping(node_pool, "metadata"), "annotations")
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {
            "name": name,
            "labels": {
                **strings(mapping(template, "metadata"), "labels"),
                **_labels_of_users(rules),
                KARPENTER_POOL: named.name,
                f"{text(reference, 'group')}/{text(reference, 'kind').lower()}": text(reference, "name"),
            },
            "annotations": {
                **strings(mapping(template, "metadata"), "annotations"),
                **{key: hashes[key] for key in _HASHES if key in hashes},
                DO_NOT_DISRUPT: "true",
            },
            "ownerReferences": [
                {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": named.name, "uid": named.uid}
            ],
        },
        "spec": {**{key: own[key] for key in _TEMPLATE if own.get(key) is not None}, "requirements": rules},
    }


def _names(record: Record) -> Iterator[str]:
    """The names of the NodeClaims. They have the time of the request: an earlier node for the pod may still exist."""
    return (f"{record.name}-{record.since:x}-{number}" for number in range(record.nodes))


def _rules_of_pods(spec: Json) -> Iterator[JSON]:
    """What a pod requires of node labels. Of several terms, one of which must hold, none is taken."""
    for key, value in strings(spec, "nodeSelector").items():
        yield {"key": key, "operator": "In", "values": [value]}
    terms = items(mapping(mapping(mapping(spec, "affinity"), "nodeAffinity"), REQUIRED), "nodeSelectorTerms")
    if len(terms) == 1:
        yield from map(dict, items(terms[0], "matchExpressions"))


def _labels_of_users(rules: Sequence[Json]) -> dict[str, str]:
    """A value for each label of users that the rules require: a node gets these labels from its NodeClaim."""
    allowed: dict[str, list[str]] = {}
    for rule in rules:
        key, values = text(rule, "key"), texts(rule, "values")
        if rule.get("operator") == "In" and _is_of_users(key):
            allowed[key] = [value for value in allowed.get(key, values) if value in values]
    return {key: values[0] for key, values in allowed.items() if values}


def _is_of_users(key: str) -> bool:
    """Whether a label is none of Kubernetes, of Karpenter or of a cloud, which follow from the instance."""
    domain = key.rpartition("/")[0]
    return not (domain.endswith(_INSTANCE_DOMAINS) or "karpenter" in domain)


def _true_conditions(value: Json) -> set[str]:
    conditions = items(mapping(value, "status"), "conditions")
    return {text(each, "type") for each in conditions if each.get("status") == "True"}


def _allowed(node_pool: Json | None, pool: NodePool, wish: Wish) -> tuple[int, str]:
    """How many nodes of this instance type the NodePool may still get for these pods, and why none."""
    if not (room := wish.rooms[pool]).copies:
        return 0, room.limit
    if node_pool is None:
        return 0, f"there is no NodePool {pool.value}"
    spec, model = mapping(node_pool, "spec"), wish.models[pool][0]
    if not pool.instance_type:
        return 0, f"nodes have no label {INSTANCE_TYPE}"
    if any("persistentVolumeClaim" in each for each in items(mapping(wish.manifest, "spec"), "volumes")):
        return 0, "for pods with PersistentVolumeClaims no NodeClaims are made"
    if spec.get("replicas") is not None:
        return 0, "the number of its nodes is fixed"
    if "deletionTimestamp" in mapping(node_pool, "metadata") or "Ready" not in _true_conditions(node_pool):
        return 0, "the NodePool is not ready"
    labels = {**(model.around.labels or {}), INSTANCE_TYPE: pool.instance_type}
    for rule in items(mapping(mapping(spec, "template"), "spec"), "requirements"):
        is_of_type = text(rule, "key") not in _VARIES and not _is_of_users(text(rule, "key"))
        if is_of_type and not _requirement(rule).holds(labels):
            return 0, f"the NodePool requires another {text(rule, 'key')}"
    waiting = sum(each.nodes for each in wish.opened if (each.pools[0].label, each.pools[0].value) == pool[:2])
    return _within(node_pool, _capacity(model), waiting, room.nodes)


def _within(node_pool: Json, each: Mapping[str, int], waiting: int, most: int) -> tuple[int, str]:
    """How many nodes of capacity *each*, at most *most*, are within the limits, beside those that exist or wait."""
    used = mapping(mapping(node_pool, "status"), "resources")
    for name, limit in mapping(mapping(node_pool, "spec"), "limits").items():
        if not each.get(name):
            return 0, f"the limit of {name} cannot be checked"
        try:
            left = parse_milli(limit, name) - parse_milli(used.get(name, 0), name)
        except WireError as error:
            return 0, f"the limit of {error}"
        if (fits := left // each[name] - waiting) <= 0:
            return 0, f"the limit of {name} is reached"
        most = min(most, fits)
    return most, ""


def _capacity(model: Model) -> Mapping[str, int]:
    """What a new node counts for in limits, in thousandths."""
    empty = model.empty()
    assert empty.kubelet is not None
    machine = empty.kubelet.machine
    return {
        **(empty.around.allocatable_milli or {}),
        "cpu": machine.num_cpus * 1000,
        "memory": sum(node.memory_bytes for node in machine.numa_nodes) * 1000,
        "nodes": 1000,
    }


def _requirement(rule: Json) -> LabelRequirement:
    """The requirement; `Gte` and `Lte` of Karpenter are `Gt` and `Lt` with the next number."""
    operator, values = text(rule, "operator"), texts(rule, "values")
    if operator in _INCLUSIVE and len(values) == 1 and values[0].isdecimal():
        operator, step = _INCLUSIVE[operator]
        values = (str(int(values[0]) + step),)
    return LabelRequirement(key=text(rule, "key"), operator=operator, values=frozenset(values))
