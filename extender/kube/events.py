"""Events on pods."""

from datetime import UTC, datetime
from typing import Final

from extender.kube.client import JSON, Requester, path_of

COMPONENT: Final = "numa-extender"
MAX_BYTES: Final = 1_000
"""The longest message. The newer API of events refuses more than 1,024."""


def write_event(client: Requester, namespace: str, name: str, uid: str, reason: str, message: str, at: float) -> None:
    """Create a warning about a pod. *message*: cut after `MAX_BYTES`. *at*: Unix seconds. Raises KubeError."""
    moment = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    event: JSON = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{name[:200].rstrip('.-')}.", "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid},
        "type": "Warning",
        "reason": reason,
        "message": message.encode()[:MAX_BYTES].decode(errors="ignore"),
        "source": {"component": COMPONENT},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    client.request("POST", path_of("/api/v1", "events", namespace=namespace), body=event)
