"""The required scheduling rules of a pod that kube-scheduler's own filters read and that we can check.

Laws
- Only required rules are read, because preferences refuse no node.
- Rules of the pod that are not read here are named in `PlacementRules.unread`, never ignored silently.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from extender.wire.errors import WireError, shown
from extender.wire.quantity import parse_milli

Json = Mapping[str, object]
MAX_RULES: Final = 1000
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_EFFECTS: Final = ("", "NoSchedule", "PreferNoSchedule", "NoExecute")
_UNREAD: Final = {
    "topologySpreadConstraints": "topology spread constraints",
    "volumes": "volumes",
    "resourceClaims": "resource claims",
    "schedulingGates": "scheduling gates",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRequirement:
    """One condition on a label (for `match_fields`, on the node's name)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTerm:
    """Conditions that must all hold. A term without any matches nothing, as in Kubernetes."""

    match_labels: tuple[NodeRequirement, ...] = ()
    match_fields: tuple[NodeRequirement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """An empty `key` with `Exists` tolerates everything. An empty `effect` means every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """`node_terms` None: no required node affinity; else one of them must match. `overhead_milli`: `spec.overhead`."""

    node_name: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_terms: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    overhead_milli: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()


def placement_rules_from_json(spec: Json, path: str) -> PlacementRules:
    """The rules of a pod's *spec*, which is at *path*. Raises WireError for a part of the wrong type."""
    affinity = _object(spec.get("affinity"), f"{path}.affinity")
    overhead = _object(spec.get("overhead"), f"{path}.overhead")
    return PlacementRules(
        node_name=_text(spec.get("nodeName"), f"{path}.nodeName"),
        node_selector={
            key: _text(value, f"{path}.nodeSelector.{key[:64]}")
            for key, value in _object(spec.get("nodeSelector"), f"{path}.nodeSelector").items()
        },
        node_terms=_node_terms(affinity, f"{path}.affinity"),
        tolerations=tuple(_tolerations(spec, f"{path}.tolerations")),
        overhead_milli={k: parse_milli(v, f"{path}.overhead.{k[:64]}") for k, v in overhead.items()},
        unread=tuple(_unread(spec, affinity)),
    )


def _unread(spec: Json, affinity: Json) -> Iterator[str]:
    yield from (what for key, what in _UNREAD.items() if spec.get(key))
    if affinity.get("podAffinity") or affinity.get("podAntiAffinity"):
        yield "affinity to other pods"
    containers = spec.get("containers")
    for container in containers if isinstance(containers, list) else ():
        ports = container.get("ports") if isinstance(container, dict) else None
        if isinstance(ports, list) and any(isinstance(p, dict) and p.get("hostPort") for p in ports):
            yield "host ports"
            return


def _node_terms(affinity: Json, path: str) -> tuple[NodeTerm, ...] | None:
    here = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    node = _object(affinity.get("nodeAffinity"), f"{path}.nodeAffinity")
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if required is None:
        return None
    terms = _list(_object(required, here).get("nodeSelectorTerms"), f"{here}.nodeSelectorTerms")
    return tuple(_node_term(term, f"{here}.nodeSelectorTerms[{i}]") for i, term in enumerate(terms))


def _node_term(value: object, path: str) -> NodeTerm:
    term = _object(value, path)
    return NodeTerm(
        match_labels=tuple(_requirements(term.get("matchExpressions"), f"{path}.matchExpressions")),
        match_fields=tuple(_requirements(term.get("matchFields"), f"{path}.matchFields")),
    )


def _requirements(value: object, path: str) -> Iterator[NodeRequirement]:
    for i, item in enumerate(_list(value, path)):
        here = f"{path}[{i}]"
        entry = _object(item, here)
        operator = _one_of(entry.get("operator"), _OPERATORS, f"{here}.operator")
        values = [_text(v, f"{here}.values[{j}]") for j, v in enumerate(_list(entry.get("values"), f"{here}.values"))]
        yield NodeRequirement(key=_text(entry.get("key"), f"{here}.key"), operator=operator, values=tuple(values))


def _tolerations(spec: Json, path: str) -> Iterator[Toleration]:
    for i, item in enumerate(_list(spec.get("tolerations"), path)):
        here = f"{path}[{i}]"
        entry = _object(item, here)
        yield Toleration(
            key=_text(entry.get("key"), f"{here}.key"),
            operator=_one_of(entry.get("operator") or "Equal", ("Equal", "Exists"), f"{here}.operator"),
            value=_text(entry.get("value"), f"{here}.value"),
            effect=_one_of(entry.get("effect") or "", _EFFECTS, f"{here}.effect"),
        )


def _object(value: object, path: str) -> Json:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise WireError(path, f"{shown(value)} is not an object")
    if len(value) > MAX_RULES:
        raise WireError(path, f"{len(value)} entries, more than {MAX_RULES}")
    return value


def _list(value: object, path: str) -> list[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise WireError(path, f"{shown(value)} is not a list")
    if len(value) > MAX_RULES:
        raise WireError(path, f"{len(value)} entries, more than {MAX_RULES}")
    return value


def _text(value: object, path: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WireError(path, f"{shown(value)} is not a text")
    return value


def _one_of(value: object, known: tuple[str, ...], path: str) -> str:
    text = _text(value, path)
    if text not in known:
        raise WireError(path, f"{shown(text)} is none of {', '.join(filter(None, known))}")
    return text
