"""What the routes work with, made once by the composition root."""

from collections.abc import Callable
from dataclasses import dataclass, field

from extender.cluster.state import ClusterState
from extender.identity import Authority, NoAuthority
from extender.lifecycle import Lifecycle
from extender.metrics import Metrics
from extender.settings import Settings
from extender.verbs.judge import Judge
from extender.verbs.memo import VerdictMemo
from extender.verbs.running_pods import UNWATCHED, RunningPods


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One extender. `clock` gives seconds of a monotonic clock; `running` knows the pods on nodes, for preemption."""

    settings: Settings
    cluster: ClusterState
    memo: VerdictMemo
    judge: Judge
    metrics: Metrics
    clock: Callable[[], float]
    running: RunningPods = UNWATCHED
    authority: Authority = field(default_factory=NoAuthority)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
