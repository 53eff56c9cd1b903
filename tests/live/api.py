"""A small client of the API server, for the test itself and for the kubelets."""

import ssl
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import orjson

Json = dict[str, Any]
MERGE_PATCH = {"content-type": "application/merge-patch+json"}
STRATEGIC_PATCH = {"content-type": "application/strategic-merge-patch+json"}
APPLY = {"content-type": "application/apply-patch+yaml"}
CLUSTER_SCOPED = frozenset({
    "Namespace", "Node", "PriorityClass", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition",
    "DeviceClass", "ResourceSlice", "AdmissionCheck", "ClusterQueue", "ResourceFlavor", "Topology",
})  # fmt: skip
PLURALS = {
    "NetworkPolicy": "networkpolicies", "PriorityClass": "priorityclasses", "DeviceClass": "deviceclasses",
    "CSIStorageCapacity": "csistoragecapacities", "Topology": "topologies",
}  # fmt: skip


class ApiError(Exception):
    """The API server answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def collection(document: Mapping[str, Any]) -> str:
    """The path at which objects of the kind of *document* are kept."""
    version, kind = document["apiVersion"], document["kind"]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    namespace = "" if kind in CLUSTER_SCOPED else f"/namespaces/{document['metadata'].get('namespace', 'default')}"
    return f"{root}{namespace}/{plural}"


class Api:
    """Synchronous calls. Errors of the connection are httpx's own."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        limits = httpx.Limits(max_connections=32)
        self._client = httpx.Client(base_url=url, verify=context, timeout=30, trust_env=False, limits=limits)

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def call(self, method: str, path: str, document: object = None, headers: Mapping[str, str] | None = None) -> Json:
        """The parsed answer.

        Raises:
            ApiError: the status was 400 or above.
        """
        content = None if document is None else orjson.dumps(document)
        kind = headers or ({"content-type": "application/json"} if content else {})
        return _parsed(self._client.request(method, path, content=content, headers=kind))

    def items(self, path: str) -> list[Json]:
        """All objects of a collection."""
        found: list[Json] = self.call("GET", path)["items"]
        return found

    def create(self, document: Json) -> Json:
        """Create an object."""
        return self.call("POST", collection(document), document)

    def apply(self, document: Json) -> Json:
        """Server-side apply, as `kubectl apply --server-side`."""
        path = f"{collection(document)}/{document['metadata']['name']}?fieldManager=live&force=true"
        return self.call("PATCH", path, document, APPLY)

    def delete(self, path: str) -> None:
        """Delete one object; nothing if it is gone already."""
        try:
            self.call("DELETE", path)
        except ApiError as error:
            if error.status != 404:
                raise

    def patiently(self, method: str, path: str, document: object = None, *, seconds: float = 90.0) -> Json:
        """As `call`, again and again while the server is away or overloaded."""
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while True:
            try:
                return self.call(method, path, document)
            except (httpx.TransportError, ApiError) as error:
                is_passing = not isinstance(error, ApiError) or error.status >= 500 or error.status == 429
                if not is_passing or time.monotonic() > deadline:
                    raise
            pause.wait(0.3)

    def answers(self, path: str) -> bool:
        """Whether a GET succeeds now."""
        try:
            return self._client.get(path).is_success
        except httpx.TransportError:
            return False


class AsyncApi:
    """What a kubelet calls, with its own certificate."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self._client = httpx.AsyncClient(base_url=url, verify=context, timeout=30, trust_env=False)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def call(
        self, method: str, path: str, document: object = None, headers: Mapping[str, str] | None = None
    ) -> Json:
        """The parsed answer; errors as `Api.call`."""
        content = None if document is None else orjson.dumps(document)
        kind = headers or ({"content-type": "application/json"} if content else {})
        return _parsed(await self._client.request(method, path, content=content, headers=kind))

    async def watch(self, path: str, **parameters: str) -> AsyncIterator[Json]:
        """Events until the stream ends.

        Raises:
            ApiError: the watch was refused, or an error came instead of an event (410: list again).
        """
        parameters |= {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "300"}
        timeout = httpx.Timeout(30, read=310)
        async with self._client.stream("GET", path, params=parameters, timeout=timeout) as answer:
            if not answer.is_success:
                await answer.aread()
                _parsed(answer)
            async for line in answer.aiter_lines():
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    raise ApiError(event["object"].get("code", 500), event["object"].get("message", ""))
                yield event


def _parsed(answer: httpx.Response) -> Json:
    if not answer.is_success:
        try:
            message = str(orjson.loads(answer.content).get("message", ""))
        except (orjson.JSONDecodeError, AttributeError):
            message = answer.text[:200]
        raise ApiError(answer.status_code, message)
    found: Json = orjson.loads(answer.content)
    return found
