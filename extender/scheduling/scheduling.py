"""The verbs of a scheduler extender as one object."""

from dataclasses import dataclass

from extender.scheduling.bind import Bind
from extender.scheduling.filter import Filter
from extender.scheduling.objections import Objector
from extender.scheduling.prioritize import Prioritize


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """What kube-scheduler calls. Each verb takes the arguments of `extender.wire` and returns a value of the domain.

    `objectors`: what filter, prioritize and bind ask, in this order. The composition adds those of features.
    """

    filter: Filter
    prioritize: Prioritize
    bind: Bind
    objectors: list[Objector]
