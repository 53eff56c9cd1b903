"""Pods as the API server has them: what a v1.Pod says, reading one, and events about one."""

from typing import Final

from extender.kube.client import JSON, Requester, path_of
from extender.kube.errors import ApiError
from extender.kube.objects import Json, ObjectName, items, mapping, name_of, text
from extender.wire.parsing import rfc_3339

MAX_BYTES: Final = 1_000  # of a message; the newer API of events refuses more than 1,024


def controller_of(pod: Json) -> str:
    """UID of the pod's controller; "" if it has none."""
    owners = items(mapping(pod, "metadata"), "ownerReferences")
    return next((text(each, "uid") for each in owners if each.get("controller") is True), "")


def node_of(pod: Json) -> str:
    """Name of the node that the pod is bound to; "" if it is not bound."""
    return text(mapping(pod, "spec"), "nodeName")


def is_waiting(pod: Json) -> bool:
    """Whether the pod has no node, has not ended or been deleted, and kube-scheduler does not preempt pods for it."""
    status = mapping(pod, "status")
    ends = text(status, "phase") in ("Succeeded", "Failed") or "deletionTimestamp" in mapping(pod, "metadata")
    return not (node_of(pod) or ends or text(status, "nominatedNodeName"))


def read_pod(client: Requester, namespace: str, name: str, uid: str = "") -> JSON | None:
    """The v1.Pod; None if there is none, or one with another UID than *uid* ("": any). Raises KubeError."""
    try:
        pod = client.request("GET", path_of("/api/v1", "pods", namespace=namespace, name=name))
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    return pod if uid in ("", name_of(pod).uid) else None


def write_event(
    client: Requester, pod: ObjectName, reason: str, message: str, at: float, kind: str = "Warning"
) -> None:
    """Create an event about a pod. Raises KubeError.

    *message*: cut after `MAX_BYTES`. *at*: Unix seconds. *kind*: `Normal` or `Warning`.
    """
    moment, involved = rfc_3339(int(at)), {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    event: JSON = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{pod.name[:200].rstrip('.-')}.", "namespace": pod.namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **involved},
        "type": kind,
        "reason": reason,
        "message": message.encode()[:MAX_BYTES].decode(errors="ignore"),
        "source": {"component": "numa-extender"},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    client.request("POST", path_of("/api/v1", "events", namespace=pod.namespace), body=event)
