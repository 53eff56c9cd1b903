"""POST pods/binding, and its result.

The request carries the pod's UID as a precondition, so a pod recreated under the same name is never bound by mistake.
If the server's answer leaves the outcome open, the pod itself is read. A pod that is on the requested node counts as
`PodBound`, even if another client bound it. If the reply is lost and the pod does not show a node, the outcome is
`MaybeBound`: the caller keeps its assumption until the pod watch shows the pod or the assumption expires.

RBAC: `create` on pods/binding, `get` on pods (all namespaces).
"""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf
from random import random
from typing import Final

from extender.kube.client import JSON, Requester, path_of
from extender.kube.errors import ApiError, Backoff, KubeError, NoReplyError
from extender.kube.objects import mapping, text
from extender.observability.logs import FaultLog
from extender.scheduling.binder import AT_ONCE, BindFailure, Binding, BindOutcome, MaybeBound, NotBound, PodBound

_BACKOFF: Final = Backoff(base_seconds=0.1, cap_seconds=1.0)
_READ_SECONDS: Final = 2.0
_START_SECONDS: Final = 10.0
"""An API server that starts denies calls until it has read the access rules."""
_NO_POD: Final = NotBound("there is no such pod", BindFailure.NOT_FOUND)
_log = logging.getLogger(__name__)


class Binder:
    """Binds pods, in the caller's thread. Thread-safe. *clock*: monotonic seconds."""

    def __init__(
        self, client: Requester, *, timeout_seconds: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._timeout, self._clock = client, timeout_seconds, clock
        self._missed_at = -inf
        """Time of the last call that got no reply."""

    def bind(self, binding: Binding) -> BindOutcome:
        """Bind within `timeout_seconds`, plus at most two for reading the pod after a reply lost early. Raises nothing.

        If the server is overloaded or asks to retry later (429, 503), the call is retried while there is time.
        """
        deadline = self._clock() + self._timeout
        failures = 0
        while True:
            try:
                self._post(binding, deadline)
            except ApiError as error:
                failures += 1
                delay = _BACKOFF.delay_seconds(failures, random, retry_after_seconds=error.retry_after_seconds)
                if error.status in (429, 503) and self._clock() + delay < deadline:
                    time.sleep(delay)
                    continue
                return self._refused(binding, error)
            except NoReplyError as error:
                self._missed_at = self._clock()
                if not error.maybe_done:
                    return NotBound(str(error), BindFailure.AWAY)
                unsure = MaybeBound(str(error))
                return self._look(binding, unsure) if self._clock() < deadline else unsure
            return PodBound()

    def _post(self, binding: Binding, deadline: float) -> None:
        metadata: JSON = {"name": binding.name, "namespace": binding.namespace, "uid": binding.uid}
        if binding.annotations:
            metadata["annotations"] = dict(binding.annotations)
        body: JSON = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node_name},
        }
        path = path_of("/api/v1", "pods", namespace=binding.namespace, name=binding.name, subresource="binding")
        self._client.request("POST", path, body=body, timeout_seconds=deadline - self._clock())

    def _refused(self, binding: Binding, error: ApiError) -> BindOutcome:
        if error.status == 404:
            return _NO_POD
        if error.status == 409:
            return self._look(binding, NotBound(error.message, BindFailure.CONFLICT))
        if error.status == 504:
            return self._look(binding, MaybeBound(str(error)))
        if error.status >= 500:
            return self._look(binding, NotBound(str(error)))
        is_starting = error.status == 403 and self._clock() - self._missed_at < _START_SECONDS
        return NotBound(str(error), BindFailure.AWAY if is_starting else BindFailure.FAILED)

    def _look(self, binding: Binding, unbound: NotBound | MaybeBound) -> BindOutcome:
        """The outcome according to the pod itself. *unbound* if it is on no node."""
        path = path_of("/api/v1", "pods", namespace=binding.namespace, name=binding.name)
        try:
            pod = self._client.request("GET", path, timeout_seconds=_READ_SECONDS)
        except KubeError as error:
            if isinstance(error, ApiError) and error.status == 404:
                return _NO_POD
            return MaybeBound(f"{unbound.reason}; then {error}")
        uid, node = text(mapping(pod, "metadata"), "uid"), text(mapping(pod, "spec"), "nodeName")
        if uid != binding.uid:
            return NotBound(f"the pod has another UID: {uid}", BindFailure.CONFLICT)
        if node == binding.node_name:
            return PodBound()
        return NotBound(f"the pod is on node {node}", BindFailure.CONFLICT) if node else unbound


class AsyncBinder:
    """`BindingApi` for the event loop. Calls run in at most *workers* threads; others wait. *clock*: seconds."""

    def __init__(self, binder: Binder, *, workers: int = AT_ONCE, clock: Callable[[], float] = time.monotonic) -> None:
        self._binder = binder
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="bind")
        self._faults = FaultLog(_log, "bindings", clock)

    async def bind(self, binding: Binding) -> BindOutcome:
        """As `Binder.bind`. Cancelling the caller does not stop a binding in progress.

        During an outage every binding fails, so such failures are logged once a minute.
        """
        outcome = await asyncio.get_running_loop().run_in_executor(self._pool, self._binder.bind, binding)
        if not isinstance(outcome, PodBound) and outcome.label in ("unsure", BindFailure.FAILED, BindFailure.AWAY):
            pod, node_name = f"{binding.namespace}/{binding.name}", binding.node_name
            self._faults.failed("not bound pod=%s node=%s reason=%r", pod, node_name, outcome.reason)
        else:
            self._faults.ended()
        return outcome

    def close(self) -> None:
        """Take no more bindings, and wait for those in progress, which have time limits."""
        self._pool.shutdown(wait=True, cancel_futures=True)
