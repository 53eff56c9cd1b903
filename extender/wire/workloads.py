"""What people call "my pod": a Pod, or something with a pod template, as the API server would store it.

Laws
- The API server's defaulting that admission depends on is `wire.pods`'s; here the template becomes a pod.
- A fault names its path in the document as it was sent, template and all.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from extender.replay.pod import Pod
from extender.wire.errors import WireError, shown
from extender.wire.placement_rules import PlacementRules, placement_rules_from_json
from extender.wire.pods import pod_from_json
from extender.wire.unknown_fields import unknown_fields

Json = Mapping[str, object]
MAX_REPLICAS: Final = 2**31 - 1
_TEMPLATE: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "ReplicationController": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Where the pod template stands, by kind."""
_REPLICAS: Final[Mapping[str, tuple[str, ...]]] = {
    "Deployment": ("spec", "replicas"),
    "ReplicaSet": ("spec", "replicas"),
    "ReplicationController": ("spec", "replicas"),
    "StatefulSet": ("spec", "replicas"),
    "Job": ("spec", "parallelism"),
    "CronJob": ("spec", "jobTemplate", "spec", "parallelism"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One document. `replicas`: how many pods at a time it asks for, 1 where it does not say.

    `pod` has no UID if it comes from a template: each copy is to get one of its own (`copy`). `unknown` names what is
    no field of Kubernetes, one sentence each.
    """

    kind: str
    namespace: str
    name: str
    replicas: int
    pod: Pod
    rules: PlacementRules
    unknown: tuple[str, ...] = ()

    def copy(self, number: int) -> Pod:
        """A pod of this workload that is nowhere yet. Its status, the QoS class aside, belongs to another one."""
        return replace(
            self.pod,
            uid=f"what-if-{number}",
            name=f"{self.name}-{number}",
            containers=tuple(replace(c, allocated_milli=None) for c in self.pod.containers),
        )


def workload_from_json(document: object, path: str = "") -> Workload:
    """The workload that a document describes; `kind` missing means Pod.

    Raises:
        WireError: an unknown kind, or anything that admission reads is missing or malformed.
    """
    whole = _object(document, path)
    kind = whole.get("kind") or "Pod"
    where = _TEMPLATE.get(kind) if isinstance(kind, str) else None
    if where is None or not isinstance(kind, str):
        raise WireError(_join(path, "kind"), f"{shown(kind)} is none of {', '.join(_TEMPLATE)}")
    template, here = _below(whole, where, path)
    pod, rules = _pod(template, here)
    metadata = _object(_or_empty(whole.get("metadata")), _join(path, "metadata"))
    name = metadata.get("name") or metadata.get("generateName") or pod.name or kind.lower()
    return Workload(
        kind=kind,
        namespace=_text(metadata.get("namespace") or "default", _join(path, "metadata.namespace")),
        name=_text(name, _join(path, "metadata.name")).rstrip("-"),
        replicas=_replicas(whole, kind, path),
        pod=pod if kind == "Pod" else replace(pod, uid=""),
        rules=rules,
        unknown=unknown_fields(_object(template.get("spec"), _join(here, "spec"))),
    )


def _pod(template: Json, path: str) -> tuple[Pod, PlacementRules]:
    try:
        pod = pod_from_json({**template, "metadata": _or_empty(template.get("metadata"))}, "")
        rules = placement_rules_from_json(_object(template.get("spec"), ".spec"), ".spec")
    except WireError as fault:
        raise WireError(_join(path, fault.field.removeprefix(".")), fault.reason) from None
    return pod, rules


def _below(whole: Json, keys: tuple[str, ...], path: str) -> tuple[Json, str]:
    here = whole
    for key in keys:
        path = _join(path, key)
        here = _object(here.get(key), path)
    return here, path


def _replicas(whole: Json, kind: str, path: str) -> int:
    keys = _REPLICAS.get(kind)
    if keys is None:
        return 1
    parent, where = _below(whole, keys[:-1], path)
    value = parent.get(keys[-1])
    if value is None:
        return 1
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_REPLICAS:
        raise WireError(_join(where, keys[-1]), f"{shown(value)} is not a count")
    return value


def _object(value: object, path: str) -> Json:
    if isinstance(value, dict):
        return value
    raise WireError(path, "missing" if value is None else f"{shown(value)} is not an object")


def _or_empty(value: object) -> object:
    return {} if value is None else value


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise WireError(path, f"{shown(value)} is not a text")
    return value[:253]


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key
