"""What differs between versions of kube-scheduler and with its feature gates. No other file looks at either.

| rule | from |
| --- | --- |
| pools and slices are sorted | 1.36, but not by the allocator `stable` |
| a device that is refused, or given back, gives back its counters and constraints | 1.36.3 |
| counters are kept by driver and pool, not by the pool's name | 1.36.4 |
| extended resources for which a class stands get a claim | 1.36 |

The bugs that a rule describes have numbers in docs/dra.md.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

_VERSION: Final = re.compile(r"v?1\.(\d{1,3})(?:\.(\d{1,4}))?(?:[-+].*)?", re.ASCII)
OLDEST, NEWEST = 34, 36
"""Minor versions that can be replayed."""
_GATES: Final = {
    "DRAAdminAccess": "admin_access", "DRAPrioritizedList": "prioritized_list", "DRADeviceTaints": "device_taints",
    "DRAPartitionableDevices": "partitionable_devices", "DRAConsumableCapacity": "consumable_capacity",
    "DRADeviceBindingConditions": "binding_conditions", "DRAListTypeAttributes": "lists_in_cel",
}  # fmt: skip
"""The rule that each gate switches."""


class UnknownAllocatorError(ValueError):
    """The behaviour of this version, or with this gate, is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorRules:
    """The switches of one kube-scheduler."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    consumable_capacity: bool = True
    binding_conditions: bool = True
    lists_in_cel: bool = False
    lists_in_constraints: bool = False
    sorts_pools: bool = True
    rolls_back: bool = False
    counters_by_driver: bool = False
    crashes_on_all_with_counters: bool = False
    extended_resources: bool = True


_ALL_ON: Final = AllocatorRules()
_STABLE: Final = AllocatorRules(
    partitionable_devices=False,
    device_taints=False,
    consumable_capacity=False,
    binding_conditions=False,
    sorts_pools=False,
    extended_resources=False,
)
NAMED_GATES: Final[Mapping[str, AllocatorRules]] = {
    "1.36": _ALL_ON,
    "1.36+list": replace(_ALL_ON, lists_in_cel=True),
    "list-everywhere": replace(_ALL_ON, lists_in_cel=True, lists_in_constraints=True),
    "1.34-1.35-defaults": _STABLE,
}
"""Sets of gates, as recordings name them."""


def rules_for(version: str, gates: str | Mapping[str, bool] = "") -> AllocatorRules:
    """The rules of a version such as `1.36.2`. *gates*: a name of `NAMED_GATES`, or gates that differ from the default.

    Raises:
        UnknownAllocatorError: the version cannot be replayed, or not with these gates.
    """
    found = _VERSION.fullmatch(version)
    minor, patch = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
    if not OLDEST <= minor <= NEWEST:
        raise UnknownAllocatorError(f"{version[:32]!r}: only 1.{OLDEST} to 1.{NEWEST} can be replayed")
    named = gates if isinstance(gates, str) else ""
    if named and named not in NAMED_GATES:
        raise UnknownAllocatorError(f"{named[:32]!r}: known are {', '.join(NAMED_GATES)}")
    if named and minor < NEWEST and NAMED_GATES[named] is not _STABLE:
        raise UnknownAllocatorError(f"1.{minor} with the gates {named} was never compared")
    base = NAMED_GATES[named] if named else _by_gates(minor, gates if isinstance(gates, Mapping) else {})
    is_newest = minor == NEWEST
    return replace(
        base,
        rolls_back=is_newest and patch >= 3,
        counters_by_driver=is_newest and patch >= 4,
        crashes_on_all_with_counters=is_newest and patch < 2,
    )


def _by_gates(minor: int, gates: Mapping[str, bool]) -> AllocatorRules:
    switched = {rule: gates[gate] for gate, rule in _GATES.items() if gate in gates}
    if minor == NEWEST:
        found = replace(_ALL_ON, **switched)
        return replace(found, sorts_pools=found.consumable_capacity or found.binding_conditions)
    if replace(_STABLE, **switched) != _STABLE:
        raise UnknownAllocatorError(f"1.{minor} with other gates than the default was never compared")
    return _STABLE
