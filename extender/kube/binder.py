"""POST pods/binding, and its result.

The request carries the pod's UID as a precondition, so a pod recreated under the same name is never bound by mistake.
If the server's answer leaves the outcome open, the pod itself is read. A pod that is on the requested node counts as
`BindingWritten`, even if another client bound it. If the reply is lost and the pod does not show a node, the outcome is
`Failed` with `maybe_bound`: the caller keeps its assumption until the pod watch shows the pod or the assumption
expires.

RBAC: `create` on pods/binding, `get` on pods (all namespaces).
"""

import asyncio
import random as _random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from extender.kube.backoff import Backoff
from extender.kube.client import JSON, Requester, path_of
from extender.kube.errors import ApiError, KubeError, NoReplyError
from extender.kube.fields import mapping, text

_BACKOFF: Final = Backoff(base_seconds=0.1, cap_seconds=1.0)
_READ_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A pod and its node."""

    namespace: str
    name: str
    uid: str
    node_name: str


@dataclass(frozen=True, slots=True)
class BindingWritten:
    """The pod is on the requested node, through this call or an earlier one."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The pod is on another node, is another pod (UID), or is being deleted. Do not retry this binding."""

    reason: str


@dataclass(frozen=True, slots=True)
class NotFound:
    """The pod does not exist."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The result is not known to be final.

    `retriable`: a retry may help. `maybe_bound`: the binding may have been written.
    """

    reason: str
    retriable: bool
    maybe_bound: bool = False


Outcome = BindingWritten | Conflict | NotFound | Failed


class Binder:
    """Binds pods, in the caller's thread. Thread-safe. *clock*: monotonic seconds. *sleep*: waits for that many."""

    def __init__(
        self,
        client: Requester,
        *,
        timeout_seconds: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = _random.random,
    ) -> None:
        self._client, self._timeout = client, timeout_seconds
        self._clock, self._sleep, self._random = clock, sleep, random

    def bind(self, binding: Binding) -> Outcome:
        """Bind within `timeout_seconds` (plus at most two for reading the pod after a lost reply). Raises nothing.

        If the server is overloaded or asks to retry later (429, 503), the call is retried while there is time.
        """
        deadline = self._clock() + self._timeout
        failures = 0
        while True:
            try:
                self._post(binding, deadline)
            except ApiError as error:
                failures += 1
                delay = _BACKOFF.delay_seconds(failures, self._random, retry_after_seconds=error.retry_after_seconds)
                if error.status in (429, 503) and self._clock() + delay < deadline:
                    self._sleep(delay)
                    continue
                return self._refused(binding, error)
            except NoReplyError as error:
                if not error.maybe_done:
                    return Failed(str(error), retriable=True)
                return self._look(binding, Failed(str(error), retriable=True, maybe_bound=True))
            return BindingWritten()

    def _post(self, binding: Binding, deadline: float) -> None:
        body: JSON = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": binding.name, "namespace": binding.namespace, "uid": binding.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node_name},
        }
        path = path_of("/api/v1", "pods", namespace=binding.namespace, name=binding.name, subresource="binding")
        self._client.request("POST", path, body=body, timeout_seconds=deadline - self._clock())

    def _refused(self, binding: Binding, error: ApiError) -> Outcome:
        if error.status == 404:
            return NotFound()
        if error.status == 409:
            return self._look(binding, Conflict(error.message))
        if error.status >= 500:
            return self._look(binding, Failed(str(error), retriable=True, maybe_bound=error.status == 504))
        return Failed(str(error), retriable=error.retriable)

    def _look(self, binding: Binding, unbound: Outcome) -> Outcome:
        """The outcome according to the pod itself. *unbound* if it is on no node."""
        path = path_of("/api/v1", "pods", namespace=binding.namespace, name=binding.name)
        try:
            pod = self._client.request("GET", path, timeout_seconds=_READ_SECONDS)
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 404:
                return NotFound()
            return Failed(f"{unbound}; then {error}", retriable=True, maybe_bound=True)
        uid, node = text(mapping(pod, "metadata"), "uid"), text(mapping(pod, "spec"), "nodeName")
        if uid != binding.uid:
            return Conflict(f"the pod has another UID: {uid}")
        if node == binding.node_name:
            return BindingWritten()
        return Conflict(f"the pod is on node {node}") if node else unbound


class AsyncBinder:
    """The binder for the event loop. Calls run in at most *workers* threads; others wait."""

    def __init__(self, binder: Binder, *, workers: int = 16) -> None:
        self._binder = binder
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="bind")

    async def bind(self, binding: Binding) -> Outcome:
        """As Binder.bind. Cancelling the caller does not stop a binding in progress."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._binder.bind, binding)

    def close(self) -> None:
        """Take no more; wait for those in progress, which have time limits."""
        self._pool.shutdown(wait=True, cancel_futures=True)
