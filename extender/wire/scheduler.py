"""The scheduler extender protocol (k8s.io/kube-scheduler/extender/v1), as Go writes and reads it.

Rules of this file
- Keys are Go field names, capitalised. Unset lists and maps are null. Pods and nodes inside have their usual keys.
- The pod of a request stays a plain mapping until `wire.pods` reads it: no model objects on the hot path.
- The models describe the protocol in the OpenAPI document. Requests are not validated with them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from extender.replay.pod import Pod
from extender.wire.deep_json import load_deep_json
from extender.wire.errors import WireError, shown
from extender.wire.fields import Json, integer_at, object_at
from extender.wire.groups import Group, group_of
from extender.wire.pods import pod_from_json
from extender.wire.validation import doc


@dataclass(frozen=True, kw_only=True)
class SchedulerArgs:
    """A filter or prioritize request.

    `names` are the candidates in the order of the request. `nodes` are the full Node objects, in the same order, if the
    scheduler sent them (`nodeCacheCapable: false`); None if it sent names. `priority` is the pod's, `nominated_node`
    its `status.nominatedNodeName`, "" if it has none. `group`: None if the pod is in none.
    """

    pod: Pod
    names: Sequence[str]
    nodes: Sequence[object] | None
    priority: int = 0
    nominated_node: str = ""
    group: Group | None = None


def parse_args(body: bytes) -> SchedulerArgs:
    """Read the body of a filter or prioritize request.

    Raises:
        WireError: not JSON, no pod, neither names nor nodes, or a part of the wrong type.
    """
    document = object_at(load_deep_json(body), "")
    pod, manifest = pod_from_json(document.get("Pod"), "Pod"), object_at(document.get("Pod"), "Pod")
    names, items = _candidates(document)
    return SchedulerArgs(
        pod=pod,
        names=names,
        nodes=items,
        priority=priority_of(manifest, "Pod"),
        nominated_node=nominated_node_of(manifest, "Pod"),
        group=group_of(manifest),
    )


def priority_of(manifest: Json, path: str) -> int:
    """`spec.priority` of a v1.Pod at *path* of a request. 0 if it is missing.

    Raises:
        WireError: it is not an integer.
    """
    spec = manifest.get("spec")
    return integer_at(spec.get("priority"), f"{path}.spec.priority") if isinstance(spec, dict) else 0


def nominated_node_of(manifest: Json, path: str) -> str:
    """`status.nominatedNodeName` of a v1.Pod at *path* of a request. "" if there is none.

    Raises:
        WireError: it is not a string.
    """
    status = manifest.get("status")
    value = status.get("nominatedNodeName") if isinstance(status, dict) else None
    if value is None:
        return ""
    if not isinstance(value, str):
        raise WireError(f"{path}.status.nominatedNodeName", f"a node name is expected, not {shown(value)}")
    return value


def _candidates(document: Json) -> tuple[list[str], list[object] | None]:
    """Names, and the Node objects if the scheduler sent them."""
    names, nodes = document.get("NodeNames"), document.get("Nodes")
    if names is not None:
        return _names(names), None
    if nodes is None:
        raise WireError("NodeNames", "neither NodeNames nor Nodes is given")
    items = object_at(nodes, "Nodes").get("items")
    if items is None:
        return [], []
    if not isinstance(items, list):
        raise WireError("Nodes.items", f"a list is expected, not {shown(items)}")
    return [_node_name(item, i) for i, item in enumerate(items)], items


def _names(value: object) -> list[str]:
    if not isinstance(value, list):
        raise WireError("NodeNames", f"a list is expected, not {shown(value)}")
    try:
        if "".startswith(tuple(value)):  # the fastest check that all are strings, up to the first empty one
            "".join(value)
    except TypeError:
        i, wrong = next((i, each) for i, each in enumerate(value) if not isinstance(each, str))
        raise WireError(f"NodeNames[{i}]", f"a node name is expected, not {shown(wrong)}") from None
    return value


def _node_name(item: object, i: int) -> str:
    metadata = item.get("metadata") if isinstance(item, dict) else None
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
    if args.nodes is not None:
        keep = set(passed)
        items = [item for name, item in zip(args.names, args.nodes, strict=True) if name in keep]
        return _filter_result({"metadata": {}, "items": items}, None, dict(failed), dict(unresolvable))
    return _filter_result(None, list(passed), dict(failed), dict(unresolvable))


def _filter_result(
    nodes: Json | None, names: Sequence[str] | None, failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> bytes:
    return orjson.dumps(
        {
            "Nodes": nodes,
            "NodeNames": names,
            "FailedNodes": failed,
            "FailedAndUnresolvableNodes": unresolvable,
            "Error": "",
        }
    )


@dataclass(frozen=True)
class HostScores:
    """The score of each of the nodes *names*, 0 to 10."""

    names: Sequence[str]
    scores: NDArray[np.uint8]

    @property
    def packed(self) -> bytes:
        """The reply to a prioritize request: a bare array with integer scores (a float would invalidate all of it)."""
        return msgspec.json.encode(list(map(_HostPriority, self.names, self.scores.tolist())))


class _HostPriority(msgspec.Struct, gc=False):
    """As `HostPriority`. Thousands are made for a call."""

    Host: str
    Score: int


def error_reply(message: str) -> bytes:
    """The reply, with status 200, to a request that cannot be answered.

    The scheduler ignores bodies of other statuses.
    """
    return orjson.dumps(
        {"Nodes": None, "NodeNames": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": message}
    )


class GoModel(BaseModel):
    """Base of the models of the scheduler's JSON. Unknown fields are kept: a newer scheduler may add some."""

    model_config = ConfigDict(extra="allow")


