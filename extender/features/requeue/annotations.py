"""Requeues refused pods: changes an annotation of a node, so that kube-scheduler retries its unschedulable pods.

There are two limits, because all watchers of nodes receive every touch. A node is touched at most once in
`per_node_seconds`, and all nodes together `per_second` times with bursts of `burst`. A touch over the limit is not
queued: the caller tries again when it next finds that a refused pod would fit.

RBAC: `patch` on nodes.
"""

import threading
from dataclasses import dataclass, field
from typing import Final

from extender.bounded import BoundedMap
from extender.kube.client import JSON, Requester, path_of
from extender.kube.errors import KubeError

ANNOTATION: Final = "numa-extender/room-changed-at"
MAX_NODES: Final = 20_000
"""For how many nodes the last touch is recorded. The oldest are dropped first."""


@dataclass(slots=True, kw_only=True)
class TouchLimit:
    """A token bucket for all nodes and a minimum pause for each. Reads no clock: *now* is passed in."""

    per_node_seconds: float = 10.0
    per_second: float = 2.0
    burst: int = 10
    _touched: BoundedMap[str, float] = field(default_factory=lambda: BoundedMap(MAX_NODES))
    _tokens: float | None = None
    _filled_at: float = 0.0

    def permits(self, node: str, now: float) -> bool:
        """Whether *node* may be touched at *now* (monotonic seconds). If so, it counts as touched."""
        if self._tokens is None:
            self._tokens, self._filled_at = float(self.burst), now
        self._tokens = min(float(self.burst), self._tokens + (now - self._filled_at) * self.per_second)
        self._filled_at = now
        last = self._touched.get(node)
        if self._tokens < 1.0 or (last is not None and now - last < self.per_node_seconds):
            return False
        self._tokens -= 1.0
        self._touched[node] = now
        return True


@dataclass(frozen=True, slots=True)
class Touched:
    """The annotation was written."""


@dataclass(frozen=True, slots=True)
class Limited:
    """Too soon after the last touch. Nothing was sent."""


@dataclass(frozen=True, slots=True)
class TouchFailed:
    """The server did not accept it."""

    reason: str


class NodeToucher:
    """Touches nodes, in the caller's thread. Thread-safe."""

    def __init__(self, client: Requester, limit: TouchLimit | None = None, *, timeout_seconds: float = 5.0) -> None:
        self._client, self._timeout = client, timeout_seconds
        self._limit = limit or TouchLimit()
        self._lock = threading.Lock()

    def touch(self, node: str, value: str, now: float) -> Touched | Limited | TouchFailed:
        """Set the annotation of *node* to *value*, which must differ from the last one. *now*: monotonic seconds."""
        with self._lock:
            if not self._limit.permits(node, now):
                return Limited()
        patch: JSON = {"metadata": {"annotations": {ANNOTATION: value}}}
        try:
            self._client.request(
                "PATCH",
                path_of("/api/v1", "nodes", name=node),
                body=patch,
                content_type="application/merge-patch+json",
                timeout_seconds=self._timeout,
            )
        except KubeError as error:
            return TouchFailed(str(error))
        return Touched()
