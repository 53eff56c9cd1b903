"""ResourceSlices, DeviceClasses, ResourceClaims and nodes, from JSON of the API server to values of `extender/dra`."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from extender.dra.objects import (
    NOWHERE,
    AllocatedDevice,
    Attribute,
    ClaimRequest,
    DeviceCapacity,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    DraNode,
    NodeSelection,
    RequestPolicy,
    ResourceClaim,
    ResourceSlice,
    SliceDevice,
)
from extender.dra.quantity import Quantity, quantity
from extender.wire.errors import WireError, shown
from extender.wire.parsing import Json, converted, integer_at, list_at, object_at, optional_object_at, text_at
from extender.wire.placement_rules import NodeTerm

T = TypeVar("T")
MOST: Final = 16_384
"""Limit on the entries of one list or map."""
MAX_EXPRESSION: Final = 10_240
"""Characters of a CEL expression, as in the API server."""
_KINDS: Final[Mapping[str, type]] = {"string": str, "int": int, "bool": bool, "version": str}


def slice_from_json(value: object, path: str) -> ResourceSlice:
    """A ResourceSlice. Raises WireError."""
    document = object_at(value, path)
    spec, below = object_at(document.get("spec"), f"{path}.spec"), f"{path}.spec"
    pool = object_at(spec.get("pool"), f"{below}.pool")
    per_device = spec.get("perDeviceNodeSelection")
    return ResourceSlice(
        name=_name(document, path),
        driver=text_at(spec.get("driver"), f"{below}.driver"),
        pool=text_at(pool.get("name"), f"{below}.pool.name"),
        generation=integer_at(pool.get("generation"), f"{below}.pool.generation"),
        count=integer_at(pool.get("resourceSliceCount"), f"{below}.pool.resourceSliceCount"),
        selection=_selection(spec, below),
        per_device=None if per_device is None else per_device is True,
        devices=_each(spec, "devices", below, device_from_json),
        counter_sets=_each(spec, "sharedCounters", below, _counter_set("name")),
    )


def class_from_json(value: object, path: str) -> DeviceClass:
    """A DeviceClass. Raises WireError."""
    document = object_at(value, path)
    spec, below = optional_object_at(document.get("spec"), f"{path}.spec"), f"{path}.spec"
    metadata = object_at(document.get("metadata"), f"{path}.metadata")
    return DeviceClass(
        name=_name(document, path),
        selectors=_each(spec, "selectors", below, _selector),
        config=_each(spec, "config", below, object_at),
        extended_resource=_text(spec, "extendedResourceName", below),
        created=_text(metadata, "creationTimestamp", f"{path}.metadata"),
    )


def claim_from_json(value: object, path: str) -> ResourceClaim:
    """A ResourceClaim. Raises WireError."""
    document = object_at(value, path)
    namespace = _text(object_at(document.get("metadata"), f"{path}.metadata"), "namespace", f"{path}.metadata")
    spec = optional_object_at(document.get("spec"), f"{path}.spec")
    devices, below = optional_object_at(spec.get("devices"), f"{path}.spec.devices"), f"{path}.spec.devices"
    status = optional_object_at(document.get("status"), f"{path}.status")
    allocation, here = status.get("allocation"), f"{path}.status.allocation"
    allocated = None
    if allocation is not None:
        held = optional_object_at(object_at(allocation, here).get("devices"), f"{here}.devices")
        allocated = _each(held, "results", f"{here}.devices", _allocated)
    return ResourceClaim(
        name=f"{namespace}/{_name(document, path)}",
        requests=_each(devices, "requests", below, request_from_json),
        constraints=_each(devices, "constraints", below, _constraint),
        config=_each(devices, "config", below, _config),
        allocated=allocated,
    )


def dra_node_from_json(value: object, path: str) -> DraNode:
    """The name and the labels of a Node. Raises WireError."""
    document = object_at(value, path)
    metadata = object_at(document.get("metadata"), f"{path}.metadata")
    labels = converted(metadata.get("labels") or {}, dict[str, str], f"{path}.metadata.labels")
    return DraNode(_name(document, path), labels)


def _name(document: Json, path: str) -> str:
    return text_at(object_at(document.get("metadata"), f"{path}.metadata").get("name"), f"{path}.metadata.name")


def _text(value: Json, key: str, path: str) -> str:
    found = value.get(key)
    return "" if found is None else text_at(found, f"{path}.{key}")


def _texts(value: Json, key: str, path: str) -> tuple[str, ...]:
    return _each(value, key, path, text_at)


def _each(value: Json, key: str, path: str, read: Callable[[object, str], T]) -> tuple[T, ...]:
    below = f"{path}.{key}"
    return tuple(read(each, f"{below}[{i}]") for i, each in enumerate(list_at(value.get(key), below, MOST)))


def _map(value: Json, key: str, path: str, read: Callable[[object, str], T]) -> dict[str, T]:
    entries = optional_object_at(value.get(key), f"{path}.{key}")
    return {name: read(each, f"{path}.{key}.{name[:64]}") for name, each in entries.items()}


def _quantity(value: object, path: str) -> Quantity:
    try:
        return quantity(str(value) if type(value) is int else text_at(value, path))
    except ValueError as error:
        if isinstance(error, WireError):
            raise
        raise WireError(path, f"{shown(value)} is not a quantity such as 40Gi") from None


def _selection(value: Json, path: str) -> NodeSelection:
    """A node selector may have only one term."""
    node_name, all_nodes, written = (
        _text(value, "nodeName", path),
        value.get("allNodes") is True,
        value.get("nodeSelector"),
    )
    if written is None:
        return NodeSelection(node_name, all_nodes) if node_name or all_nodes else NOWHERE
    terms = list_at(object_at(written, f"{path}.nodeSelector").get("nodeSelectorTerms"), f"{path}.nodeSelector", MOST)
    parsed = converted(terms, list[NodeTerm], f"{path}.nodeSelector.nodeSelectorTerms")
    first: Mapping[str, Any] = terms[0] if terms and isinstance(terms[0], dict) else {}
    return NodeSelection(
        node_name,
        all_nodes,
        partial(_matches_any, parsed),
        tuple(first.get("matchFields") or ()),
        tuple(first.get("matchExpressions") or ()),
    )


def _matches_any(terms: Sequence[NodeTerm], node: DraNode) -> bool:
    return any(term.matches(node.name, node.labels) for term in terms)


def device_from_json(value: object, path: str) -> SliceDevice:
    """A device of a slice. Raises WireError."""
    device = object_at(value, path)
    return SliceDevice(
        name=text_at(device.get("name"), f"{path}.name"),
        attributes=_map(device, "attributes", path, _attribute),
        capacity=_map(device, "capacity", path, _capacity),
        is_shared=device.get("allowMultipleAllocations") is True,
        taints=_each(device, "taints", path, _taint),
        consumes=_each(device, "consumesCounters", path, _counter_set("counterSet")),
        selection=_selection(device, path),
        binds_to_node=device.get("bindsToNode") is True,
        binding_conditions=_texts(device, "bindingConditions", path),
        binding_failures=_texts(device, "bindingFailureConditions", path),
    )


def _attribute(value: object, path: str) -> Attribute:
    """The attribute. One of an unknown kind has no value."""
    for kind, found in object_at(value, path).items():
        expected = _KINDS.get(kind.removesuffix("s"))
        values = list_at(found, path, MOST) if kind.endswith("s") else [found]
        if expected is not None:
            if any(type(each) is not expected for each in values):
                raise WireError(f"{path}.{kind}", f"{shown(found)} is not of this kind")
            return Attribute(kind, tuple(values) if kind.endswith("s") else found)
    return Attribute("", None)


def _capacity(value: object, path: str) -> DeviceCapacity:
    capacity = object_at(value, path)
    amount, written = _quantity(capacity.get("value"), f"{path}.value"), capacity.get("requestPolicy")
    if written is None:
        return DeviceCapacity(amount)
    policy, below = object_at(written, f"{path}.requestPolicy"), f"{path}.requestPolicy"
    limits = optional_object_at(policy.get("validRange"), f"{below}.validRange")
    given = {
        key: _quantity(limits[key], f"{below}.validRange.{key}") for key in ("min", "max", "step") if key in limits
    }
    default = policy.get("default")
    return DeviceCapacity(
        amount,
        RequestPolicy(
            None if default is None else _quantity(default, f"{below}.default"),
            given.get("min"),
            given.get("max"),
            given.get("step"),
            _each(policy, "validValues", below, _quantity),
        ),
    )


def _taint(value: object, path: str) -> DeviceTaint:
    taint = object_at(value, path)
    return DeviceTaint(*(_text(taint, key, path) for key in ("key", "value", "effect")))


def _toleration(value: object, path: str) -> DeviceToleration:
    written = object_at(value, path)
    key, operator, own, effect = (_text(written, name, path) for name in ("key", "operator", "value", "effect"))
    return DeviceToleration(key, operator, own, effect, written)


def _counter_set(name: str) -> Callable[[object, str], tuple[str, Mapping[str, int]]]:
    def read(value: object, path: str) -> tuple[str, Mapping[str, int]]:
        counters = _map(object_at(value, path), "counters", path, _amount)
        return _text(object_at(value, path), name, path), counters

    return read


def _amount(value: object, path: str) -> int:
    return _quantity(object_at(value, path).get("value"), f"{path}.value").nano


def _selector(value: object, path: str) -> str | None:
    cel = object_at(value, path).get("cel")
    expression = None if cel is None else object_at(cel, f"{path}.cel").get("expression")
    if expression is not None and (not isinstance(expression, str) or len(expression) > MAX_EXPRESSION):
        raise WireError(f"{path}.cel.expression", f"a text of at most {MAX_EXPRESSION} characters is expected")
    return expression


def request_from_json(value: object, path: str) -> ClaimRequest:
    """A request of a claim. Raises WireError."""
    request = object_at(value, path)
    name, exactly = text_at(request.get("name"), f"{path}.name"), request.get("exactly")
    if exactly is not None:
        return ClaimRequest(name, (_exact(object_at(exactly, f"{path}.exactly"), name, "", f"{path}.exactly"),))

    def option(part: object, where: str) -> DeviceRequest:
        return _exact(object_at(part, where), text_at(object_at(part, where).get("name"), f"{where}.name"), name, where)

    options = _each(request, "firstAvailable", path, option)
    if not options:
        raise WireError(path, "exactly or firstAvailable is expected")
    return ClaimRequest(name, options, is_list=True)


def _exact(request: Json, name: str, parent: str, path: str) -> DeviceRequest:
    capacity = request.get("capacity")
    wanted = None
    if capacity is not None:
        wanted = _map(object_at(capacity, f"{path}.capacity"), "requests", f"{path}.capacity", _quantity)
    return DeviceRequest(
        name=name,
        class_name=_text(request, "deviceClassName", path),
        mode=_text(request, "allocationMode", path) or "ExactCount",
        number=integer_at(request.get("count"), f"{path}.count") or 1,
        admin_access=request.get("adminAccess") is True,
        has_admin_access=request.get("adminAccess") is not None,
        selectors=_each(request, "selectors", path, _selector),
        tolerations=_each(request, "tolerations", path, _toleration),
        capacity=wanted,
        parent=parent,
    )


def _constraint(value: object, path: str) -> DeviceConstraint:
    constraint = object_at(value, path)
    match, distinct = (_text(constraint, key, path) for key in ("matchAttribute", "distinctAttribute"))
    return DeviceConstraint(match or distinct, not match, frozenset(_texts(constraint, "requests", path)))


def _config(value: object, path: str) -> tuple[tuple[str, ...], Json]:
    entry = object_at(value, path)
    return _texts(entry, "requests", path), {key: each for key, each in entry.items() if key != "requests"}


def _allocated(value: object, path: str) -> AllocatedDevice:
    result = object_at(value, path)
    consumed = result.get("consumedCapacity")
    return AllocatedDevice(
        (_text(result, "driver", path), _text(result, "pool", path), _text(result, "device", path)),
        result.get("adminAccess") is True,
        result.get("shareID") is not None,
        None if consumed is None else {k: v.nano for k, v in _map(result, "consumedCapacity", path, _quantity).items()},
        _text(result, "request", path),
    )