KubernetesObject = dict[str, object]
_Reasons = dict[str, str]


class NodeList(GoModel):
    """A v1.NodeList."""

    items: Annotated[list[KubernetesObject] | None, doc("v1.Node objects.")] = None


class ExtenderArgs(GoModel):
    """What kube-scheduler sends to filter and prioritize. One of `NodeNames` and `Nodes` is null."""

    Pod: Annotated[KubernetesObject, doc("The v1.Pod to schedule.")]
    Nodes: Annotated[NodeList | None, doc("The candidates, if `nodeCacheCapable: false`.")] = None
    NodeNames: Annotated[list[str] | None, doc("Their names, if `nodeCacheCapable: true`.")] = None


class ExtenderFilterResult(GoModel):
    """The reply of filter. Names are in any order. A refused node is in one of the two maps, with a reason."""

    Nodes: Annotated[NodeList | None, doc("Nodes that pass, if `Nodes` were sent.")]
    NodeNames: Annotated[list[str] | None, doc("Names of nodes that pass, if `NodeNames` were sent.")]
    FailedNodes: Annotated[_Reasons, doc("Refused now; preemption may be tried. Reason by node name.")]
    FailedAndUnresolvableNodes: Annotated[_Reasons, doc("Refused; preemption cannot help.")]
    Error: Annotated[str, doc("Why the request could not be answered. Empty if it was.")]


class HostPriority(GoModel):
    """One entry of the reply of prioritize."""

    Host: Annotated[str, doc("Node name.")]
    Score: Annotated[int, Field(ge=0, le=10, description="0 is worst, 10 is best.")]


EXAMPLE_POD: Final[KubernetesObject] = {
    "metadata": {"name": "solver-0", "namespace": "default", "uid": "0d6f2c1e-7a2b-4f0e-9b59-0a3b6f3c9e11"},
    "spec": {
        "containers": [
            {
                "name": "app",
                "image": "registry.example/solver:1",
                "resources": {
                    "requests": {"cpu": "8", "memory": "16Gi", "vendor.example/gpu": "1"},
                    "limits": {"cpu": "8", "memory": "16Gi", "vendor.example/gpu": "1"},
                },
            }
        ]
    },
    "status": {"phase": "Pending", "qosClass": "Guaranteed"},
}
"""A pod for the OpenAPI document's examples."""
