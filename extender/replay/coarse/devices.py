"""Device hints and allocation on counts by kind.

Rules of this file
- Devices of one kind (the same set of NUMA nodes) are interchangeable. Where the kubelet picks at random among kinds,
  the coarse replay has no answer.
- Devices that an ordinary init container leaves to a later container have ids: no answer either.

Mirrors: `extender.kubelet.device_manager`.
"""

from collections.abc import Mapping

from extender.kubelet.budget import Budget
from extender.kubelet.families import touching_at_least
from extender.kubelet.hints import IMPOSSIBLE, Hints, walked_universe
from extender.kubelet.verdict import Provider, Reason
from extender.replay.coarse.amounts import NO_TOPOLOGY, DeviceAmounts, Kinds, touching
from extender.replay.coarse.verdict import CoarseRefusalError, IdsDecideError


class DeviceWalk:
    """The devices of one node while a pod is admitted."""

    __slots__ = ("_amounts", "_free", "_left_by_init")

    def __init__(self, amounts: Mapping[str, DeviceAmounts]) -> None:
        self._amounts = amounts
        self._free: dict[str, dict[int, int]] = {}
        """Free devices by kind, of the resources that the pod took devices of."""
        self._left_by_init: set[str] = set()

    def taken(self) -> dict[str, dict[int, int]]:
        """What the pod took by now, by resource and kind."""
        return {
            resource: {kind: was - free[kind] for kind, was in self._amounts[resource].free if was != free[kind]}
            for resource, free in self._free.items()
        }

    def opinion(self, resource: str, count: int) -> tuple[bool, int] | None:
        """Whether the hardware can serve the request from one NUMA node, and the raw mask of nodes that can now.

        None: no opinion. Source: `device_manager._resource_hints`.
        """
        amounts = self._amounts.get(resource)
        if amounts is None or not amounts.has_topology:
            return None
        if resource in self._left_by_init:
            raise IdsDecideError
        free = self._free.get(resource)
        free_at = amounts.free_at if free is None else touching(free, amounts.numa_ids)
        if (amounts.free_count if free is None else sum(free.values())) < count:
            return True, 0
        able = 0
        for numa, devices in zip(amounts.numa_ids, free_at, strict=True):
            if devices >= count:
                able |= 1 << numa
        return len(amounts.numa_ids) == 1 or max(amounts.all_at) >= count, able

    def hints(self, resource: str, count: int, budget: Budget) -> Hints:
        """The hints in full, of a resource that has an opinion."""
        amounts = self._amounts[resource]
        free = self._free.get(resource, dict(amounts.free))
        if sum(free.values()) < count:
            return IMPOSSIBLE
        space = walked_universe(amounts.numa_ids, Provider.DEVICE)
        budget.spend(space.size >> 5)
        total = touching_at_least(space.ids, _with_topology(amounts.all), count)
        width = space.width(total) or len(space.ids)
        feasible = touching_at_least(space.ids, _with_topology(tuple(sorted(free.items()))), count)
        return Hints.preferring_width(space, feasible, width)

    def allocate(
        self, requests: Mapping[str, int], skipped: frozenset[str], affinity: int | None, *, reusable: bool
    ) -> tuple[tuple[str, Kinds], ...]:
        """Take the devices of one container; returns how many of each kind by resource.

        *skipped*: resources that a DRA claim satisfies. Source: `device_manager.allocate`.

        Raises:
            CoarseRefusalError: too few devices.
            IdsDecideError: see the rules of this file.
        """
        served = [(r, count) for r, count in requests.items() if r in self._amounts and r not in skipped]
        for resource, count in served:
            amounts = self._amounts[resource]
            if resource in self._left_by_init:
                raise IdsDecideError
            free = self._free.get(resource)
            left = amounts.free_count if free is None else sum(free.values())
            if not amounts.healthy or left < count:
                raise CoarseRefusalError(Reason.UNEXPECTED_ADMISSION, Provider.DEVICE, resource)
        taken = []
        for resource, count in served:
            if count:
                taken.append((resource, self._take(resource, count, affinity)))
                if reusable:
                    self._left_by_init.add(resource)
        return tuple(taken)

    def _take(self, resource: str, count: int, affinity: int | None) -> Kinds:
        amounts = self._amounts[resource]
        free = self._free.setdefault(resource, dict(amounts.free))
        taken: dict[int, int] = {}
        for tier in _tiers(free, amounts, affinity):
            inside = sum(free[kind] for kind in tier)
            picked = min(count, inside)
            if picked < inside and picked and len(tier) > 1:
                raise IdsDecideError
            for kind in tier:
                taken[kind] = picked if len(tier) == 1 else free[kind]
            count -= picked
            if not count:
                break
        for kind, number in taken.items():
            free[kind] -= number
        return tuple(sorted((kind, number) for kind, number in taken.items() if number))


def _tiers(free: Mapping[int, int], amounts: DeviceAmounts, affinity: int | None) -> list[list[int]]:
    """Kinds of free devices inside the affinity, then outside, then without NUMA nodes."""
    kinds = [kind for kind, count in free.items() if count]
    if affinity is None or not amounts.has_topology:
        return [kinds]
    aligned = [kind for kind in kinds if kind > 0 and kind & affinity]
    return [
        aligned,
        [kind for kind in kinds if kind > 0 and not kind & affinity],
        [kind for kind in kinds if kind in (0, NO_TOPOLOGY)],
    ]


def _with_topology(kinds: Kinds) -> Kinds:
    return tuple((kind, count) for kind, count in kinds if kind > 0 and count)


def footprint(devices: tuple[tuple[str, Kinds], ...], base: int) -> int | None:
    """The NUMA nodes that a container lies on: those of *base* and of its devices; None where ids decide.

    A device of several NUMA nodes adds none if it belongs to a node that the container is on already.
    """
    span = base
    wide = []
    for _, kinds in devices:
        for kind, _ in kinds:
            if kind > 0 and kind & (kind - 1) and not kind & base:
                wide.append(kind)
            elif kind > 0 and kind & (kind - 1) == 0:
                span |= kind
    if wide and (span != base or len(set(wide)) > 1):
        return None
    return span | (wide[0] & -wide[0]) if wide else span
