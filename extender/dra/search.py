"""The search for devices: depth first over claims, requests, subrequests and devices. The first solution wins.

Rules of this file
- Within a request the next device is searched after the last one. Each request begins with the first pool.
- A solution that would have more than 32 devices in a claim makes a subrequest fail, so that the next one is tried.
- Before 1.36.3 a device that is refused after its counters were reserved keeps them reserved, and so does a shared
  device that is given back. A device whose capacity is refused last stays counted by the constraints.

Mirrors: allocator/allocator_incubating.go allocateOne, allocateDevice.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from extender.dra.constraints import Constraint, constraint_for
from extender.dra.counters import CounterBook
from extender.dra.errors import AllocationError, NotReplayedError
from extender.dra.objects import MAX_DEVICES, DeviceId, ResourceClaim
from extender.dra.pools import PooledDevice
from extender.dra.quantity import Quantity
from extender.dra.requests import Ask, PreparedRequest, Surroundings, prepare

MAX_DEPTH: Final = 240
"""Levels of the search: one for each claim, request and device. More are not replayed, because Python limits calls."""
_BLOCKING: Final = ("NoSchedule", "NoExecute")


class Taken(NamedTuple):
    """A device in a solution. `consumed` empty: it is not shared. `has_counters`: whether it reserved its own."""

    ask: Ask
    candidate: PooledDevice
    consumed: Mapping[str, Quantity]
    is_shared: bool
    has_counters: bool


class SearchPlace(NamedTuple):
    """What is searched next: a device of a request. `option` None: no subrequest is chosen yet."""

    claim: int
    request: int = 0
    option: int | None = None
    device: int = 0


class _Outcome(Enum):
    DONE = "done"
    FAILED = "failed"
    TOO_MANY = "too many"
    """Every solution beyond this point has too many devices."""


class Search:
    """One search on one node.

    `steps`: how often the allocator's recursive function runs. `taken`: the devices of each claim. `chosen`: the
    subrequest of each request of `firstAvailable`, by claim and request.
    """

    def __init__(self, claims: Sequence[ResourceClaim], around: Surroundings) -> None:
        self.steps = 0
        self.taken: list[list[Taken]] = [[] for _ in claims]
        self.chosen: dict[tuple[int, int], int] = {}
        self.prepared: list[Sequence[PreparedRequest]] = []
        self._around = around
        self._constraints: list[list[Constraint]] = []
        for claim in claims:
            self.prepared.append(prepare(claim, around))
            self._constraints.append([constraint_for(each, around.rules) for each in claim.constraints])
        usable = (pool for pool in around.pools if not (pool.is_incomplete or pool.is_invalid))
        self._candidates = [candidate for pool in usable for candidate in pool.candidates()]
        around.budget.spend(len(self._candidates))
        self._in_use: dict[DeviceId, set[int]] = {}
        self._amounts: dict[DeviceId, dict[str, int]] = {}
        held = around.held
        by_driver = around.rules.counters_by_driver
        self._counters = CounterBook(held.whole | held.shared, around.budget, by_driver=by_driver)

    def run(self) -> bool:
        """Whether there is a solution, which is then in `taken`.

        Raises:
            AllocationError: kube-scheduler gives up the pod for now.
            NotReplayedError: the answer is not known.
            BudgetError: the search takes too many steps.
        """
        options = (max((a.number for a in each.options), default=0) for requests in self.prepared for each in requests)
        if sum(min(most, MAX_DEVICES) + 2 for most in options) + len(self.prepared) > MAX_DEPTH:
            raise NotReplayedError(f"the search can be more than {MAX_DEPTH} levels deep")
        return self._next(SearchPlace(0), 0) is _Outcome.DONE

    def _next(self, place: SearchPlace, start: int) -> _Outcome:
        """Searches everything from *place* on. *start*: the first candidate."""
        self.steps += 1
        self._around.budget.spend()
        if place.claim == len(self.prepared):
            return _Outcome.DONE
        if place.request == len(self.prepared[place.claim]):
            found = self._next(SearchPlace(place.claim + 1), 0)
            return _Outcome.FAILED if found is _Outcome.TOO_MANY else found
        request = self.prepared[place.claim][place.request]
        if place.option is None and request.request.is_list:
            return self._first_available(place, len(request.options))
        ask = request.options[place.option or 0]
        if ask.is_all and not ask.all_devices:
            return _Outcome.FAILED
        if place.device >= ask.number:
            return self._next(SearchPlace(place.claim, place.request + 1), 0)
        if len(self.taken[place.claim]) + ask.number - place.device > MAX_DEVICES:
            return _Outcome.TOO_MANY
        if ask.is_all:
            return self._this_one(place, ask, ask.all_devices[place.device])
        return self._any_of(place, ask, start)

    def _first_available(self, place: SearchPlace, options: int) -> _Outcome:
        failed = _Outcome.TOO_MANY
        for option in range(options):
            found = self._next(place._replace(option=option), 0)
            if found is _Outcome.DONE:
                self.chosen[place.claim, place.request] = option
                return found
            if found is _Outcome.FAILED:
                failed = found
        return failed

    def _this_one(self, place: SearchPlace, ask: Ask, candidate: PooledDevice) -> _Outcome:
        """A request for all devices needs each of them, so nothing else is tried."""
        taken = self._take(place, ask, candidate, must=True)
        if taken is None:
            return _Outcome.FAILED
        found = self._next(place._replace(device=place.device + 1), 0)
        if found is not _Outcome.DONE:
            self._give_back(place, taken)
        return found

    def _any_of(self, place: SearchPlace, ask: Ask, start: int) -> _Outcome:
        following = place._replace(device=place.device + 1)
        for number in range(start, len(self._candidates)):
            candidate = self._candidates[number]
            self._around.budget.spend()
            if self._is_in_use(place, ask, candidate) or not ask.selects(candidate):
                continue
            if not ask.fits(candidate, self._amounts.get(candidate.id)):
                continue
            taken = self._take(place, ask, candidate, must=False)
            if taken is None:
                continue
            found = self._next(following, number + 1)
            if found is _Outcome.DONE:
                return found
            self._give_back(place, taken)
            if found is _Outcome.TOO_MANY:
                return found
        return _Outcome.FAILED

    def _is_in_use(self, place: SearchPlace, ask: Ask, candidate: PooledDevice) -> bool:
        by_claims = self._in_use.get(candidate.id)
        if ask.request.admin_access:
            return bool(by_claims) and place.claim in (by_claims or ())
        return bool(by_claims) or candidate.id in self._around.held.whole

    def _take(self, place: SearchPlace, ask: Ask, candidate: PooledDevice, *, must: bool) -> Taken | None:
        """Take a selected device; None: it cannot be taken. *must*: a constraint that refuses it is an error."""
        rules, device = self._around.rules, candidate.device
        if self._is_in_use(place, ask, candidate) or (device.consumes and not rules.partitionable_devices):
            return None
        is_shared = device.is_shared and rules.consumable_capacity
        uses_counters = bool(device.consumes) and not (is_shared and self._has_shares(candidate))
        if uses_counters and not self._counters.reserve(candidate):
            return None
        if (rules.device_taints and _is_tainted(ask, candidate)) or not self._meets(place, ask, candidate, must=must):
            if uses_counters and rules.rolls_back:
                self._counters.give_back(candidate)
            return None
        if not ask.fits(candidate, self._amounts.get(candidate.id)):
            if rules.rolls_back:
                self._forget(place, ask, candidate if uses_counters else None)
            return None
        consumed = (ask.consumed(candidate) or {}) if is_shared else {}
        if is_shared:
            self._count(candidate, consumed, 1)
        else:
            self._in_use.setdefault(candidate.id, set()).add(place.claim)
        taken = Taken(ask, candidate, consumed, is_shared, uses_counters)
        self.taken[place.claim].append(taken)
        return taken

    def _has_shares(self, candidate: PooledDevice) -> bool:
        return candidate.id in self._around.held.used or candidate.id in self._amounts

    def _meets(self, place: SearchPlace, ask: Ask, candidate: PooledDevice, *, must: bool) -> bool:
        constraints = self._constraints[place.claim]
        for number, constraint in enumerate(constraints):
            self._around.budget.spend()
            if not constraint.add(ask.request, candidate):
                if must:
                    raise AllocationError(f"{ask.where}: a constraint refuses device {'/'.join(candidate.id)}")
                for earlier in constraints[:number]:
                    earlier.remove(ask.request)
                return False
        return True

    def _forget(self, place: SearchPlace, ask: Ask, with_counters: PooledDevice | None) -> None:
        for constraint in self._constraints[place.claim]:
            constraint.remove(ask.request)
        if with_counters is not None:
            self._counters.give_back(with_counters)

    def _give_back(self, place: SearchPlace, taken: Taken) -> None:
        candidate = taken.candidate
        keeps_counters = taken.is_shared and not self._around.rules.rolls_back
        self._forget(place, taken.ask, candidate if taken.has_counters and not keeps_counters else None)
        if taken.is_shared:
            self._count(candidate, taken.consumed, -1)
        else:
            self._in_use[candidate.id].discard(place.claim)
        self.taken[place.claim].pop()

    def _count(self, candidate: PooledDevice, consumed: Mapping[str, Quantity], sign: int) -> None:
        """Add to what this search takes of a shared device. A device of which nothing is taken is not kept."""
        if not consumed:
            return
        amounts = self._amounts.setdefault(candidate.id, {})
        for name, amount in consumed.items():
            amounts[name] = amounts.get(name, 0) + sign * amount.nano
        if not any(amounts.values()):
            del self._amounts[candidate.id]


def _is_tainted(ask: Ask, candidate: PooledDevice) -> bool:
    return any(
        taint.effect in _BLOCKING and not any(each.tolerates(taint) for each in ask.request.tolerations)
        for taint in candidate.device.taints
    )
