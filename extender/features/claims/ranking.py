"""Prioritize ranks nodes by where the devices of a pod's claims can be (`questions.claim_alignment`).

It replays at most `MAX_RANKED` classes of nodes for a call, for at most `RANKING_SECONDS`, off the event loop. What is
left is unknown. Placements are kept.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import Final

import numpy as np

from extender.bounded import BoundedMap
from extender.cluster.node_class import NodeClass
from extender.features.claims.call_forecast import CallForecast, NodeJudge, SearchLimits
from extender.features.claims.forecast import Forecasts
from extender.features.claims.objects import ClaimObjects
from extender.kubelet.budget import Budget
from extender.questions.claim_alignment import (
    ClaimAlignment,
    Places,
    can_be_ranked,
    claim_alignment_of,
    ranked_by_claims,
)
from extender.questions.dra import places_on
from extender.questions.node_context import NOTHING_KNOWN, DynamicDevice, LookUp
from extender.replay.pod import Pod
from extender.scheduling.effects import Offload
from extender.scheduling.judge import SHARES, time_limit
from extender.scheduling.objections import Objector, Scores
from extender.scheduling.pod_shape import NodeAnswers, PodShape, ShapeJudgements
from extender.wire.scheduler import SchedulerArgs

MAX_RANKED: Final = 10_000
RANKING_SECONDS: Final = 1.0
MAX_SHAPES: Final = 16
MAX_PLACES: Final = 10_000
"""For how many pod shapes, and classes of nodes of one shape, placements are kept."""


class ClaimRanking(Objector):
    """Ranks nodes by whether the devices of a pod's claims can be beside the rest. *clock*: seconds."""

    def __init__(
        self,
        devices: ClaimObjects,
        offload: Offload,
        forecasts: Forecasts | None = None,
        look_up: LookUp = lambda _name: NOTHING_KNOWN,
        *,
        clock: Callable[[], float],
    ) -> None:
        """*forecasts* None: nothing is predicted. *look_up*: says the labels of nodes."""
        self._devices, self._offload, self._clock = devices, offload, clock
        self._forecasts, self._look_up = forecasts, look_up
        self._known: BoundedMap[ShapeJudgements, dict[int, Places]] = BoundedMap(MAX_SHAPES)

    async def score(self, args: SchedulerArgs, answers: NodeAnswers, scores: Scores) -> Scores | None:
        """The scores in bands; see `claim_alignment`."""
        pod = args.pod
        forecast = None if self._forecasts is None else self._forecasts.call(pod, was_filtered=True, offered=args.names)
        if not pod.has_claims and forecast is None:
            return None
        classes: Sequence[NodeClass] = answers.classes.tolist()
        alignments = await self._alignments(pod, answers.entry, answers.names, classes, forecast)
        ranked = np.array([can_be_ranked(each) for each in answers.kinds.judgements], np.bool_)
        return ranked_by_claims(scores, alignments, ranked[answers.codes])

    async def _alignments(
        self,
        pod: Pod,
        entry: ShapeJudgements,
        names: Sequence[str],
        classes: Sequence[NodeClass],
        forecast: CallForecast | None,
    ) -> list[ClaimAlignment]:
        """The answer for each node.

        *entry*: what is known of the pod's shape. *classes*: the classes of the nodes, in the same order.
        """
        if not self._devices.complete:
            return [ClaimAlignment.UNKNOWN] * len(names)
        known = self._places_of(entry)
        limits = SearchLimits(self._look_up, time_limit(self._clock, self._clock() + RANKING_SECONDS))
        nodes = names, classes, self._devices.devices_on
        found, new = await self._offload(_alignments_of, pod, entry.shape, nodes, known, forecast, limits)
        if self._forecasts is not None and forecast is not None:
            self._forecasts.ranked(pod, forecast)
        if len(known) + len(new) > MAX_PLACES:
            known.clear()
        known.update(new)
        return found

    def _places_of(self, entry: ShapeJudgements) -> dict[int, Places]:
        found = self._known.get(entry)
        if found is None:
            found = self._known[entry] = {}
        else:
            self._known.move_to_end(entry)
        return found


def _alignments_of(
    pod: Pod,
    shape: PodShape,
    nodes: tuple[Sequence[str], Sequence[NodeClass], Callable[[str], Sequence[DynamicDevice]]],
    known: Mapping[int, Places],
    forecast: CallForecast | None,
    limits: SearchLimits,
) -> tuple[list[ClaimAlignment], dict[int, Places]]:
    """The answers for *nodes*, and the placements that were not *known*, by class id.

    *nodes*: names, classes, and what returns the devices of one. *forecast* None: nothing is predicted.
    """
    names, classes, devices_on = nodes
    missing = [node_class for node_class in dict.fromkeys(classes) if node_class.id not in known]
    new: dict[int, Places] = {}
    for node_class in islice(missing, MAX_RANKED):
        places = places_on(shape, node_class, Budget(SHARES[1], limits.out_of_time))
        if limits.out_of_time():
            break
        new[node_class.id] = places

    def align(i: int, devices: Sequence[DynamicDevice]) -> ClaimAlignment:
        if not pod.has_claims and not any(each.is_for_extended for each in devices):
            return ClaimAlignment.LIKELY  # a device plugin serves what it requests, so the kubelet aligns it
        places = known.get(classes[i].id) or new.get(classes[i].id, ())
        return claim_alignment_of(pod, classes[i].kubelet, devices, places)

    found: Sequence[ClaimAlignment | None] = [None] * len(names)
    if forecast is not None and len(new) == len(missing):
        found = forecast.judged(names, [each.id for each in classes], NodeJudge("ranking", align, _one_of), limits)
    if not pod.has_claims:
        return [ClaimAlignment.UNKNOWN if each is None else each for each in found], new
    return [align(i, devices_on(names[i])) if each is None else each for i, each in enumerate(found)], new


def _one_of(alignments: Sequence[Sequence[ClaimAlignment]]) -> ClaimAlignment | None:
    """The only one. None: there is none."""
    found = {*chain.from_iterable(alignments)}
    return found.pop() if len(found) == 1 else ClaimAlignment.UNKNOWN if found else None
