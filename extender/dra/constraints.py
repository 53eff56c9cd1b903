"""The constraints of a claim on the attributes of its devices.

Mirrors: allocator/allocator_incubating.go matchAttributeConstraint, constraint.go distinctAttributeConstraint. The
search calls `add` for each device that it allocates, and `remove` in reverse order when it goes back.
"""

from typing import Protocol

from extender.dra.objects import Attribute, DeviceConstraint, DeviceRequest
from extender.dra.pools import PooledDevice
from extender.dra.rules import AllocatorRules


class Constraint(Protocol):
    """The state of one constraint in a search."""

    def add(self, request: DeviceRequest, candidate: PooledDevice) -> bool:
        """Whether the device meets it. If so the device counts from now on."""
        ...

    def remove(self, request: DeviceRequest) -> None:
        """The last device of the request no longer counts."""
        ...


def constraint_for(wanted: DeviceConstraint, rules: AllocatorRules) -> Constraint:
    """The constraint, without any device."""
    return (_DistinctAttribute if wanted.is_distinct else _MatchAttribute)(
        wanted, with_lists=rules.lists_in_constraints
    )


def attribute_of(candidate: PooledDevice, name: str) -> Attribute | None:
    """The attribute of the full *name*; None: the device has none."""
    attributes = candidate.device.attributes
    found = attributes.get(name)
    domain, slash, own = name.partition("/")
    return attributes.get(own) if found is None and slash and domain == candidate.id[0] else found


class _MatchAttribute:
    """All devices have the value of the first one. With lists: a value that all of them have.

    What is common to all is not widened when a device is given back.
    """

    def __init__(self, wanted: DeviceConstraint, *, with_lists: bool) -> None:
        self._wanted = wanted
        self._with_lists = with_lists
        self._number = 0
        self._first: Attribute | None = None
        self._common: frozenset[tuple[str, object]] = frozenset()

    def add(self, request: DeviceRequest, candidate: PooledDevice) -> bool:
        if not _applies(self._wanted, request):
            return True
        attribute = attribute_of(candidate, self._wanted.attribute)
        if attribute is None or not self._matches(attribute):
            return False
        self._number += 1
        return True

    def _matches(self, attribute: Attribute) -> bool:
        if self._with_lists:
            common = attribute.as_set & self._common if self._number else attribute.as_set
            if not common:
                return False
            self._common = common
        elif not self._number:
            self._first = attribute
        elif attribute.is_list or attribute != self._first:
            return False
        return True

    def remove(self, request: DeviceRequest) -> None:
        self._number -= _applies(self._wanted, request)


class _DistinctAttribute:
    """No two devices have the same value. Only the last device of a request is remembered."""

    def __init__(self, wanted: DeviceConstraint, *, with_lists: bool) -> None:
        self._wanted = wanted
        self._with_lists = with_lists
        self._number = 0
        self._last: dict[str, Attribute] = {}

    def add(self, request: DeviceRequest, candidate: PooledDevice) -> bool:
        if not _applies(self._wanted, request):
            return True
        attribute = attribute_of(candidate, self._wanted.attribute)
        if attribute is None or (
            self._number and not all(self._differs(attribute, each) for each in self._last.values())
        ):
            return False
        self._last[request.parent or request.name] = attribute
        self._number += 1
        return True

    def _differs(self, attribute: Attribute, other: Attribute) -> bool:
        if self._with_lists:
            return not attribute.as_set & other.as_set
        return not attribute.is_list and attribute != other

    def remove(self, request: DeviceRequest) -> None:
        if _applies(self._wanted, request):
            self._last.pop(request.parent or request.name, None)
            self._number -= 1


def _applies(wanted: DeviceConstraint, request: DeviceRequest) -> bool:
    return not wanted.requests or not wanted.requests.isdisjoint(request.names)
