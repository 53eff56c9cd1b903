"""The watches of slices, classes, claims and their templates (`resource.k8s.io/v1`, Kubernetes 1.34 and newer).

The NUMA node of a device is in the attribute `resource.kubernetes.io/numaNode`, since 1.37 the standard, or in one that
its driver has had before. Where the attribute is a list, it names every NUMA node that the device is local to, its own
one first. CPUs and memory are on their own one. Without any of these the PCIe root of a device tells its NUMA node, if
the report of the node has that root.

RBAC: `list`, `watch` on resourceslices and resourceclaims of resource.k8s.io, and for predictions on deviceclasses and
resourceclaimtemplates.
"""

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar

from extender.dra.objects import AllocatedDevice, Attribute, DeviceClass, DeviceId, ResourceClaim, ResourceSlice
from extender.dra.pools import PoolId
from extender.features.claims.cpus.choice import CHOSEN, Choice, chosen
from extender.kube.objects import items, mapping, text
from extender.kube.source import Source
from extender.questions.node_context import CPU_DRIVER, DynamicDevice
from extender.wire.dra import claim_from_json, class_from_json, slice_from_json
from extender.wire.errors import WireError

T = TypeVar("T")
MAX_NUMA: Final = 1024
MAX_ASKED: Final = 16 << 10
"""The most characters of the requests of one claim, and of all claims of a pod. The API server takes a megabyte, of
which 64 kB can take seconds to compile."""
MAX_LISTED: Final = 64
"""Entries of a list. The API server allows fewer."""
_BASE: Final = "/apis/resource.k8s.io/v1"
_STANDARD: Final = "resource.kubernetes.io/numaNode"
_OWN: Final = ("numaNode", "numaNodeID", "numa")
"""Names without a domain belong to the domain of the driver."""
_ON_ONE_NODE: Final = (CPU_DRIVER, "dra.memory")
_EXTENDED: Final = "resource.kubernetes.io/extended-resource-claim"
_COMPATIBLE: Final = "dra.net/numaNode"
_ROOT: Final = "resource.kubernetes.io/pcieRoot"


class NamedSlice(NamedTuple):
    """One ResourceSlice. `node_name` empty: its devices are not local to one node.

    `exact`: as the allocator reads it; None: it cannot be read, so it has no devices. `selects_labels`: whether labels
    of nodes matter. `roots`: the PCIe roots of devices whose NUMA node the driver does not name.
    """

    name: str
    node_name: str
    pool_id: PoolId = ("", "")
    generation: int = 0
    devices: Mapping[DeviceId, DynamicDevice] = {}
    exact: ResourceSlice | None = None
    selects_labels: bool = False
    roots: Mapping[DeviceId, str] = {}


class AllocatedClaim(NamedTuple):
    """One ResourceClaim.

    `exact`: as the allocator reads it. Where `is_read` is false, because it cannot be read or asks for too much, it has
    the allocated devices alone. `extended_of`: the UID of the pod for whose extended resources kube-scheduler has made
    it; "": it is another claim.
    """

    exact: ResourceClaim
    extended_of: str = ""
    is_read: bool = True
    uid: str = ""
    chosen: Choice | None = None
    """The node and CPUs that were chosen for it here."""

    @property
    def name(self) -> str:
        """NAMESPACE/NAME."""
        return self.exact.name

    @property
    def devices(self) -> tuple[DeviceId, ...]:
        """Empty: it is not allocated."""
        return tuple(each.id for each in self.exact.allocated or ())


def decode_slice(value: Mapping[str, Any]) -> tuple[str, NamedSlice] | None:
    """The slice under its name. None without a name."""
    name, spec = text(mapping(value, "metadata"), "name"), mapping(value, "spec")
    if not name:
        return None
    exact = _exact(slice_from_json, value)
    if exact is None:
        return name, NamedSlice(name, text(spec, "nodeName"))
    pool_id = exact.driver, exact.pool
    # Where each device names its own nodes, which of them are local to one node is not read: they count as not listed.
    listed = () if exact.per_device else exact.devices
    devices = [DynamicDevice(*pool_id, each.name, numa_of(exact.driver, each.attributes)) for each in listed]
    roots = {
        device.key: str(each.attributes[_ROOT].value)
        for each, device in zip(listed, devices, strict=True)
        if not device.numa and _ROOT in each.attributes and each.attributes[_ROOT].kind == "string"
    }
    selections = (exact.selection, *(device.selection for device in exact.devices))
    return name, NamedSlice(
        name,
        exact.selection.node_name,
        pool_id,
        exact.generation,
        {device.key: device for device in devices},
        exact,
        any(selection.selects is not None for selection in selections),
        roots,
    )


