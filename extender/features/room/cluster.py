"""What the controller asks of the API server: pods by name, the pods of a controller, evictions and events.

The extender writes evictions and events as the ServiceAccount `ACCOUNT`, which it may impersonate. So the audit log has
them under this name, and their right can be taken away by itself.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from extender.kube.client import Requester, path_of
from extender.kube.errors import KubeError
from extender.kube.objects import Json, ObjectName
from extender.kube.pod_objects import controller_of, read_pod, write_event

ACCOUNT: Final = "numa-extender-room"


class PodGoneError(Exception):
    """There is no such pod any more; the message names it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Calls in threads. All methods may raise KubeError. *evictor*: the client that acts as `ACCOUNT`."""

    client: Requester
    evictor: Requester

    async def pod(self, namespace: str, name: str, uid: str = "") -> Json:
        """The pod; with *uid*, this one only. Raises PodGoneError."""
        found = await asyncio.to_thread(read_pod, self.client, namespace, name, uid)
        if found is None:
            raise PodGoneError(f"{namespace}/{name} is gone")
        return found

    async def owned_by(
        self, owner_uid: str, namespace: str, labels: Mapping[str, str], most: int
    ) -> Sequence[Json] | None:
        """The pods of a controller among those with these labels; None: there are more than *most* such pods."""
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        query = {"labelSelector": selector, "limit": str(most)}
        path = path_of("/api/v1", "pods", namespace=namespace)
        listed = await asyncio.to_thread(self.client.request, "GET", path, query=query)
        if (listed.get("metadata") or {}).get("continue"):
            return None
        return [pod for pod in listed.get("items") or () if controller_of(pod) == owner_uid]

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Raises ApiError, with status 429 if a disruption budget allows no eviction now."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = path_of("/api/v1", "pods", namespace=namespace, name=name, subresource="eviction")
        await asyncio.to_thread(self.evictor.request, "POST", path, body=body)

    async def tell(self, namespace: str, name: str, uid: str, reason: str, message: str, now: float) -> None:
        """Write an event on a pod. A failure is not an error."""
        about = ObjectName(uid, namespace, name)
        with suppress(KubeError):
            await asyncio.to_thread(write_event, self.evictor, about, reason, message, now, "Normal")
