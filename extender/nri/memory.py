"""Memory zones: the NUMA nodes of a container's memory, and the requests that a new one moves to wider zones.

A zone is a set of nodes. Every request belongs to one zone. A zone is overcommitted if the requests of this zone and of
zones inside it exceed its capacity. Requests then move to wider zones, by priority, until it no longer is.

Mirrors: `pkg/resmgr/lib/memory/{allocator,zones,request}.go`. Here an offer is a value with the moves, and not a
journal. As in the plugin, an offer leaves empty zones behind, which count as zones in use until the next commit or
release.
"""

from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Final

from extender.kubelet.budget import Budget
from extender.kubelet.sets import iter_bits
from extender.nri.machine import DRAM, HBM, MEMORY_TYPES, PMEM, NriMachine

BEST_EFFORT: Final = 0
BURSTABLE: Final = 1 << 10
GUARANTEED: Final = 1 << 14
PRESERVED: Final = (1 << 15) - 2
"""Priorities of requests; a higher one is moved later (`lib/memory/request.go`)."""

_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class MemoryRequest:
    """A request for memory, booked at the nodes `zone`. `age`: position in the order of creation."""

    id: str
    size_bytes: int
    priority: int
    age: int
    zone: int


@dataclass(frozen=True, slots=True)
class Offer:
    """A zone for a new request, and the zones that other requests move to for it."""

    request: MemoryRequest
    moves: dict[str, int]

    @property
    def zone(self) -> int:
        """The nodes that the new request would get."""
        return self.request.zone


