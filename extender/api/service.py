"""What the routes work with, made once by the composition root."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final, Protocol, TypeVar

from extender.api.barrier import Barrier
from extender.api.http.slices import Slices
from extender.cluster.pods import KnownPods
from extender.cluster.store import NodeStore
from extender.config.settings import Settings
from extender.identity import LateAuthority
from extender.observability.lifecycle import Lifecycle
from extender.observability.metrics import Metrics
from extender.questions.node_context import FinishedRequests, LookUp, none_finished, nothing_known
from extender.scheduling.bind import Binds
from extender.scheduling.cache import VerdictMemo
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.preemption.running_pods import UNWATCHED, RunningPods
from extender.scheduling.records.decisions import DecisionLog
from extender.scheduling.records.predictions import Audit
from extender.scheduling.records.refused_pods import WaitingPods
from extender.scheduling.records.unjudged import Troubles

T = TypeVar("T")
SETTLING_SECONDS: Final = 12.0
"""Kubelets send statuses again that did not get through every ten seconds (`status_manager.go` syncPeriod)."""


class Offload(Protocol):
    """Runs what takes long, so that the event loop goes on."""

    def __call__(self, work: Callable[..., T], /, *args: Any) -> Awaitable[T]:
        """Run `work(*args)` elsewhere."""


@dataclass(slots=True)
class Link:
    """The connection with the API server, as it is now.

    `binder` None: no bindings are written here. `trouble`: why the picture of the cluster is not whole; empty while it
    is, or where nobody watches. `failed_at`: when a call last failed, by the service's clock.
    """

    binder: Binds | None = None
    trouble: str = ""
    failed_at: float = -inf

    def is_settling(self, now: float) -> bool:
        """Whether kubelets may still have to tell of pods that ended while the API server could not be reached."""
        return now - self.failed_at < SETTLING_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One extender. `clock` gives seconds of a monotonic clock; `running` knows the pods on nodes, for preemption.

    `surroundings` tells what is known of a live node beside its managers, `finished_requests` what its finished pods
    request, `decisions` what the last calls answered.
    `pods`: what the scheduler said of pods, and where they are; `waiting`: those that no node takes now. `offload`
    takes work off the event loop, `sleep` waits. `troubles`: classes of nodes that could not be judged, and why.
    """

    settings: Settings
    cluster: NodeStore
    memo: VerdictMemo
    judge: BoundedJudge
    metrics: Metrics
    clock: Callable[[], float]
    pods: KnownPods
    audit: Audit
    barrier: Barrier
    link: Link = field(default_factory=Link)
    offload: Offload = asyncio.to_thread
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    running: RunningPods = UNWATCHED
    waiting: WaitingPods = field(default_factory=lambda: WaitingPods(10_000, 600.0))
    authority: LateAuthority = field(default_factory=LateAuthority)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    surroundings: LookUp = nothing_known
    finished_requests: FinishedRequests = none_finished
    decisions: DecisionLog = field(default_factory=DecisionLog)
    troubles: Troubles = field(default_factory=Troubles)
    slices: Slices = field(default_factory=Slices)
