"""Demands for alignment after the fact: where kubelets placed the pods that demanded it.

Rules of this file
- Only pods that were bound since this process started count, once a report shows what they hold.
- A placement against the demand is recorded, counted and logged. No pod is deleted.
- Bounded: the last `MAX_RECENT` broken demands.
"""

import logging
from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from extender.cluster.events import AdmissionResult, SettledPod
from extender.kubelet.resolve import resolve
from extender.replay.alignment_demand import Demand
from extender.replay.demands import BrokenDemand, broken_in_state, is_always_met
from extender.scheduling.records.prediction_texts import reported_words

LOG: Final = logging.getLogger(__name__)
MAX_RECENT: Final = 200
_MAX_WORDS: Final = 500


class DemandResult(StrEnum):
    """Where a pod with a demand was placed."""

    MET = "met"
    """As it demands."""
    BROKEN = "broken"
    """Against its demand."""
    NOT_KNOWN = "not_known"
    """The pod was admitted or gone before a report showed what it held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenPlacement:
    """A pod that its kubelet placed against its demand. `at`: seconds of the service's clock.

    `demand` names it as the annotations do; `reported` says in words what the pod holds.
    """

    at: float
    node_name: str
    namespace: str
    pod_name: str
    uid: str
    demand: str
    broken: BrokenDemand
    reported: str


class DemandResults:
    """The results so far, and the last broken demands."""

    def __init__(self) -> None:
        self.counts: Counter[DemandResult] = Counter()
        self.recent: deque[BrokenPlacement] = deque(maxlen=MAX_RECENT)

    def take(self, settled: SettledPod, now: float) -> DemandResult | None:
        """Count one pod; None if it demands nothing, or was not placed at all."""
        demand = settled.pod.demand
        if not demand.is_required or settled.result is AdmissionResult.REFUSED:
            return None
        result = DemandResult.NOT_KNOWN
        if settled.result is AdmissionResult.ADMITTED and settled.state is not None:
            request = resolve(settled.pod, settled.kubelet.rules)
            machine, state = settled.kubelet.machine, settled.state
            broken = None if is_always_met(demand, machine) else broken_in_state(demand, machine, request, state)
            result = DemandResult.MET if broken is None else DemandResult.BROKEN
            if broken is not None:
                self._note(_placement(settled, broken, reported_words(state, settled.pod.uid), now))
        self.counts[result] += 1
        return result

    def _note(self, placement: BrokenPlacement) -> None:
        self.recent.append(placement)
        LOG.warning(
            "pod placed against its demand pod=%s/%s node=%s demand=%r holds=%r",
            placement.namespace,
            placement.pod_name,
            placement.node_name,
            placement.demand,
            placement.reported,
        )


def _placement(settled: SettledPod, broken: BrokenDemand, words: str, now: float) -> BrokenPlacement:
    return BrokenPlacement(
        at=now,
        node_name=settled.node_name,
        namespace=settled.pod.namespace,
        pod_name=settled.pod.name,
        uid=settled.pod.uid,
        demand=words_of(settled.pod.demand),
        broken=broken,
        reported=words[:_MAX_WORDS],
    )


def words_of(demand: Demand) -> str:
    """The demand in the words of its annotations."""
    words = [_words(demand.alignment, demand.scope, demand.memory, demand.resources)]
    words += [f"{name}: {_words(own.alignment, own.memory, own.resources)}" for name, own in demand.containers]
    return "; ".join(filter(None, words))


def _words(*parts: str | tuple[str, ...] | None) -> str:
    return ", ".join(" and ".join(each) if isinstance(each, tuple) else each for each in parts if each is not None)
