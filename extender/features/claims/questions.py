"""Predictions for questions, which worker processes answer: from what the event loop sends them, without other pods.

Pods of one question take devices one after another: each changes the `NodeContext` that the next one gets.
"""

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.dra.objects import AllocatedDevice, DeviceClass, DeviceId, DraNode, ResourceClaim
from extender.dra.pools import SliceIndex
from extender.dra.rules import AllocatorRules
from extender.features.claims.asks import asks_of, search, standing_for
from extender.features.claims.objects import ClaimObjects, NodeClaims
from extender.features.claims.outcomes import answer_of, devices_with
from extender.questions.dra import ClaimForecast, TakenDevices
from extender.questions.node_context import DynamicDevice, NodeContext
from extender.replay.pod import Pod

_MADE: Final = "+"
"""Before the names of claims that a question has made: no object has such a name."""


@dataclass(frozen=True, slots=True)
class QuestionForecast(ClaimForecast):
    """`claims`: those that are not allocated; `templates`: both by NAMESPACE/NAME."""

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

    def take(self, pod: Pod, name: str, around: NodeContext, *, is_new: bool = True) -> TakenDevices | None:
        """See `ClaimForecast`. The claims that a new pod has from templates are new as well."""
        here, made = around.claims, _made_for(pod) if is_new else ()
        if around.devices is None or not isinstance(here, NodeClaims):
            return None
        known = ChainMap({each.name: each for each in here.holders if each.name not in made}, self.claims)
        asks = asks_of(pod, known.get, self.templates, self.classes, self.rules)
        ask = None if asks is None else asks.on(around.allocatable_milli)
        if ask is None:
            return None
        if not ask.claims:
            return TakenDevices(around.devices, around)
        index = SliceIndex(here.slices, self.rules)
        home = DraNode(next((each.selection.node_name for each in here.slices), name), {})  # of a copy: the original
        listed = {device.key: device.claim for device in around.devices}
        holders = [each for each in here.holders if not _is_freed(each, listed)]
        answer = answer_of(search(ask, home, index, self.classes, holders, self.rules))
        if not answer:
            return None if answer is None else TakenDevices(around.devices, None)
        others = [each._replace(claim=_MADE + each.claim) if each.claim in made else each for each in around.devices]
        devices = devices_with(others, ask.claims, answer[0])
        if len(answer) > 1 or devices is None:
            return None
        kept = self.claims.keys() - made
        here = here._replace(holders=holders)
        return TakenDevices(devices, _after(around, here, devices, zip(ask.claims, answer[0], strict=True), kept))

    def without(self, pods: Iterable[Pod], around: NodeContext) -> NodeContext:
        """See `ClaimForecast`. A claim that was not made for one pod stays."""
        here = around.claims
        if not isinstance(here, NodeClaims) or around.devices is None:
            return around
        gone = {name for pod in pods for name in _made_for(pod)}
        gone |= {here.extended[pod.uid] for pod in pods if pod.uid in here.extended}
        left = tuple(each for each in here.holders if each.name not in gone)
        held = {device.id: each.name for each in left for device in each.allocated or ()}
        devices = [
            each._replace(claim=held.get(each.key, "")) if each.claim in gone else each for each in around.devices
        ]
        return replace(around, devices=devices, claims=here._replace(holders=left))


def _is_freed(holder: ResourceClaim, listed: Mapping[DeviceId, str]) -> bool:
    """Whether the node is an empty copy, which has the devices of the claim without it. *listed*: claims by device."""
    here = [listed[each.id] for each in holder.allocated or () if each.id in listed]
    return bool(here) and not any(here)


def _made_for(pod: Pod) -> Collection[str]:
    """The claims of the pod that are made from templates, and deleted with it."""
    return {name for name, template in zip(pod.claims, pod.templates, strict=False) if template}


def _after(
    around: NodeContext,
    here: NodeClaims,
    devices: Sequence[DynamicDevice],
    given: Iterable[tuple[ResourceClaim, Sequence[AllocatedDevice]]],
    kept: Collection[str],
) -> NodeContext:
    """The node for the next pod. A claim that is not *kept* gets a name of its own: the next pod has another."""
    number = len(here.holders)

    def named(claim: str) -> str:
        return claim if not claim or claim in kept or claim.startswith(_MADE) else f"{_MADE}{number}{claim}"

    new = [each._replace(name=named(each.name), allocated=tuple(found)) for each, found in given]
    renamed = [each._replace(claim=named(each.claim)) if each.is_predicted else each for each in devices]
    return replace(around, devices=renamed, claims=here._replace(holders=(*here.holders, *new)))
