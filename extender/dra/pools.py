"""The pools of devices that a node can use.

Rules of this file
- A pool consists of its slices that fit the node, and of those with counter sets, whatever their node. Only the highest
  generation among them counts.
- The first slice says how many slices there are. If another number fits, all slices of the pool in the cluster are
  counted. A newer generation elsewhere hides the pool; another number makes it incomplete.
- Pools are in the order of driver and name, those with binding conditions last; slices are in the order of their names.
  Python compares texts by code points. That is the order of their bytes in UTF-8, by which Go compares.

Mirrors: allocator/pools_incubating.go GatherPools.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, TypeAlias

from extender.dra.objects import Counters, DeviceId, DraNode, ResourceSlice, SliceDevice
from extender.dra.rules import AllocatorRules
from extender.kubelet.budget import Budget

PoolId: TypeAlias = tuple[str, str]
"""Driver and pool."""


class PooledDevice(NamedTuple):
    """A device of a pool that a node can use, if its own node selection allows it."""

    id: DeviceId
    device: SliceDevice
    slice: ResourceSlice
    pool: "DevicePool"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DevicePool:
    """`slices`: those with devices for the node; `elsewhere`: other ones, whose devices may consume its counters."""

    id: PoolId
    slices: tuple[ResourceSlice, ...] = ()
    elsewhere: tuple[ResourceSlice, ...] = ()
    counter_sets: Mapping[str, Counters] = field(default_factory=dict)
    is_incomplete: bool = False
    is_invalid: bool = False

    def candidates(self) -> Iterator[PooledDevice]:
        """Its devices, in order."""
        for each in self.slices:
            yield from self.of_slice(each)

    def of_slice(self, each: ResourceSlice) -> Iterator[PooledDevice]:
        """The devices of one of its slices, in order."""
        driver, pool = self.id
        return (PooledDevice((driver, pool, device.name), device, each, self) for device in each.devices)


class SliceIndex:
    """All slices of a cluster, by what makes a node look at them. Their order is kept."""

    def __init__(self, slices: Iterable[ResourceSlice], rules: AllocatorRules) -> None:
        self._of_pool: dict[PoolId, list[ResourceSlice]] = defaultdict(list)
        self._of_node: dict[str, list[ResourceSlice]] = defaultdict(list)
        self._anywhere: list[ResourceSlice] = []
        self._rules = rules
        for each in slices:
            self._of_pool[each.driver, each.pool].append(each)
            if each.selection.node_name:
                self._of_node[each.selection.node_name].append(each)
            elif not each.counter_sets:
                self._anywhere.append(each)

    def _looked_at(self, each: ResourceSlice, node: DraNode) -> bool:
        if not self._rules.partitionable_devices and (each.per_device is not None or each.counter_sets):
            return False
        if each.counter_sets or each.selection.is_set:
            return bool(each.counter_sets) or each.selection.fits(node)
        return bool(each.per_device) and any(device.selection.fits(node) for device in each.devices)

    def counts(self, node: DraNode) -> Mapping[PoolId, Sequence[int]]:
        """For each pool whose slices disagree about their number: the numbers, that of the first slice first."""
        grouped = self._grouped(node).items()
        found = {pool_id: list(dict.fromkeys(each.count for each in slices)) for pool_id, slices in grouped}
        return {pool_id: counts for pool_id, counts in found.items() if len(counts) > 1}

    def gather(self, node: DraNode, counts: Mapping[PoolId, int], budget: Budget) -> list[DevicePool]:
        """The pools of *node*. *counts*: the number of slices that counts for pools whose slices disagree."""
        found = []
        for pool_id, slices in self._grouped(node).items():
            budget.spend(1 + sum(len(each.devices) for each in self._of_pool[pool_id]))
            pool = self._pool(pool_id, slices, counts.get(pool_id, slices[0].count))
            found.extend([] if pool is None else [pool])
        if self._rules.sorts_pools:
            found.sort(key=lambda pool: (self._is_last(pool), pool.id))
        return found

    def _is_last(self, pool: DevicePool) -> bool:
        return self._rules.binding_conditions and any(
            device.binding_conditions for each in pool.slices for device in each.devices
        )

    def pool_ids(self, node: DraNode) -> Iterable[PoolId]:
        """The pools that the node looks at."""
        ids = {(each.driver, each.pool): None for each in self._of_node.get(node.name, ())}
        ids |= {(each.driver, each.pool): None for each in self._anywhere if self._looked_at(each, node)}
        return ids | dict.fromkeys(self._bad_elsewhere)

    def _grouped(self, node: DraNode) -> Mapping[PoolId, list[ResourceSlice]]:
        """The slices of each pool that the node looks at, of the highest generation among them."""
        grouped = {}
        for pool_id in self.pool_ids(node):
            slices = [each for each in self._of_pool[pool_id] if self._looked_at(each, node)]
            newest = max((each.generation for each in slices), default=0)
            if slices:
                grouped[pool_id] = [each for each in slices if each.generation == newest]
        return grouped

    @cached_property
    def _bad_elsewhere(self) -> Sequence[PoolId]:
        """The pools that are incomplete, invalid or in doubt already by their slices with counter sets."""
        found = []
        for pool_id, slices in self._of_pool.items() if self._partitions else ():
            counted = [each for each in slices if each.counter_sets]
            newest = max((each.generation for each in counted), default=0)
            current = [each for each in counted if each.generation == newest]
            pool = self._pool(pool_id, current, current[0].count) if current else None
            if len({each.count for each in current}) > 1 or (pool and (pool.is_incomplete or pool.is_invalid)):
                found.append(pool_id)
        return found

    def _pool(self, pool_id: PoolId, slices: Sequence[ResourceSlice], count: int) -> DevicePool | None:
        """The pool of these slices; None: a newer generation hides it."""
        missing: list[ResourceSlice] = []
        if len(slices) != count:
            everywhere, generation = self._of_pool[pool_id], slices[0].generation
            if any(each.generation > generation for each in everywhere):
                return None
            current = [each for each in everywhere if each.generation == generation]
            if len(current) != count:
                return DevicePool(id=pool_id, is_incomplete=True)
            here = {id(each) for each in slices}
            missing = [each for each in current if id(each) not in here]
        with_devices = [each for each in slices if not each.counter_sets] if self._partitions else list(slices)
        if self._rules.sorts_pools:
            with_devices.sort(key=lambda each: each.name)
        sets = [counted for each in slices for counted in each.counter_sets] if self._partitions else []
        if not _is_valid(with_devices, dict(sets), len(sets), [*slices, *missing] if self._partitions else ()):
            return DevicePool(id=pool_id, is_invalid=True)
        return DevicePool(id=pool_id, slices=tuple(with_devices), elsewhere=tuple(missing), counter_sets=dict(sets))

    @property
    def _partitions(self) -> bool:
        return self._rules.partitionable_devices


def _is_valid(
    slices: Sequence[ResourceSlice],
    sets: Mapping[str, Counters],
    number_of_sets: int,
    consumers: Iterable[ResourceSlice],
) -> bool:
    names = [device.name for each in slices for device in each.devices]
    if len(set(names)) < len(names) or len(sets) < number_of_sets:
        return False
    consumed = (part for each in consumers for device in each.devices for part in device.consumes)
    return all(name in sets and counters.keys() <= sets[name].keys() for name, counters in consumed)
