"""How much of a device's capacities a request consumes, and whether the device has that much left.

Mirrors: allocator/consumable_capacity.go.
"""

from collections.abc import Mapping

from extender.dra.objects import Counters, DeviceCapacity, SliceDevice
from extender.dra.quantity import NANO, Quantity, whole


def consumption(device: SliceDevice, wanted: Mapping[str, Quantity] | None) -> dict[str, Quantity] | None:
    """What a request consumes of each capacity. None: the device cannot serve it, whatever is in use."""
    wanted = wanted or {}
    if not wanted.keys() <= device.capacity.keys():
        return None
    consumed = {name: _rounded(wanted.get(name), capacity) for name, capacity in device.capacity.items()}
    return None if any(_breaks(consumed[name], device.capacity[name]) for name in consumed) else consumed


def is_left(device: SliceDevice, consumed: Mapping[str, Quantity], *used: Counters) -> bool:
    """Whether the device still has what the request consumes. *used*: what other requests consume, in billionths."""
    return all(
        amount.nano + sum(each.get(name, 0) for each in used) <= device.capacity[name].value.nano
        for name, amount in consumed.items()
    )


def _rounded(wanted: Quantity | None, capacity: DeviceCapacity) -> Quantity:
    """The amount that a request consumes: 7Gi are 8Gi, where the range begins with 2Gi in steps of 2Gi."""
    policy = capacity.policy
    if wanted is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return wanted
    if policy.minimum is not None:
        if wanted.nano < policy.minimum.nano:
            return policy.minimum
        if policy.step is None:
            return wanted
        units, low, step = (-(-each.nano // NANO) for each in (wanted, policy.minimum, policy.step))
        return whole(low + -(-(units - low) // step) * step) if step > 0 else wanted
    enough = [each for each in policy.values if each.nano >= wanted.nano]
    return min(enough) if enough else wanted


def _breaks(amount: Quantity, capacity: DeviceCapacity) -> bool:
    """Whether the amount is greater than one request may have, or is not one of the listed amounts."""
    policy = capacity.policy
    if policy is None:
        return False
    if policy.minimum is not None:
        return policy.maximum is not None and amount.nano > policy.maximum.nano
    return bool(policy.values) and all(each.nano != amount.nano for each in policy.values)
