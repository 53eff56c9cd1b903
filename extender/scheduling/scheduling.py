"""The verbs of a scheduler extender as one object, and the function that creates it."""

from dataclasses import dataclass, replace
from typing import TypeVar

from extender.cluster.namespace_demands import NamespaceDemands
from extender.scheduling.bind import Bind, BindSettings
from extender.scheduling.filter import Filter, FilterSettings
from extender.scheduling.objections import Objector
from extender.scheduling.prioritize import Prioritize
from extender.scheduling.shared import SharedParts
from extender.wire.preemption import PreemptionArgs
from extender.wire.scheduler import SchedulerArgs

Args = TypeVar("Args", SchedulerArgs, PreemptionArgs)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingSettings:
    """The settings of each verb."""

    filter: FilterSettings
    bind: BindSettings


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


def make_scheduling(settings: SchedulingSettings, shared: SharedParts) -> Scheduling:
    """The verbs."""
    return Scheduling(
        demands=shared.known.demands,
        objectors=shared.objectors,
        filter=Filter(settings.filter, shared),
        prioritize=Prioritize(settings.filter.seconds, shared),
        bind=Bind(settings.bind, shared),
    )