def numa_of(driver: str, attributes: Mapping[str, Attribute]) -> int:
    """The NUMA nodes that the attributes of a device name, as raw bits; 0 if none does."""
    names = (_STANDARD, *(name for own in _OWN for name in (own, f"{driver}/{own}")), _COMPATIBLE)
    for kind, value in (attributes[name] for name in names if name in attributes):
        several = value if kind == "ints" else (value,) if kind == "int" else ()
        nodes = several[: 1 if driver in _ON_ONE_NODE else MAX_LISTED]
        if nodes and all(0 <= node < MAX_NUMA for node in nodes):
            return sum({1 << node for node in nodes})
    return 0


def decode_claim(value: Mapping[str, Any]) -> tuple[str, AllocatedClaim] | None:
    """The claim under its namespace and name. None without a name."""
    metadata = mapping(value, "metadata")
    if not text(metadata, "name"):
        return None
    claim = f"{text(metadata, 'namespace')}/{text(metadata, 'name')}"
    if exact := _exact(claim_from_json, value):
        if exact.allocated is None and len(asked_by(exact)) > MAX_ASKED:
            return claim, AllocatedClaim(ResourceClaim(claim, ()), is_read=False)
        choice = chosen(text(mapping(metadata, "annotations"), CHOSEN))
        return claim, AllocatedClaim(exact, _pod_of_extended(metadata), uid=text(metadata, "uid"), chosen=choice)
    results = items(mapping(mapping(mapping(value, "status"), "allocation"), "devices"), "results")
    ids = (tuple(text(each, key) for key in ("driver", "pool", "device", "request")) for each in results)
    held = tuple(AllocatedDevice((driver, pool, name), request=of) for driver, pool, name, of in ids)
    exact = ResourceClaim(claim, (), allocated=held or None)
    return claim, AllocatedClaim(exact, _pod_of_extended(metadata), is_read=False, uid=text(metadata, "uid"))


def decode_template(value: Mapping[str, Any]) -> tuple[str, ResourceClaim] | None:
    """A claim as it will be made, under namespace and name of the template. None: it cannot be read."""
    claim = decode_claim({"metadata": value.get("metadata"), "spec": mapping(mapping(value, "spec"), "spec")})
    return (claim[0], claim[1].exact) if claim is not None and claim[1].is_read else None


def asked_by(claim: ResourceClaim) -> str:
    """What the claim asks for: equal for claims that ask for the same."""
    return repr((claim.requests, claim.constraints))


def decode_class(value: Mapping[str, Any]) -> tuple[str, DeviceClass] | None:
    """The class under its name. None without a name. One that cannot be read has a selector that cannot be met."""
    name = text(mapping(value, "metadata"), "name")
    return (name, _exact(class_from_json, value) or DeviceClass(name, (None,))) if name else None


def _exact(read: Callable[[object, str], T], value: object) -> T | None:
    try:
        return read(value, "")
    except WireError:
        return None


def _pod_of_extended(metadata: Mapping[str, Any]) -> str:
    """The UID of the pod for whose extended resources kube-scheduler has made the claim; "" for other claims."""
    if text(mapping(metadata, "annotations"), _EXTENDED) != "true":
        return ""
    return next((text(each, "uid") for each in items(metadata, "ownerReferences") if each.get("kind") == "Pod"), "")


SLICES: Final = Source(path=f"{_BASE}/resourceslices", decode=decode_slice, key=attrgetter("name"))
"""All slices."""
CLASSES: Final = Source(path=f"{_BASE}/deviceclasses", decode=decode_class, key=attrgetter("name"))
"""All classes."""
CLAIMS: Final = Source(path=f"{_BASE}/resourceclaims", decode=decode_claim, key=attrgetter("path"))
"""All claims."""
TEMPLATES: Final = Source(path=f"{_BASE}/resourceclaimtemplates", decode=decode_template, key=attrgetter("path"))
"""All templates of claims."""
