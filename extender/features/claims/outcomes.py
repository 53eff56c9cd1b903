"""Devices that claims get, as values: what kube-scheduler writes, and what a node has afterwards."""

from collections.abc import Sequence
from typing import Final, TypeAlias

from extender.dra.extended import container_of
from extender.dra.objects import AllocatedDevice, DeviceId, ResourceClaim
from extender.dra.replay import ALLOCATED, ERROR, UNKNOWN, AllocatorAnswer
from extender.questions.node_context import DynamicDevice, for_extended
from extender.wire.dra import claim_from_json

Given: TypeAlias = Sequence[Sequence[AllocatedDevice]]
"""The devices of each claim of a pod, in the order of the claims."""
Answer: TypeAlias = Sequence[Given] | None
"""All possible ones. Empty: kube-scheduler allocates nothing there; None: not known."""
Case: TypeAlias = tuple[AllocatedDevice, ...]
"""Devices that pods in flight hold on a node."""
EXTENDED: Final = "/"
"""The name of a claim for extended resources, which does not exist yet."""


def text_of(case: Case) -> str:
    """Equal for cases that hold the same."""
    return repr(sorted(map(repr, case))) if case else ""


def can_both_be(case: Case, other: Case) -> bool:
    """Whether no device is held twice that only one can hold."""
    held = {each.id for each in case if not each.is_shared and not each.admin_access}
    return not any(each.id in held for each in other if not each.is_shared and not each.admin_access)


def answer_of(answers: Sequence[AllocatorAnswer]) -> Answer:
    """What kube-scheduler allocates by the possible answers for a node."""
    if any(each.verdict in (UNKNOWN, ERROR) for each in answers):
        return None
    return [list(map(_devices_of, each.allocations)) for each in answers if each.verdict == ALLOCATED]


def _devices_of(allocation: object) -> Sequence[AllocatedDevice]:
    document = {"metadata": {"name": "claim"}, "status": {"allocation": allocation}}
    return claim_from_json(document, "").allocated or ()


def ids_of(given: Given) -> Sequence[Sequence[DeviceId]]:
    """The devices of each claim, without amounts."""
    return [[each.id for each in devices] for devices in given]


def devices_with(
    devices: Sequence[DynamicDevice], claims: Sequence[ResourceClaim], given: Given
) -> Sequence[DynamicDevice] | None:
    """The devices of a node after *claims* got theirs; None: one of these is not local to the node."""
    here = {device.key: device for device in devices}
    taken = [(each.id, _holder(claim, each)) for claim, of in zip(claims, given, strict=True) for each in of]
    if not all(key in here for key, _ in taken):
        return None
    keys = {key for key, _ in taken}
    left = (device for device in devices if device.claim or device.key not in keys)
    return [*left, *(here[key]._replace(claim=name, is_predicted=True) for key, name in taken)]


def _holder(claim: ResourceClaim, device: AllocatedDevice) -> str:
    return for_extended(container_of(device.request)) if claim.name == EXTENDED else claim.name
