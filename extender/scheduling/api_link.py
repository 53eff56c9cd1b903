"""The state of the connection with the API server, for the verbs."""

from dataclasses import dataclass
from math import inf
from typing import Final

from extender.scheduling.binder import GatedBinder

RESYNC_SECONDS: Final = 12.0
"""Kubelets repeat statuses that did not reach the API server every ten seconds (`status_manager.go` syncPeriod)."""


@dataclass(slots=True)
class ApiServerLink:
    """The connection with the API server.

    `binder` None: this extender writes no bindings. `trouble`: why the known cluster is incomplete; empty while it is
    complete, or where nothing is watched. `failed_at`: when a call last failed, seconds of the service's clock.
    """

    binder: GatedBinder | None = None
    trouble: str = ""
    failed_at: float = -inf

    def note_failure(self, now: float) -> None:
        """A call to the API server has failed."""
        self.failed_at = now

    def may_miss_exits(self, now: float) -> bool:
        """Whether pods may have ended during an outage without a report of their kubelets so far."""
        return now - self.failed_at < RESYNC_SECONDS
