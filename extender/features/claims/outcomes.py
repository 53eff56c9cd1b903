"""Devices that claims get, as values: what kube-scheduler writes, and what a node has afterwards."""

from collections.abc import Sequence
from typing import TypeAlias

from extender.dra.objects import AllocatedDevice, DeviceId, ResourceClaim
from extender.questions.node_context import DynamicDevice
from extender.wire.dra import claim_from_json

Given: TypeAlias = Sequence[Sequence[AllocatedDevice]]
"""The devices of each claim of a pod, in the order of the claims."""
Answer: TypeAlias = Sequence[Given] | None
"""All possible ones. Empty: kube-scheduler allocates nothing there; None: not known."""
Case: TypeAlias = tuple[AllocatedDevice, ...]
"""Devices that pods in flight hold on a node."""


def text_of(case: Case) -> str:
    """Equal for cases that hold the same."""
    return repr(sorted(map(repr, case))) if case else ""


def can_both_be(case: Case, other: Case) -> bool:
    """Whether no device is held twice that only one can hold."""
    held = {each.id for each in case if not each.is_shared and not each.admin_access}
    return not any(each.id in held for each in other if not each.is_shared and not each.admin_access)


def devices_of(allocation: object) -> Sequence[AllocatedDevice]:
    """The devices in an allocation."""
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
    taken = [(each.id, claim.name) for claim, of in zip(claims, given, strict=True) for each in of]
    if not all(key in here for key, _ in taken):
        return None
    keys = {key for key, _ in taken}
    left = (device for device in devices if device.claim or device.key not in keys)
    return [*left, *(here[key]._replace(claim=name, is_predicted=True) for key, name in taken)]
