"""The preempt verb of the scheduler extender protocol, as Go writes and reads it.

Rules of this file
- A request names victims in one of two forms: full pods (`NodeNameToVictims`), or UIDs (`NodeNameToMetaVictims`, if the
  extender is `nodeCacheCapable`). The reply always has the second form.
- Only the parts of a victim's object that are needed to choose victims are read. An empty or null list of victims is
  valid: newer schedulers send it for nodes that only an extender refuses.
- The reply has no field for an error: a malformed request gets a status other than 200.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from extender.replay.pod import Pod
from extender.wire.errors import WireError
from extender.wire.parsing import MAX_TEXT, converted, load_deep_json, object_at
from extender.wire.pods import pod_from_json
from extender.wire.replies import about
from extender.wire.scheduler import KubernetesObject, nominated_node_of, priority_of

NEVER: Final = "Never"
"""The `preemptionPolicy` of a pod that never preempts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """The pods that the scheduler would evict from one node.

    `victims`: UIDs in its order, each once. `described`: those sent as objects. `violations`: how many of them violate
    a disruption budget by the scheduler's count.
    """

    victims: tuple[str, ...]
    described: Mapping[str, "VictimPod"] = field(default_factory=dict)
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
    args = converted(load_deep_json(body), ExtenderPreemptionArgs, "")
    nodes = args.NodeNameToMetaVictims if args.NodeNameToVictims is None else args.NodeNameToVictims
    if nodes is None:
        raise WireError("NodeNameToMetaVictims", "neither NodeNameToVictims nor NodeNameToMetaVictims is given")
    pod = pod_from_json(args.Pod, "Pod")
    return PreemptionArgs(
        pod=pod,
        priority=priority_of(args.Pod),
        may_preempt=object_at(args.Pod.get("spec"), "Pod.spec").get("preemptionPolicy") != NEVER,
        nominated_node=nominated_node_of(args.Pod),
        proposals={node: _proposal(victims) for node, victims in nodes.items()},
    )


def _proposal(victims: "Victims | MetaVictims") -> Proposal:
    if isinstance(victims, MetaVictims):
        uids = dict.fromkeys(pod.UID for pod in victims.Pods or ())
        return Proposal(victims=tuple(uids), violations=victims.NumPDBViolations)
    described = {pod.metadata.uid: pod for pod in victims.Pods or ()}
    return Proposal(victims=tuple(described), described=described, violations=victims.NumPDBViolations)


def preemption_reply(plans: Mapping[str, tuple[Sequence[str], int]]) -> bytes:
    """The reply: victims (UIDs, most important first) and violated disruption budgets, by node."""
    nodes = {
        name: MetaVictims([MetaPod(uid) for uid in victims], violations)
        for name, (victims, violations) in plans.items()
    }
    return msgspec.json.encode(ExtenderPreemptionResult(nodes))


_Violations = Annotated[int, Meta(ge=0, description="Victims that violate a PodDisruptionBudget.")]
_UID = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT, description="`metadata.uid`.")]


class MetaPod(msgspec.Struct):
    """A victim by its UID."""

    UID: _UID


class MetaVictims(msgspec.Struct):
    """The victims of one node, most important first."""

    Pods: Annotated[list[MetaPod] | None, about("Empty: no victim is needed.")] = None
    NumPDBViolations: _Violations = 0


class VictimMetadata(msgspec.Struct, rename="camel"):
    """Of a victim."""

    uid: _UID
    deletion_timestamp: Annotated[object, about("Null: it is not being deleted.")] = None


class VictimSpec(msgspec.Struct):
    """Of a victim."""

    priority: Annotated[int | None, about("Null counts as 0.")] = None


class VictimStatus(msgspec.Struct, rename="camel"):
    """Of a victim."""

    start_time: Annotated[object, about("When its kubelet saw it, in the format of the API server.")] = None


class VictimPod(msgspec.Struct):
    """A v1.Pod with the parts that are read."""

    metadata: VictimMetadata
    spec: VictimSpec
    status: VictimStatus | None = None


class Victims(msgspec.Struct):
    """The victims of one node, most important first, as full objects."""

    Pods: Annotated[list[VictimPod] | None, about("v1.Pod objects.")] = None
    NumPDBViolations: _Violations = 0


class ExtenderPreemptionArgs(msgspec.Struct):
    """What kube-scheduler sends to preempt. One of the two maps is null."""

    Pod: Annotated[KubernetesObject, about("The v1.Pod to schedule.")]
    NodeNameToVictims: Annotated[
        dict[str, Victims] | None, about("Candidates by name, if `nodeCacheCapable: false`.")
    ] = None
    NodeNameToMetaVictims: Annotated[
        dict[str, MetaVictims] | None, about("Candidates by name, if `nodeCacheCapable: true`.")
    ] = None


class ExtenderPreemptionResult(msgspec.Struct):
    """The reply of preempt: the nodes on which evicting these victims makes the pod fit."""

    NodeNameToMetaVictims: Annotated[dict[str, MetaVictims], about("Empty: preemption helps on no node.")]
