"""The required scheduling rules of a pod that kube-scheduler's own filters read and that we can check.

Rules of this file
- Only required rules are read, because preferences refuse no node.
- Parts of label selectors of a wrong type count as missing: the API server has checked what comes from it. A required
  anti-affinity also keeps later pods away.
- Rules of the pod that are not read here are named in `PlacementRules.unread`, never ignored silently.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct

from extender.wire.parsing import Json, converted, objects, parse_milli


class LabelRequirement(Struct, frozen=True, kw_only=True):
    """One `matchExpressions` term, of pods or of nodes. `operator` as in the API: `Gt` and `Lt` have one value."""

    key: str = ""
    operator: str
    values: frozenset[str] = frozenset()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether *labels* meet it. An unknown operator is never met."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        try:
            have, (limit,) = int(value or ""), map(int, self.values)
        except ValueError:
            return False
        return have > limit if self.operator == "Gt" else self.operator == "Lt" and have < limit


def requirements_of(selector: object) -> tuple[LabelRequirement, ...] | None:
    """What a selector requires. Empty: nothing, so it selects every pod. None: there is none, and it selects no pod."""
    if not isinstance(selector, Mapping):
        return None
    equal, terms = selector.get("matchLabels"), selector.get("matchExpressions")
    return (
        *(_required(key, "In", [value]) for key, value in sorted(equal.items() if isinstance(equal, Mapping) else ())),
        *(_required(each.get("key"), each.get("operator"), each.get("values")) for each in objects(terms)),
    )


class AntiAffinity(NamedTuple):
    """One required term of a pod: no other pod that it selects may be where `topology_key` has the same value.

    `namespaces` None: all, or those that labels select, which are not known here; empty: the pod's own namespace.
    """

    topology_key: str
    requirements: tuple[LabelRequirement, ...]
    namespaces: frozenset[str] | None = frozenset()

    def selects(self, own_namespace: str, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether this term of a pod in *own_namespace* keeps a pod with *labels* in *namespace* away."""
        is_meant = self.namespaces is None or namespace in (self.namespaces or (own_namespace,))
        return is_meant and all(requirement.holds(labels) for requirement in self.requirements)


def anti_affinity_of(terms: object) -> Iterator[AntiAffinity]:
    """The required terms of a pod's `podAntiAffinity`, without those that select no pod."""
    for each in objects(terms):
        key, names = each.get("topologyKey"), each.get("namespaces")
        required = requirements_of(each.get("labelSelector"))
        if isinstance(key, str) and required is not None:
            known = frozenset(str(name) for name in names) if isinstance(names, list) else frozenset[str]()
            yield AntiAffinity(key, required, known if each.get("namespaceSelector") is None else None)


def _required(key: object, operator: object, values: object) -> LabelRequirement:
    texts = values if isinstance(values, list) else []
    return LabelRequirement(key=str(key), operator=str(operator), values=frozenset(map(str, texts)))


