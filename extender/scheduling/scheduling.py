"""The verbs of a scheduler extender as one object, and the function that creates it."""

from dataclasses import dataclass

from extender.scheduling.bind import Bind, BindSettings
from extender.scheduling.filter import Filter, FilterSettings
from extender.scheduling.objections import Objector
from extender.scheduling.prioritize import Prioritize
from extender.scheduling.shared import SharedParts


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
    objectors: list[Objector]


def make_scheduling(settings: SchedulingSettings, shared: SharedParts) -> Scheduling:
    """The verbs."""
    return Scheduling(
        objectors=shared.objectors,
        filter=Filter(settings.filter, shared),
        prioritize=Prioritize(settings.filter.seconds, shared),
        bind=Bind(settings.bind, shared),
    )
