"""The preempt verb of the scheduler extender protocol, as Go writes and reads it.

Rules of this file
- A request names victims in one of two forms: full pods (`NodeNameToVictims`), or UIDs (`NodeNameToMetaVictims`, if the
  extender is `nodeCacheCapable`). The reply always has the second form.
- Of a victim's object only what is needed to choose victims is read. An empty or null list of victims is valid: newer
  schedulers send it for nodes that only an extender refuses.
- The reply has no field for an error: a malformed request gets a status other than 200.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import orjson
from pydantic import Field

from extender.replay.pod import Pod
from extender.wire.deep_json import load_deep_json
from extender.wire.errors import WireError, shown
from extender.wire.fields import MAX_TEXT, integer_at, object_at
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import GoModel, KubernetesObject, nominated_node_of, priority_of
from extender.wire.times import unix_seconds
from extender.wire.validation import doc

NEVER: Final = "Never"
"""The `preemptionPolicy` of a pod that never preempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedPod:
    """A victim in the request. `started_at` in Unix seconds, None before its kubelet saw it."""

    uid: str
    priority: int
    started_at: float | None
    terminating: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The pods that the scheduler would evict from one node.

    `victims`: UIDs in its order, each once. `described`: those sent as objects. `violations`: how many of them violate
    a disruption budget by the scheduler's count.
    """

    victims: tuple[str, ...]
    described: Mapping[str, DescribedPod] = field(default_factory=dict)
    violations: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionArgs:
    """A preempt request. `may_preempt` False: the pod's `preemptionPolicy` is Never.

    `nominated_node`: its `status.nominatedNodeName`, "" if it has none.
    """

    pod: Pod
    priority: int
    may_preempt: bool
    proposals: Mapping[str, Proposal]
    nominated_node: str = ""


def parse_preemption(body: bytes) -> PreemptionArgs:
    """Read the body of a preempt request. If both forms are present, the full pods are read.

    Raises:
        WireError: not JSON, no pod, neither form, or a part of the wrong type.
    """
    document = object_at(load_deep_json(body), "")
    pod = pod_from_json(document.get("Pod"), "Pod")
    manifest = object_at(document.get("Pod"), "Pod")
    spec = object_at(manifest.get("spec"), "Pod.spec")
    full, meta = document.get("NodeNameToVictims"), document.get("NodeNameToMetaVictims")
    if full is None and meta is None:
        raise WireError("NodeNameToMetaVictims", "neither NodeNameToVictims nor NodeNameToMetaVictims is given")
    name = "NodeNameToMetaVictims" if full is None else "NodeNameToVictims"
    nodes = object_at(meta if full is None else full, name)
    return PreemptionArgs(
        pod=pod,
        priority=priority_of(manifest, "Pod"),
        may_preempt=spec.get("preemptionPolicy") != NEVER,
        nominated_node=nominated_node_of(manifest, "Pod"),
        proposals={node: _proposal(value, f"{name}[{node!r}]", full=full is not None) for node, value in nodes.items()},
    )


def _proposal(value: object, path: str, *, full: bool) -> Proposal:
    document = object_at(value, path)
    entries = document.get("Pods")
    if entries is None:
        entries = []
    if not isinstance(entries, list):
        raise WireError(f"{path}.Pods", f"a list is expected, not {shown(entries)}")
    violations = integer_at(document.get("NumPDBViolations"), f"{path}.NumPDBViolations")
    if violations < 0:
        raise WireError(f"{path}.NumPDBViolations", f"{violations} is negative")
    if not full:
        uids = [
            _uid(object_at(e, f"{path}.Pods[{i}]").get("UID"), f"{path}.Pods[{i}].UID") for i, e in enumerate(entries)
        ]
        return Proposal(victims=tuple(dict.fromkeys(uids)), violations=violations)
    described = {pod.uid: pod for pod in (_described(e, f"{path}.Pods[{i}]") for i, e in enumerate(entries))}
    return Proposal(victims=tuple(described), described=described, violations=violations)


def _described(value: object, path: str) -> DescribedPod:
    pod = object_at(value, path)
    metadata, spec = object_at(pod.get("metadata"), f"{path}.metadata"), object_at(pod.get("spec"), f"{path}.spec")
    status = pod.get("status")
    return DescribedPod(
        uid=_uid(metadata.get("uid"), f"{path}.metadata.uid"),
        priority=integer_at(spec.get("priority"), f"{path}.spec.priority"),
        started_at=unix_seconds(status.get("startTime")) if isinstance(status, dict) else None,
        terminating=metadata.get("deletionTimestamp") is not None,
    )


def _uid(value: object, path: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_TEXT:
        raise WireError(path, "missing" if value is None else f"a UID is expected, not {shown(value)}")
    return value


def preemption_reply(plans: Mapping[str, tuple[Sequence[str], int]]) -> bytes:
    """The reply: victims (UIDs, most important first) and violated disruption budgets, by node."""
    nodes = {
        name: {"Pods": [{"UID": uid} for uid in victims], "NumPDBViolations": violations}
        for name, (victims, violations) in plans.items()
    }
    return orjson.dumps({"NodeNameToMetaVictims": nodes})


_Violations = Annotated[int, Field(ge=0, description="Victims that violate a PodDisruptionBudget.")]


class MetaPod(GoModel):
    """A victim by its UID."""

    UID: Annotated[str, doc("`metadata.uid`.")]


class MetaVictims(GoModel):
    """The victims of one node, most important first."""

    Pods: Annotated[list[MetaPod] | None, doc("Empty: no victim is needed.")]
    NumPDBViolations: _Violations = 0


class Victims(GoModel):
    """The victims of one node, most important first, as full objects."""

    Pods: Annotated[list[KubernetesObject] | None, doc("v1.Pod objects.")]
    NumPDBViolations: _Violations = 0


class ExtenderPreemptionArgs(GoModel):
    """What kube-scheduler sends to preempt. One of the two maps is null."""

    Pod: Annotated[KubernetesObject, doc("The v1.Pod to schedule.")]
    NodeNameToVictims: Annotated[
        dict[str, Victims] | None, doc("Candidates by name, if `nodeCacheCapable: false`.")
    ] = None
    NodeNameToMetaVictims: Annotated[
        dict[str, MetaVictims] | None, doc("Candidates by name, if `nodeCacheCapable: true`.")
    ] = None


class ExtenderPreemptionResult(GoModel):
    """The reply of preempt: the nodes on which evicting these victims makes the pod fit."""

    NodeNameToMetaVictims: Annotated[dict[str, MetaVictims], doc("Empty: preemption helps on no node.")]
