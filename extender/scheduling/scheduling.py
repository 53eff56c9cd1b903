"""The four verbs of a scheduler extender as one object, and the function that creates it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from extender.cluster.namespace_demands import NamespaceDemands
from extender.cluster.pods import PodRegistry
from extender.cluster.store import NodeStore
from extender.scheduling.api_link import ApiServerLink
from extender.scheduling.barrier import Barrier
from extender.scheduling.bind import Bind, BindSettings
from extender.scheduling.cached_judge import CachedJudge, JudgeMetrics
from extender.scheduling.filter import Filter, FilterMetrics, FilterSettings
from extender.scheduling.node_totals import NodeTotals
from extender.scheduling.objections import Objector
from extender.scheduling.offload import Offload
from extender.scheduling.preemption.running_pods import LateRunningPods
from extender.scheduling.prioritize import Prioritize
from extender.scheduling.records.decisions import DecisionLog
from extender.scheduling.records.refusals import RecentRefusals
from extender.wire.preemption import PreemptionArgs
from extender.wire.scheduler import SchedulerArgs

Args = TypeVar("Args", SchedulerArgs, PreemptionArgs)


class SchedulingMetrics(JudgeMetrics, FilterMetrics, Protocol):
    """Everything that the verbs count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingSettings:
    """The settings of each verb."""

    filter: FilterSettings
    bind: BindSettings


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
class Scheduling:
    """What kube-scheduler calls. Each verb takes the arguments of `extender.wire` and returns a value of the domain.

    `objectors`: what filter, prioritize and bind ask, in this order. The composition adds those of features.
    """

    filter: Filter
    prioritize: Prioritize
    bind: Bind
    demands: NamespaceDemands
    objectors: list[Objector]

    def completed(self, args: Args) -> Args:
        """The arguments of a call, the pod with what it demands by its namespace. For filter, prioritize, preempt."""
        pod = self.demands.complete(args.pod)
        return args if pod is args.pod else replace(args, pod=pod)


def make_scheduling(
    settings: SchedulingSettings,
    known: KnownCluster,
    judge: CachedJudge,
    records: CallRecords,
    effects: Effects,
) -> Scheduling:
    """The verbs over *known*, which share *judge*."""
    clock, offload, metrics = effects.clock, effects.offload, effects.metrics
    objectors: list[Objector] = []
    return Scheduling(
        demands=known.demands,
        objectors=objectors,
        filter=Filter(
            settings.filter,
            known.nodes,
            known.pods,
            known.link,
            judge,
            records.barrier,
            records.decisions,
            objectors,
            metrics=metrics,
            clock=clock,
        ),
        prioritize=Prioritize(judge, records.decisions, objectors, seconds=settings.filter.seconds, clock=clock),
        bind=Bind(
            settings.bind,
            known.nodes,
            known.pods,
            known.link,
            judge,
            objectors,
            clock=clock,
            sleep=effects.sleep,
            offload=offload,
        ),
    )
