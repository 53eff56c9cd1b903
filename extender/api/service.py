"""What the routes work with, made once by the composition root."""

from collections.abc import Callable
from dataclasses import dataclass, field

from extender.cluster.state import ClusterState
from extender.identity import Authority, NoAuthority
from extender.lifecycle import Lifecycle
from extender.metrics import Metrics
from extender.settings import Settings
from extender.verbs.decisions import DecisionLog
from extender.verbs.judge import Judge
from extender.verbs.memo import VerdictMemo
from extender.verbs.running_pods import UNWATCHED, RunningPods
from extender.verbs.surroundings import LookUp, nothing_known


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """One extender. `clock` gives seconds of a monotonic clock; `running` knows the pods on nodes, for preemption.

    `surroundings` tells what is known of a live node beside its managers, `decisions` what the last calls answered.
    """

    settings: Settings
    cluster: ClusterState
    memo: VerdictMemo
    judge: Judge
    metrics: Metrics
    clock: Callable[[], float]
    running: RunningPods = UNWATCHED
    authority: Authority = field(default_factory=NoAuthority)
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    surroundings: LookUp = nothing_known
    decisions: DecisionLog = field(default_factory=DecisionLog)
