"""What the verbs share: the known cluster, the judge, the records, the objectors and the effects."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from extender.cluster.pods import NamespaceDemands, PodRegistry
from extender.cluster.store import NodeStore
from extender.kubelet.verdict import Certainty
from extender.scheduling.api_link import ApiServerLink
from extender.scheduling.barrier import Barrier
from extender.scheduling.cached_judge import CachedJudge, JudgeMetrics
from extender.scheduling.node_totals import NodeTotals
from extender.scheduling.objections import Objector
from extender.scheduling.records.decisions import DecisionLog
from extender.scheduling.records.refusals import RecentRefusals
from extender.scheduling.replays import Offload
from extender.scheduling.victims import LateRunningPods


class SchedulingMetrics(JudgeMetrics, Protocol):
    """Everything that the verbs count."""

    def filtered(self, counts: Mapping[tuple[str, Certainty], int]) -> None:
        """How many candidates got each answer; see `objections.counts_of`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCluster:
    """What is known: of nodes, pods, pods on nodes, the nodes' totals, the API server, and labels of namespaces."""

    nodes: NodeStore
    pods: PodRegistry
    running: LateRunningPods
    totals: NodeTotals
    link: ApiServerLink
    demands: NamespaceDemands


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecords:
    """Records of calls, for explanations and for the next filter call, and of pods that kubelets have just refused."""

    decisions: DecisionLog
    barrier: Barrier
    refusals: RecentRefusals


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """The effects that the verbs need. `clock`: seconds of a monotonic clock; `sleep` waits for that many.

    `offload` runs work off the event loop.
    """

    clock: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    offload: Offload
    metrics: SchedulingMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """What the verbs share. `objectors`: asked in this order; the composition adds them."""

    known: KnownCluster
    judge: CachedJudge
    records: CallRecords
    effects: Effects
    objectors: list[Objector] = field(default_factory=list)
