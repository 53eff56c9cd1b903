"""Predictions for questions, which worker processes answer: from what the event loop sends them, without other pods.

Pods of one question take devices one after another: each changes the `NodeContext` that the next one gets.
"""

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.dra.objects import AllocatedDevice, DeviceClass, DraNode, ResourceClaim
from extender.dra.pools import SliceIndex
from extender.dra.rules import AllocatorRules
from extender.features.claims.asks import asks_of, search, standing_for
from extender.features.claims.objects import ClaimObjects, NodeClaims
from extender.features.claims.outcomes import answer_of, devices_with
from extender.questions.dra import TakenDevices
from extender.questions.node_context import DynamicDevice, NodeContext
from extender.replay.pod import Pod

_MADE: Final = "+"
"""Before the names of claims that a question has made: no object has such a name."""


@dataclass(frozen=True, slots=True)
class QuestionForecast:
    """Implements `ClaimForecast`. `claims`: those that are not allocated; `templates`: both by NAMESPACE/NAME."""

    rules: AllocatorRules
    classes: Mapping[str, DeviceClass]
    claims: dict[str, ResourceClaim]
    templates: Mapping[str, ResourceClaim]

    @classmethod
    def of(cls, objects: ClaimObjects) -> "QuestionForecast":
        """The classes, claims and templates as of now."""
        return cls(objects.rules, dict(objects.classes), objects.pending(), dict(objects.templates))

    def served(self, pod: Pod, around: NodeContext) -> Collection[str]:
        """See `ClaimForecast`."""
        standing = standing_for(pod, self.classes, self.rules) or {}
        return frozenset(name for name in standing if not (around.allocatable_milli or {}).get(name))

    def take(self, pod: Pod, name: str, around: NodeContext) -> TakenDevices | None:
        """See `ClaimForecast`."""
        here = around.claims
        if around.devices is None or not isinstance(here, NodeClaims):
            return None
        known = ChainMap({each.name: each for each in here.holders}, self.claims)
        asks = asks_of(pod, known.get, self.templates, self.classes, self.rules)
        ask = None if asks is None else asks.on(around.allocatable_milli)
        if ask is None:
            return None
        if not ask.claims:
            return TakenDevices(around.devices, around)
        index = SliceIndex(here.slices, self.rules)
        answer = answer_of(search(ask, DraNode(name, {}), index, self.classes, here.holders, self.rules))
        if not answer:
            return None if answer is None else TakenDevices(around.devices, None)
        devices = devices_with(around.devices, ask.claims, answer[0])
        if len(answer) > 1 or devices is None:
            return None
        return TakenDevices(devices, self._after(around, here, devices, zip(ask.claims, answer[0], strict=True)))

    def _after(
        self,
        around: NodeContext,
        here: NodeClaims,
        devices: Sequence[DynamicDevice],
        given: Iterable[tuple[ResourceClaim, Sequence[AllocatedDevice]]],
    ) -> NodeContext:
        """The node for the next pod. A claim that does not exist gets a name of its own: the next pod has another."""
        number = len(here.holders)

        def named(claim: str) -> str:
            return claim if not claim or claim in self.claims or claim.startswith(_MADE) else f"{_MADE}{number}{claim}"

        new = [each._replace(name=named(each.name), allocated=tuple(found)) for each, found in given]
        renamed = [each._replace(claim=named(each.claim)) if each.is_predicted else each for each in devices]
        return replace(around, devices=renamed, claims=here._replace(holders=(*here.holders, *new)))
