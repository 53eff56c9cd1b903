"""Events on pods."""

from typing import Final

from extender.kube.client import JSON, Requester, path_of
from extender.wire.parsing import rfc_3339

MAX_BYTES: Final = 1_000  # of a message; the newer API of events refuses more than 1,024


def write_event(client: Requester, namespace: str, name: str, uid: str, reason: str, message: str, at: float) -> None:
    """Create a warning about a pod. *message*: cut after `MAX_BYTES`. *at*: Unix seconds. Raises KubeError."""
    moment = rfc_3339(int(at))
    event: JSON = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name[:200].rstrip('.-')}.", "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid},
        "type": "Warning",
        "reason": reason,
        "message": message.encode()[:MAX_BYTES].decode(errors="ignore"),
        "source": {"component": "numa-extender"},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    client.request("POST", path_of("/api/v1", "events", namespace=namespace), body=event)
