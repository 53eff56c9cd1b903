"""What the requests of the claims ask of one node, prepared before the search.

Mirrors: allocator/allocator_incubating.go validateDeviceRequest, isSelectable, selectorsMatch.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from extender.dra.capacity import consumption, is_left
from extender.dra.errors import AllocationError, NotReplayedError
from extender.dra.objects import (
    ALL,
    EXACT_COUNT,
    MAX_DEVICES,
    ClaimRequest,
    Counters,
    DeviceClass,
    DeviceId,
    DeviceRequest,
    DraNode,
    ResourceClaim,
)
from extender.dra.pools import DevicePool, PooledDevice
from extender.dra.quantity import Quantity
from extender.dra.rules import AllocatorRules
from extender.kubelet.budget import Budget

Matcher: TypeAlias = Callable[[str, PooledDevice, Budget], bool]
"""Whether a CEL expression holds for a device. Raises AllocationError for an error, NotReplayedError, BudgetError."""


class AllocatedState:
    """What claims hold, amounts in billionths. Devices with admin access are not held.

    `whole`: devices that no other claim may use. `shared`: those that other claims may use as well. `used`: what is
    consumed of each capacity of the shared devices.
    """

    def __init__(self, claims: Sequence[ResourceClaim], rules: AllocatorRules) -> None:
        self.whole: set[DeviceId] = set()
        self.shared: set[DeviceId] = set()
        self.used: dict[DeviceId, dict[str, int]] = {}
        for each in (each for claim in claims for each in claim.allocated or () if not each.admin_access):
            if not (each.is_shared and rules.consumable_capacity):
                self.whole.add(each.id)
                continue
            self.shared.add(each.id)
            if each.consumed is not None:
                used = self.used.setdefault(each.id, {})
                for name, amount in each.consumed.items():
                    used[name] = used.get(name, 0) + amount


class Surroundings(NamedTuple):
    """All that a search reads but the claims."""

    node: DraNode
    pools: Sequence[DevicePool]
    classes: Mapping[str, DeviceClass]
    held: AllocatedState
    matches: Matcher
    rules: AllocatorRules
    budget: Budget


class Ask:
    """One exact request or subrequest. `number`: its devices; `all_devices`: where it asks for all."""

    def __init__(self, request: DeviceRequest, claim: ResourceClaim, around: Surroundings) -> None:
        self.request = request
        self.device_class = _class_of(request, claim, around)
        self.number = request.number
        self.all_devices: list[PooledDevice] = []
        self._claim = claim
        self._around = around
        self._known: dict[int, bool] = {}
        self._consumption: dict[int, dict[str, Quantity] | None] = {}
        if self.is_all:
            self.all_devices = list(self._every_device())
            self.number = len(self.all_devices)
        elif request.mode != EXACT_COUNT:
            raise AllocationError(f"{self.where}: the allocation mode {request.mode} is not supported")

    @property
    def is_all(self) -> bool:
        """Whether it asks for all devices."""
        return self.request.mode == ALL

    @property
    def where(self) -> str:
        """The request, for messages."""
        return f"claim {self._claim.name}, request {self.request.name}"

    def _every_device(self) -> list[PooledDevice]:
        found = []
        for pool in self._around.pools:
            if pool.is_incomplete or pool.is_invalid:
                state = "being updated" if pool.is_incomplete else "invalid"
                raise AllocationError(f"{self.where} asks for all devices, and pool {'/'.join(pool.id)} is {state}")
            for candidate in pool.candidates():
                self._around.budget.spend()
                if not self.selects(candidate) or not self.fits(candidate):
                    continue
                if self._around.rules.crashes_on_all_with_counters and candidate.device.consumes:
                    raise NotReplayedError("this kube-scheduler crashes on All with counters")
                found.append(candidate)
        return found

    def selects(self, candidate: PooledDevice) -> bool:
        """Whether class, selectors and node allow the device. Raises AllocationError, NotReplayedError, BudgetError."""
        device = candidate.device
        if not self._around.rules.binding_conditions and device.binding_conditions:
            return False
        known = self._known.get(id(device))
        if known is None:
            known = self._known[id(device)] = self._evaluate(candidate)
        return known

    def _evaluate(self, candidate: PooledDevice) -> bool:
        for kind, selectors in (("class", self.device_class.selectors), ("claim", self.request.selectors)):
            for number, expression in enumerate(selectors):
                if expression is None:
                    raise AllocationError(f"{self.where}: selector {number} is not CEL")
                try:
                    if not self._around.matches(expression, candidate, self._around.budget):
                        return False
                except AllocationError as error:
                    name = self.device_class.name if kind == "class" else self._claim.name
                    raise AllocationError(f"{kind} {name}: selector {number}: {error}") from None
        return not candidate.slice.per_device or candidate.device.selection.fits(self._around.node)

    def fits(self, candidate: PooledDevice, taken: Counters | None = None) -> bool:
        """Whether the device has the capacity. *taken*: what this search has already taken of it, in billionths."""
        if not self._around.rules.consumable_capacity:
            return True
        consumed = self.consumed(candidate)
        held = self._around.held.used.get(candidate.id, {})
        return consumed is not None and is_left(candidate.device, consumed, held, taken or {})

    def consumed(self, candidate: PooledDevice) -> dict[str, Quantity] | None:
        """What it consumes of each capacity of the device; None: the device cannot serve it."""
        key = id(candidate.device)
        if key not in self._consumption:
            self._consumption[key] = consumption(candidate.device, self.request.capacity)
        return self._consumption[key]


def _class_of(request: DeviceRequest, claim: ResourceClaim, around: Surroundings) -> DeviceClass:
    where = f"claim {claim.name}, request {request.name}"
    if request.has_admin_access and not around.rules.admin_access:
        raise AllocationError(f"{where}: admin access is requested, and DRAAdminAccess is off")
    found = around.classes.get(request.class_name)
    if found is None:
        raise AllocationError(f"{where}: there is no device class {request.class_name!r}")
    return found


class PreparedRequest(NamedTuple):
    """A request of a claim with what each of its options asks for."""

    request: ClaimRequest
    options: Sequence[Ask]


def prepare(claim: ResourceClaim, around: Surroundings) -> Sequence[PreparedRequest]:
    """The requests of a claim on one node.

    Raises:
        AllocationError: kube-scheduler gives up, for example because the claim needs more than 32 devices.
        NotReplayedError: the answer is not known.
        BudgetError: it takes too many steps.
    """
    prepared = []
    for request in claim.requests:
        if request.is_list and not around.rules.prioritized_list:
            raise AllocationError(f"claim {claim.name}, request {request.name}: DRAPrioritizedList is off")
        prepared.append(PreparedRequest(request, [Ask(option, claim, around) for option in request.options]))
    least = sum(min((ask.number for ask in each.options), default=0) for each in prepared)
    if least > MAX_DEVICES:
        raise AllocationError(f"claim {claim.name}: {least} devices are requested, more than {MAX_DEVICES}")
    if any(not each.attribute for each in claim.constraints):
        raise AllocationError(f"claim {claim.name}: a constraint is of an unknown type")
    return prepared
