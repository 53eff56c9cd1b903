"""The four verbs of a scheduler extender, as one object."""

from dataclasses import dataclass

from extender.scheduling.bind import Bind
from extender.scheduling.filter import Filter
from extender.scheduling.preempt import Preempt
from extender.scheduling.prioritize import Prioritize


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """What kube-scheduler calls. Each verb takes the arguments of `extender.wire` and returns a value of the domain."""

    filter: Filter
    prioritize: Prioritize
    bind: Bind
    preempt: Preempt
