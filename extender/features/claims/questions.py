"""Predictions for questions, which worker processes answer: from what the event loop sends them, without other pods."""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from extender.dra.objects import DeviceClass, DraNode, ResourceClaim
from extender.dra.pools import SliceIndex
from extender.dra.rules import AllocatorRules
from extender.features.claims.asks import asks_of, search
from extender.features.claims.objects import ClaimObjects, NodeClaims
from extender.features.claims.outcomes import answer_of, devices_with
from extender.questions.node_context import DynamicDevice, NodeContext
from extender.replay.pod import Pod


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

    def devices_for(self, pod: Pod, name: str, around: NodeContext) -> Sequence[DynamicDevice] | None:
        """See `ClaimForecast`."""
        here = around.claims
        if around.devices is None or not isinstance(here, NodeClaims):
            return None
        known = ChainMap({each.name: each for each in here.holders}, self.claims)
        asks = asks_of(pod, known.get, self.templates, self.classes, self.rules)
        ask = None if asks is None else asks.on(around.allocatable_milli)
        if ask is None:
            return None
        index = SliceIndex(here.slices, self.rules)
        answer = answer_of(search(ask, DraNode(name, {}), index, self.classes, here.holders, self.rules))
        return devices_with(around.devices, ask.claims, answer[0]) if answer and len(answer) == 1 else None
