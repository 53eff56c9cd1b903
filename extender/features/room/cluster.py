"""What the controller asks of the API server: pods by name, the pods of a controller, evictions and events.

Evictions and events are written as the ServiceAccount `ACCOUNT`, which the extender may impersonate: what was done is
in the audit log under this name, and the right to do it can be taken away by itself.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from extender.kube.client import Requester, path_of
from extender.kube.errors import ApiError

ACCOUNT: Final = "numa-extender-room"
COMPONENT: Final = "numa-extender"
Json = Mapping[str, Any]


class PodGoneError(Exception):
    """There is no such pod any more; the message names it."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Calls in threads. All methods may raise KubeError. *namespace*: of the ServiceAccount."""

    client: Requester
    namespace: str

    @property
    def _user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{ACCOUNT}"

    async def pod(self, namespace: str, name: str, uid: str = "") -> Json:
        """The pod; with *uid*, this one only. Raises PodGoneError."""
        path = path_of("/api/v1", "pods", namespace=namespace, name=name)
        try:
            found = await asyncio.to_thread(self.client.request, "GET", path)
        except ApiError as error:
            if error.status == 404:
                raise PodGoneError(f"{namespace}/{name} is gone") from error
            raise
        if uid and found["metadata"]["uid"] != uid:
            raise PodGoneError(f"{namespace}/{name} is another pod now")
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
        return [pod for pod in listed.get("items") or () if is_owned_by(pod, owner_uid)]

    async def evict(self, namespace: str, name: str, uid: str) -> None:
        """Raises ApiError, with status 429 if a disruption budget allows no eviction now."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        path = path_of("/api/v1", "pods", namespace=namespace, name=name, subresource="eviction")
        await asyncio.to_thread(self.client.request, "POST", path, body=body, as_user=self._user)

    async def tell(self, namespace: str, name: str, uid: str, reason: str, message: str, now: float) -> None:
        """Write an event on a pod. A failure is not an error."""
        at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name[:200].rstrip('.-')}.", "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid},
            "type": "Normal",
            "reason": reason,
            "message": message[:1000],
            "source": {"component": COMPONENT},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        path = path_of("/api/v1", "events", namespace=namespace)
        try:
            await asyncio.to_thread(self.client.request, "POST", path, body=event, as_user=self._user)
        except ApiError:
            return


def is_owned_by(pod: Json, owner_uid: str) -> bool:
    """Whether the pod's controller has this UID."""
    owners = (pod.get("metadata") or {}).get("ownerReferences") or ()
    return any(owner.get("controller") is True and owner.get("uid") == owner_uid for owner in owners)
