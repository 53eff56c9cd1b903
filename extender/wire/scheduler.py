"""Filter and prioritize of the extender protocol (k8s.io/kube-scheduler/extender/v1), as Go writes and reads them.

Rules of this file
- Keys are Go field names, capitalised. Unset lists and maps are null. Pods and nodes inside have their usual keys.
- The pod of a request stays a plain mapping until `wire.pods` reads it: no model objects on the hot path.
- One declaration of a body is its reader or its writer, and its schema in the OpenAPI document.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import numpy as np
import orjson
from msgspec import Meta
from msgspec.structs import asdict
from numpy.typing import NDArray

from extender.replay.pod import Pod
from extender.wire.errors import WireError, shown
from extender.wire.parsing import Json, converted, integer_at, load_deep_json, optional_object_at, text_at
from extender.wire.pods import pod_from_json
from extender.wire.replies import about

KubernetesObject = dict[str, object]
_Reasons = dict[str, str]


class NodeList(msgspec.Struct):
    """A v1.NodeList."""

    metadata: object = msgspec.field(default_factory=dict)
    items: Annotated[list[KubernetesObject] | None, about("v1.Node objects.")] = None


class ExtenderArgs(msgspec.Struct):
    """What kube-scheduler sends to filter and prioritize. One of `NodeNames` and `Nodes` is null."""

    Pod: Annotated[KubernetesObject, about("The v1.Pod to schedule.")]
    Nodes: Annotated[NodeList | None, about("The candidates, if `nodeCacheCapable: false`.")] = None
    NodeNames: Annotated[list[str] | None, about("Their names, if `nodeCacheCapable: true`.")] = None


class ExtenderFilterResult(msgspec.Struct):
    """The reply of filter. Names are in any order. A refused node is in one of the two maps, with a reason."""

    Nodes: Annotated[NodeList | None, about("Nodes that pass, if `Nodes` were sent.")] = None
    NodeNames: Annotated[list[str] | None, about("Names of nodes that pass, if `NodeNames` were sent.")] = None
    FailedNodes: Annotated[_Reasons, about("Refused now; preemption may be tried. Reason by node name.")] = {}
    FailedAndUnresolvableNodes: Annotated[_Reasons, about("Refused; preemption cannot help.")] = {}
    Error: Annotated[str, about("Why the request could not be answered. Empty if it was.")] = ""


class HostPriority(msgspec.Struct, gc=False):
    """One entry of the reply of prioritize."""

    Host: Annotated[str, about("Node name.")]
    Score: Annotated[int, Meta(ge=0, le=10, description="0 is worst, 10 is best.")]


@dataclass(frozen=True, kw_only=True)
class SchedulerArgs:
    """A filter or prioritize request.

    `names` are the candidates in the order of the request. `nodes` are the full Node objects, in the same order, if the
    scheduler sent them (`nodeCacheCapable: false`); None if it sent names. `priority` is the pod's, `nominated_node`
    its `status.nominatedNodeName`, "" if it has none. `document`: the v1.Pod, for features that read more of it.
    """

    pod: Pod
    names: Sequence[str]
    nodes: Sequence[KubernetesObject] | None
    priority: int = 0
    nominated_node: str = ""
    document: Json = field(default_factory=dict)


def parse_args(body: bytes) -> SchedulerArgs:
    """Read the body of a filter or prioritize request.

    Raises:
        WireError: not JSON, no pod, neither names nor nodes, or a part of the wrong type.
    """
    args = converted(load_deep_json(body), ExtenderArgs, "")
    pod, names, nodes = pod_from_json(args.Pod, "Pod"), args.NodeNames, None
    if names is None:
        if args.Nodes is None:
            raise WireError("NodeNames", "neither NodeNames nor Nodes is given")
        nodes = args.Nodes.items or []
        names = [_node_name(node, i) for i, node in enumerate(nodes)]
    return SchedulerArgs(
        pod=pod,
        names=names,
        nodes=nodes,
        priority=priority_of(args.Pod),
        nominated_node=nominated_node_of(args.Pod),
        document=args.Pod,
    )


def priority_of(pod: Json) -> int:
    """`spec.priority` of the v1.Pod of a request. 0 if it is missing. Raises WireError if it is not an integer."""
    return integer_at(optional_object_at(pod.get("spec"), "Pod.spec").get("priority"), "Pod.spec.priority")


def nominated_node_of(pod: Json) -> str:
    """`status.nominatedNodeName` of the v1.Pod of a request. "" if there is none. Raises WireError if it is no text."""
    name = optional_object_at(pod.get("status"), "Pod.status").get("nominatedNodeName")
    return "" if name is None else text_at(name, "Pod.status.nominatedNodeName")


def _node_name(item: KubernetesObject, i: int) -> str:
    metadata = item.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        raise WireError(f"Nodes.items[{i}].metadata.name", f"a node name is expected, not {shown(name)}")
    return name


def filter_reply(
    args: SchedulerArgs, passed: Sequence[str], failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> bytes:
    """The reply to a filter request, in the form of the request: names, or whole Node objects.

    The list of that form is never null: two nulls mean "no node fits, and there is no reason".
    """
    names, nodes = list(passed), None
    if args.nodes is not None:
        keep = set(passed)
        nodes = NodeList(items=[item for name, item in zip(args.names, args.nodes, strict=True) if name in keep])
    return _encoded(ExtenderFilterResult(nodes, names if nodes is None else None, dict(failed), dict(unresolvable)))


def scores_reply(names: Sequence[str], scores: NDArray[np.uint8]) -> bytes:
    """The reply to a prioritize request: a bare array with integer scores (a float would invalidate all of it)."""
    return msgspec.json.encode(list(map(HostPriority, names, scores.tolist())))


def error_reply(message: str) -> bytes:
    """The reply, with status 200, to a request that cannot be answered.

    The scheduler ignores bodies of other statuses.
    """
    return _encoded(ExtenderFilterResult(Error=message))


def _encoded(result: ExtenderFilterResult) -> bytes:
    """By orjson, which writes 5,000 names in half the time of msgspec."""
    return orjson.dumps(asdict(result), default=asdict)
