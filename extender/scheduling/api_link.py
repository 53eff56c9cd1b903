"""The state of the connection with the API server, for the verbs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from extender.bounded import BoundedMap
from extender.scheduling.binder import GatedBinder

RESYNC_SECONDS: Final = 12.0
"""Kubelets repeat statuses that did not reach the API server every ten seconds (`status_manager.go` syncPeriod)."""

MAX_FAILED: Final = 10_000
"""For how many nodes failures are kept."""


@dataclass(slots=True)
class ApiServerLink:
    """The connection with the API server.

    `binder` None: this extender writes no bindings. `trouble`: why the known cluster is incomplete; empty while it is
    complete, or where nothing is watched. `stalled`: why the known cluster is not updated although the server answers;
    empty while it is. `late`: watches without progress for long. `unread`: objects that cannot be read, by watch; only
    watches with some.
    """

    binder: GatedBinder | None = None
    trouble: str = ""
    stalled: str = ""
    late: tuple[str, ...] = ()
    unread: Mapping[str, int] = field(default_factory=dict)
    _failed: BoundedMap[str, float] = field(default_factory=lambda: BoundedMap(MAX_FAILED))
    """When a binding last failed, by node, and under "" the watch of pods; seconds of the service's clock."""

    def note_failure(self, now: float, node_name: str = "") -> None:
        """A binding to the node has failed, or with "" the watch of pods, which concerns all nodes."""
        self._failed[node_name] = now

    def note_progress(self, at: float) -> None:
        """The watch of pods made progress at this time: the API server was there, and told what had happened."""
        for name in [name for name, failed_at in self._failed.items() if failed_at < at]:
            del self._failed[name]

    def may_miss_exits(self, node_name: str, now: float) -> bool:
        """Whether pods of the node may have ended during an outage without being known.

        True for `RESYNC_SECONDS` after the last failure that concerns the node, or until the watch makes progress.
        """
        return any(now - self._failed.get(name, -inf) < RESYNC_SECONDS for name in ("", node_name))
