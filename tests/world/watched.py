"""Objects of the API server as the watches decode them. AssertionError: no node, or no pod on a node."""

from collections.abc import Mapping
from typing import Any

from extender.kube.nodes import NodeObject, decode_node
from extender.kube.pods import PodDecoder, PodRecord


def node_object(name: str, *, spec: Mapping[str, Any] | None = None, **more: Any) -> NodeObject:
    """*more*: of the metadata; `status` is the status."""
    status = more.pop("status", {})
    decoded = decode_node({"metadata": {"name": name, **more}, "spec": spec or {}, "status": status})
    assert decoded is not None
    return decoded[1]


def pod_record(pod: Mapping[str, Any], node: str = "", **spec: Any) -> PodRecord:
    """*node*: where it is; empty: where it says. *spec*: fields that differ."""
    placed = {**pod["spec"], **({"nodeName": node} if node else {}), **spec}
    decoded = PodDecoder()({**pod, "spec": placed})
    assert decoded is not None
    return decoded[1]