class MemoryBooks:
    """All requests and the zones in use. Mutable: call `copy` before a step that may be undone."""

    __slots__ = ("_budget", "_machine", "age", "requests", "zones")

    def __init__(self, machine: NriMachine, budget: Budget) -> None:
        self._machine: Final = machine
        self._budget = budget
        self.requests: dict[str, MemoryRequest] = {}
        self.zones: dict[int, int] = {}
        """Bytes of each zone in use. 0 for an empty zone that an offer left behind."""
        self.age = 0

    def copy(self, budget: Budget) -> "MemoryBooks":
        """An independent copy that counts its steps in *budget*."""
        other = MemoryBooks(self._machine, budget)
        other.requests, other.zones, other.age = dict(self.requests), dict(self.zones), self.age
        return other

    def free_bytes(self, nodes: int) -> int:
        """Capacity of *nodes* minus the requests of zones inside them (`zones.go` zoneFree)."""
        booked = 0
        for zone, size in self.zones.items():
            if not zone & ~nodes:
                booked += size
        return self._machine.capacity_bytes(nodes) - booked

    def offer(self, id_: str, size_bytes: int, priority: int, start: int, types: int) -> Offer | None:
        """An offer for a request that starts at the nodes *start* and prefers memory of *types*.

        None if there is none (`allocator.go` GetOffer).
        """
        if not start or id_ in self.requests:
            return None
        types &= self._machine.memory_types
        zone = self._initial_zone(start, types or self._machine.types_of(start))
        zone = self._with_normal_memory(zone, types or self._machine.types_of(start))
        if not zone:
            return None
        self.age += 1
        request = MemoryRequest(id_, size_bytes, priority, self.age, zone)
        self.zones[zone] = self.zones.get(zone, 0) + size_bytes
        is_enough = not self._overcommitted(zone)
        self.zones[zone] -= size_bytes
        if is_enough:
            return Offer(request, {})
        before = self.requests
        self._budget.spend(len(before))
        self.requests = dict(before)
        self._book(request)
        done = self._resolve_overcommit(zone)
        after, self.requests = self.requests, before
        result = Offer(after[id_], {i: r.zone for i, r in after.items() if i != id_ and r is not before[i]})
        for i, r in after.items():
            if i == id_ or r is not before[i]:
                self.zones[r.zone] -= r.size_bytes
                if i != id_:
                    self.zones[before[i].zone] += before[i].size_bytes
        return result if done else None

    def commit(self, offer: Offer) -> dict[str, int]:
        """Apply *offer*, which was made for the current state. Returns the new zones of other requests."""
        self.requests = dict(self.requests)
        for id_, zone in offer.moves.items():
            self._move(self.requests[id_], zone)
        self._book(offer.request)
        self._drop_empty_zones()
        return offer.moves

    def restore(self, id_: str, size_bytes: int, priority: int, zone: int) -> None:
        """Book a request at *zone* as the youngest one, whatever else is booked there."""
        self.age += 1
        self._book(MemoryRequest(id_, size_bytes, priority, self.age, zone))

    def release(self, *ids: str) -> None:
        """Drop these requests, those that there are."""
        found = [self.requests.pop(id_) for id_ in ids if id_ in self.requests]
        for request in found:
            self.zones[request.zone] -= request.size_bytes
        if found:
            self._drop_empty_zones()

    def _drop_empty_zones(self) -> None:
        in_use = {request.zone for request in self.requests.values()}
        self.zones = {zone: size for zone, size in self.zones.items() if zone in in_use}

    def _book(self, request: MemoryRequest) -> None:
        self.requests[request.id] = request
        self.zones[request.zone] = self.zones.get(request.zone, 0) + request.size_bytes

    def _move(self, request: MemoryRequest, zone: int) -> None:
        self.zones[request.zone] -= request.size_bytes
        self._book(replace(request, zone=zone))

    def _initial_zone(self, start: int, types: int) -> int:
        """`allocator.go` findInitialZone: missing types are added, then nodes of other types are dropped."""
        missing = types & ~self._machine.types_of(start)
        zone = start | (self._expansion(start, missing) if missing else 0)
        return zone & self._machine.nodes_of_types[types] or zone

    def _with_normal_memory(self, zone: int, types: int) -> int:
        """`allocator.go` ensureNormalMemory: *zone* with memory that the kernel may use; 0 if there is none."""
        normal = self._machine.normal_nodes
        if zone & normal:
            return zone
        normal_types = self._machine.types_of(normal)
        types &= normal_types
        if not types:
            types = next((t for t in (DRAM, PMEM, HBM) if t & normal_types), 0)
        for _ in self._machine.nodes:
            more = self._expansion(zone, types)
            if not more:
                return 0
            zone |= more
            if zone & normal:
                return zone
        return 0

    def _expansion(self, zone: int, types: int) -> int:
        """The nearest nodes of each type that *zone* lacks (`allocator.go` defaultExpand, newCloseNodesOfType)."""
        result = 0
        for type_ in MEMORY_TYPES:
            if not types & type_:
                continue
            missing = self._machine.nodes_of_types[type_] & ~zone
            best = _NO_LIMIT
            if not missing:
                continue
            for i in iter_bits(zone):
                for distance, nodes in self._machine.near_nodes[i]:
                    if nodes & missing:
                        if distance <= best:
                            best = distance
                            result |= nodes & missing
                        break
        return result

    def _overcommitted(self, nodes: int) -> list[tuple[int, int]]:
        """(zone, excess bytes) of the overcommitted zones with a node of *nodes* (`allocator.go` checkOvercommit)."""
        near = [zone for zone in self.zones if zone & nodes]
        self._budget.spend(len(self.zones) * (1 + len(near) // 16))
        found = []
        for zone in near:
            free = self.free_bytes(zone)
            if free < 0:
                found.append((zone, -free))
        if len(found) > 1:
            users: dict[int, int] = {}
            for request in self.requests.values():
                users[request.zone] = users.get(request.zone, 0) + 1

            def order(a: tuple[int, int], b: tuple[int, int]) -> int:
                return _compare_zones(a[0], b[0], users)

            found.sort(key=cmp_to_key(order))
        return found

    def _resolve_overcommit(self, nodes: int) -> bool:
        """Move requests until no zone with a node of *nodes* is overcommitted. Returns whether that was possible.

        `allocator.go` defaultHandleOvercommit. Ends: every move goes to a wider zone.
        """
        over = self._overcommitted(nodes)
        if not over:
            return True
        while True:
            moved = 0
            for ceiling in (BURSTABLE, GUARANTEED, PRESERVED):
                types = 0
                for extra in (0, *(t for t in MEMORY_TYPES if t & self._machine.memory_types)):
                    types |= extra
                    for zone, spill in over:
                        moved += self._shrink(zone, spill, ceiling, types)
                    over = self._overcommitted(nodes)
                    if not over:
                        return True
            if not moved:
                return False

    def _shrink(self, zone: int, spill: int, ceiling: int, extra: int) -> int:
        """Move requests of *zone* to the next wider zone. Returns the moved bytes (`zones.go` zoneShrinkUsage)."""
        users = [r for r in self.requests.values() if r.zone == zone]
        self._budget.spend(len(self.requests))
        if not users:
            return 0
        more = self._expansion(zone, self._machine.types_of(zone) | extra)
        if not more:
            return 0
        moved = 0
        for request in sorted(users, key=lambda r: (r.priority, r.size_bytes, -r.age)):
            if request.priority > ceiling:
                break
            self._move(request, zone | more)
            moved += request.size_bytes
            if moved >= spill:
                break
        return moved


def _compare_zones(a: int, b: int, users: dict[int, int]) -> int:
    """More users first, then the inner zone first, then the larger (`zones.go` ZonesByUsersSubzonesFirst)."""
    by_users = users.get(b, 0) - users.get(a, 0)
    if by_users:
        return by_users
    if not a & ~b:
        return -1
    if not b & ~a:
        return 1
    return b.bit_count() - a.bit_count() or b - a
