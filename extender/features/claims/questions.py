"""Predictions for questions, which worker processes answer: from what the event loop sends them, without other pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from extender.dra.cel import match
from extender.dra.objects import DeviceClass, DraNode, ResourceClaim
from extender.dra.pools import SliceIndex
from extender.dra.replay import ALLOCATED, ClusterDevices, allocate
from extender.dra.requests import AllocatedState
from extender.dra.rules import AllocatorRules
from extender.features.claims.forecast import MAX_STEPS
from extender.features.claims.objects import ClaimObjects, NodeClaims
from extender.features.claims.outcomes import devices_of, devices_with
from extender.questions.node_context import DynamicDevice, NodeContext
from extender.replay.pod import Pod


@dataclass(frozen=True, slots=True)
class QuestionForecast:
    """Implements `ClaimForecast`. `claims`: those that are not allocated, by NAMESPACE/NAME."""

    rules: AllocatorRules
    classes: Mapping[str, DeviceClass]
    claims: Mapping[str, ResourceClaim]

    @classmethod
    def of(cls, objects: ClaimObjects) -> "QuestionForecast":
        """The classes and claims as of now."""
        return cls(objects.rules, dict(objects.classes), objects.pending())

    def devices_for(self, pod: Pod, name: str, around: NodeContext) -> Sequence[DynamicDevice] | None:
        """See `ClaimForecast`."""
        claims = [self.claims[each] for each in pod.claims if each in self.claims]
        here = around.claims
        if not claims or "" in pod.claims or around.devices is None or not isinstance(here, NodeClaims):
            return None
        held, matches = AllocatedState(here.holders, self.rules), partial(match, with_lists=self.rules.lists_in_cel)
        cluster = ClusterDevices(SliceIndex(here.slices, self.rules), self.classes, held, matches, self.rules)
        answers = allocate(cluster, DraNode(name, {}), claims, MAX_STEPS)
        if len(answers) > 1 or answers[0].verdict != ALLOCATED:
            return None
        return devices_with(around.devices, claims, [devices_of(each) for each in answers[0].allocations])
