"""The watch of nominated pods: `status.nominatedNodeName` is set, and the pod is not bound.

The server selects them (`pkg/registry/core/pod/strategy.go` ToSelectableFields), so that other pending pods are never
sent. A pod that is bound, deleted or no longer nominated is delivered as gone.

RBAC: `list`, `watch` on pods (all namespaces).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from extender.cluster.pods import PodRegistry
from extender.kube.changes import Batch, Gone
from extender.kube.fields import integer, mapping, text
from extender.kube.source import Source
from extender.replay.pod import Pod
from extender.wire.pods import pod_from_json


@dataclass(frozen=True, slots=True, kw_only=True)
class NominatedPod:
    """One unbound pod and the node that it is nominated to."""

    pod: Pod
    priority: int
    node_name: str


def apply_nominated(pods: PodRegistry, batch: Batch[NominatedPod], now: float) -> None:
    """Apply changes from the watch to the registry, which ignores pods that are bound."""
    for change in batch.changes:
        value = change.value
        if isinstance(change, Gone):
            pods.clear_nomination(value.pod.uid, now)
        else:
            pods.nominate(value.pod, value.priority, value.node_name, now)


def decode_nominated(value: Mapping[str, Any]) -> tuple[str, NominatedPod] | None:
    """The pod's UID and the pod. None if it is bound, or has no nominated node or UID. Raises WireError."""
    spec, node_name = mapping(value, "spec"), text(mapping(value, "status"), "nominatedNodeName")
    if not node_name or text(spec, "nodeName"):
        return None
    pod = pod_from_json(value)
    if not pod.uid:
        return None
    return pod.uid, NominatedPod(pod=pod, priority=integer(spec, "priority"), node_name=node_name)


NOMINATED: Final = Source(
    path="/api/v1/pods", field_selector="spec.nodeName=,status.nominatedNodeName!=", decode=decode_nominated
)
"""All nominated pods."""