_MOST: Final = 1000
"""Limit on the entries of one list or map."""
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
LOCAL_VOLUMES: Final = frozenset(
    {"configMap", "secret", "projected", "downwardAPI", "emptyDir", "hostPath", "image", "nfs", "csi"}
)
"""Kinds of volumes that any node can mount, as far as kube-scheduler checks. A claim can be tied to nodes."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
_UNREAD: Final = {"resourceClaims": "resource claims", "schedulingGates": "scheduling gates"}


class NodeRequirement(LabelRequirement, frozen=True):
    """One condition on a label (for `match_fields`, on the node's name)."""

    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: Annotated[frozenset[str], Meta(max_length=_MOST)] = frozenset()


class NodeTerm(msgspec.Struct, frozen=True):
    """Conditions that must all hold. A term without any matches nothing, as in Kubernetes."""

    match_labels: Annotated[list[NodeRequirement], Meta(max_length=_MOST)] = msgspec.field(
        name="matchExpressions", default_factory=list
    )
    match_fields: Annotated[list[NodeRequirement], Meta(max_length=_MOST)] = msgspec.field(
        name="matchFields", default_factory=list
    )

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node with this name and these labels meets it."""
        known = ((self.match_labels, labels), (self.match_fields, {"metadata.name": name}))
        found = [each.holds(texts) for requirements, texts in known for each in requirements]
        return bool(found) and all(found)


class Toleration(msgspec.Struct, frozen=True):
    """An empty `key` with `Exists` tolerates everything. An empty `operator` means `Equal`, an empty `effect` any."""

    key: str = ""
    operator: Literal["", "Equal", "Exists"] = ""
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class _NodeSelector(msgspec.Struct):
    terms: Annotated[list[NodeTerm], Meta(max_length=_MOST)] = msgspec.field(
        name="nodeSelectorTerms", default_factory=list
    )


class _NodeAffinity(msgspec.Struct):
    required: _NodeSelector | None = msgspec.field(name=REQUIRED, default=None)


class _Affinity(msgspec.Struct):
    node: _NodeAffinity = msgspec.field(name="nodeAffinity", default_factory=_NodeAffinity)
    to_pods: object = msgspec.field(name="podAffinity", default=None)
    against_pods: object = msgspec.field(name="podAntiAffinity", default=None)


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""
    node_selector: Annotated[dict[str, str], Meta(max_length=_MOST)] = {}
    affinity: _Affinity = msgspec.field(default_factory=_Affinity)
    tolerations: Annotated[list[Toleration], Meta(max_length=_MOST)] = []
    overhead: Annotated[dict[str, object], Meta(max_length=_MOST)] = {}
    scheduler: str = msgspec.field(name="schedulerName", default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """`node_terms` None: no required node affinity; else one of them must match. `overhead_milli`: `spec.overhead`.

    `unread`: what else restricts the nodes of the pod. `scheduler`: the name of its scheduler. `keeps_away`: the terms
    by which it keeps other pods away.
    """

    node_name: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_terms: Sequence[NodeTerm] | None = None
    tolerations: Sequence[Toleration] = ()
    overhead_milli: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    scheduler: str = DEFAULT_SCHEDULER
    keeps_away: Sequence[AntiAffinity] = ()


def placement_rules_from_json(spec: Json, path: str) -> PlacementRules:
    """The rules of a pod's *spec*, which is at *path*. Raises WireError for a part of the wrong type."""
    given = {key: each for key, each in spec.items() if each is not None}
    given |= {key: _without_nulls(given[key]) for key in ("affinity", "tolerations") if key in given}
    parsed = converted(given, _Spec, path)
    required, against = parsed.affinity.node.required, parsed.affinity.against_pods
    return PlacementRules(
        node_name=parsed.node_name,
        node_selector=parsed.node_selector,
        node_terms=None if required is None else required.terms,
        tolerations=parsed.tolerations,
        overhead_milli={k: parse_milli(v, f"{path}.overhead.{k[:64]}") for k, v in parsed.overhead.items()},
        unread=tuple(_unread(spec, parsed.affinity)),
        scheduler=parsed.scheduler or DEFAULT_SCHEDULER,
        keeps_away=tuple(anti_affinity_of(against.get(REQUIRED))) if isinstance(against, dict) else (),
    )


_DEPTH: Final = 7
"""How deep a null can be: `nodeAffinity.required….nodeSelectorTerms[].matchExpressions[].values` is the deepest."""


def _without_nulls(value: object, depth: int = _DEPTH) -> object:
    """A null counts as missing, as in the API server."""
    if isinstance(value, dict) and depth:
        return {key: _without_nulls(each, depth - 1) for key, each in value.items() if each is not None}
    if isinstance(value, list) and depth:
        return [_without_nulls(each, depth - 1) for each in value]
    return value


def _unread(spec: Json, affinity: _Affinity) -> Iterator[str]:
    yield from (what for key, what in _UNREAD.items() if spec.get(key))
    if any(
        each.get("whenUnsatisfiable") != "ScheduleAnyway" for each in objects(spec.get("topologySpreadConstraints"))
    ):
        yield "topology spread constraints"
    if any(not LOCAL_VOLUMES.issuperset({*volume} - {"name"}) for volume in objects(spec.get("volumes"))):
        yield "volumes"
    if any(isinstance(rules, dict) and rules.get(REQUIRED) for rules in (affinity.to_pods, affinity.against_pods)):
        yield "required affinity to other pods"
    ports = (port for container in objects(spec.get("containers")) for port in objects(container.get("ports")))
    if any(port.get("hostPort") for port in ports):
        yield "host ports"
