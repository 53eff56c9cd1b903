"""ResourceSlices, DeviceClasses and ResourceClaims, as far as the allocator reads them. Values only.

A name without a domain belongs to the domain of the driver. Attributes and capacities keep the names as published.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from extender.dra.quantity import Quantity

DeviceId: TypeAlias = tuple[str, str, str]
"""Driver, pool and name."""
Document: TypeAlias = Mapping[str, Any]
"""A part of an object that goes unchanged into an allocation."""
ALL: Final = "All"
EXACT_COUNT: Final = "ExactCount"
MAX_DEVICES: Final = 32
"""Devices of one claim."""


class DraNode(NamedTuple):
    """A node, as node selectors see it."""

    name: str
    labels: Mapping[str, str]


class NodeSelection(NamedTuple):
    """On which nodes a slice or a device can be used. Without any of the three: on none.

    `selects`: what the node selector says. `fields`, `expressions`: the requirements of its only term.
    """

    node_name: str = ""
    all_nodes: bool = False
    selects: Callable[[DraNode], bool] | None = None
    fields: Sequence[Document] = ()
    expressions: Sequence[Document] = ()

    @property
    def is_set(self) -> bool:
        """Whether any of the three is given."""
        return bool(self.node_name) or self.all_nodes or self.selects is not None

    def fits(self, node: DraNode) -> bool:
        """Source: allocator/pools_incubating.go NodeMatches."""
        if self.node_name:
            return self.node_name == node.name
        return self.all_nodes or (self.selects is not None and self.selects(node))


NOWHERE: Final = NodeSelection()


class Attribute(NamedTuple):
    """`kind`: the field of the API that has the value, such as `int` or `strings`; `""` if it is not known.

    `value`: a tuple if it is a list.
    """

    kind: str
    value: Any

    @property
    def is_list(self) -> bool:
        """Whether it has several values."""
        return self.kind.endswith("s")

    @property
    def as_set(self) -> frozenset[tuple[str, Any]]:
        """Its values with their kind. Empty for an unknown kind. A scalar is a set of one."""
        if not self.kind:
            return frozenset()
        return frozenset((self.kind.rstrip("s"), each) for each in (self.value if self.is_list else (self.value,)))


class RequestPolicy(NamedTuple):
    """How a request for a capacity is rounded. `minimum` None: there is no range. `values` empty: any."""

    default: Quantity | None = None
    minimum: Quantity | None = None
    maximum: Quantity | None = None
    step: Quantity | None = None
    values: tuple[Quantity, ...] = ()


class DeviceCapacity(NamedTuple):
    """An amount that requests share."""

    value: Quantity
    policy: RequestPolicy | None = None


class DeviceTaint(NamedTuple):
    """A taint of one device."""

    key: str
    value: str
    effect: str


class DeviceToleration(NamedTuple):
    """`operator` empty is `Equal`; `key` and `effect` empty are any. `document`: as written."""

    key: str
    operator: str
    value: str
    effect: str
    document: Document

    def tolerates(self, taint: DeviceTaint) -> bool:
        """Source: k8s.io/dynamic-resource-allocation/resourceclaim ToleratesTaint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.operator in ("", "Equal") and self.value == taint.value)


Counters: TypeAlias = Mapping[str, int]
"""Name of the counter -> billionths."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SliceDevice:
    """One device of a slice. Equal only to itself.

    `consumes`: the counter sets by name. `selection`: where the slice leaves it to each device.
    """

    name: str
    attributes: Mapping[str, Attribute]
    capacity: Mapping[str, DeviceCapacity]
    is_shared: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    consumes: tuple[tuple[str, Counters], ...] = ()
    selection: NodeSelection = NOWHERE
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ResourceSlice:
    """One slice. `per_device` None: the field is not set. `counter_sets`: each with its name, which may be repeated."""

    name: str
    driver: str
    pool: str
    generation: int
    count: int
    selection: NodeSelection
    per_device: bool | None
    devices: tuple[SliceDevice, ...]
    counter_sets: tuple[tuple[str, Counters], ...] = ()


class DeviceClass(NamedTuple):
    """`selectors`: CEL; None for a selector of another type. `created`: RFC 3339, empty if unknown."""

    name: str
    selectors: tuple[str | None, ...] = ()
    config: tuple[Document, ...] = ()
    extended_resource: str = ""
    created: str = ""


class DeviceRequest(NamedTuple):
    """An exact request, or one subrequest of `firstAvailable`. `parent`: the request of a subrequest, or empty.

    `capacity` None: none is given. `has_admin_access`: whether the field is set.
    """

    name: str
    class_name: str
    mode: str = EXACT_COUNT
    number: int = 1
    admin_access: bool = False
    has_admin_access: bool = False
    selectors: tuple[str | None, ...] = ()
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: Mapping[str, Quantity] | None = None
    parent: str = ""

    @property
    def full_name(self) -> str:
        """REQUEST or REQUEST/SUBREQUEST."""
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def names(self) -> frozenset[str]:
        """The names by which constraints and configurations can mean it."""
        return frozenset((self.full_name, self.parent or self.name))


class ClaimRequest(NamedTuple):
    """`options`: one, or the subrequests of `firstAvailable`. `is_list`: whether it is `firstAvailable`."""

    name: str
    options: tuple[DeviceRequest, ...]
    is_list: bool = False


class DeviceConstraint(NamedTuple):
    """`attribute` empty: of an unknown type. `requests` empty: all."""

    attribute: str
    is_distinct: bool
    requests: frozenset[str]


class AllocatedDevice(NamedTuple):
    """A device that a claim has. `consumed`: billionths of each capacity. None: none is given. `request`: its name."""

    id: DeviceId
    admin_access: bool = False
    is_shared: bool = False
    consumed: Counters | None = None
    request: str = ""


class ResourceClaim(NamedTuple):
    """`name`: NAMESPACE/NAME. `config`: requests and document of each entry. `allocated` None: it is not."""

    name: str
    requests: tuple[ClaimRequest, ...]
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[tuple[tuple[str, ...], Document], ...] = ()
    allocated: tuple[AllocatedDevice, ...] | None = None
