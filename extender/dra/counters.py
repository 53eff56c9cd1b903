"""The counters that the devices of a pool share, such as the slices of a GPU.

Rules of this file
- All counters of all sets of the pool are compared after each device: one that is used up stops every device that
  consumes any counter.
- Devices that are only for other nodes count too, once they are allocated.

Mirrors: allocator/allocator_incubating.go checkAvailableCounters.
"""

from collections import defaultdict
from collections.abc import Container

from extender.dra.objects import DeviceId
from extender.dra.pools import DevicePool, PooledDevice
from extender.kubelet.budget import Budget


class CounterBook:
    """The counters in one search. *allocated*: devices that claims have, but for admin access."""

    def __init__(self, allocated: Container[DeviceId], budget: Budget, *, by_driver: bool) -> None:
        self._allocated = allocated
        self._budget = budget
        self._by_driver = by_driver
        self._available: dict[object, dict[tuple[str, str], int]] = {}
        self._consumed: dict[object, dict[tuple[str, str], int]] = defaultdict(lambda: defaultdict(int))

    def reserve(self, candidate: PooledDevice) -> bool:
        """Reserve what the device consumes; False, and nothing is reserved: some counter is not enough."""
        pool = candidate.pool
        key = self._key(pool)
        available = self._available.get(key)
        if available is None:
            available = self._available[key] = self._left(pool)
        self._add(candidate, 1)
        consumed = self._consumed[key]
        self._budget.spend(1 + len(available) // 8)
        if all(amount >= consumed.get(name, 0) for name, amount in available.items()):
            return True
        self._add(candidate, -1)
        return False

    def give_back(self, candidate: PooledDevice) -> None:
        """The device no longer consumes anything."""
        self._add(candidate, -1)

    def _key(self, pool: DevicePool) -> object:
        """Without the driver, two drivers whose pools have one name share the counters of the pool used first."""
        return pool.id if self._by_driver else pool.id[1]

    def _add(self, candidate: PooledDevice, sign: int) -> None:
        consumed = self._consumed[self._key(candidate.pool)]
        for set_name, counters in candidate.device.consumes:
            for name, amount in counters.items():
                consumed[set_name, name] += sign * amount

    def _left(self, pool: DevicePool) -> dict[tuple[str, str], int]:
        left = {(set_name, name): amount for set_name, of in pool.counter_sets.items() for name, amount in of.items()}
        driver, pool_name = pool.id
        for device in (device for each in (*pool.slices, *pool.elsewhere) for device in each.devices):
            self._budget.spend()
            if (driver, pool_name, device.name) in self._allocated:
                for set_name, counters in device.consumes:
                    for name, amount in counters.items():
                        if (set_name, name) in left:
                            left[set_name, name] -= amount
        return left
