"""The watches of ResourceSlices and ResourceClaims (`resource.k8s.io/v1`, Kubernetes 1.34 and newer).

The NUMA node of a device is in the attribute `resource.kubernetes.io/numaNode`, since 1.37 the standard, or in one that
its driver has had before. Where the attribute is a list, the first entry is the device's own NUMA node.

RBAC: `list`, `watch` on resourceslices and resourceclaims of resource.k8s.io.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from extender.cluster.dynamic_devices import DynamicDevice, DynamicDevices, PublishedDevices
from extender.kube.changes import Batch, Gone
from extender.kube.fields import integer, items, mapping, text
from extender.kube.watch import Source

MAX_NUMA: Final = 1024
_BASE: Final = "/apis/resource.k8s.io/v1"
_STANDARD: Final = "resource.kubernetes.io/numaNode"
_OWN: Final = ("numaNode", "numaNodeID", "numa")
"""Names without a domain belong to the domain of the driver."""
_COMPATIBLE: Final = "dra.net/numaNode"


class NamedSlice(NamedTuple):
    """One ResourceSlice."""

    name: str
    published: PublishedDevices


class AllocatedClaim(NamedTuple):
    """One ResourceClaim. `claim`: NAMESPACE/NAME; `devices`: driver, pool and name of each; empty: not allocated."""

    claim: str
    devices: tuple[tuple[str, str, str], ...]


class DynamicDevicesFeed:
    """Applies batches to *devices*."""

    def __init__(self, devices: DynamicDevices) -> None:
        self._devices = devices
        self._listed = {"slices": False, "claims": False}

    def apply_slices(self, batch: Batch[NamedSlice]) -> None:
        """Apply changes from the watch of slices."""
        for change in batch.changes:
            self._devices.set_slice(change.value.name, None if isinstance(change, Gone) else change.value.published)
        self._note("slices", is_complete=batch.complete)

    def apply_claims(self, batch: Batch[AllocatedClaim]) -> None:
        """Apply changes from the watch of claims."""
        for change in batch.changes:
            self._devices.set_claim(change.value.claim, () if isinstance(change, Gone) else change.value.devices)
        self._note("claims", is_complete=batch.complete)

    def _note(self, objects: str, *, is_complete: bool) -> None:
        self._listed[objects] = self._listed[objects] or is_complete
        self._devices.complete = all(self._listed.values())


def decode_slice(value: Mapping[str, Any]) -> tuple[str, NamedSlice] | None:
    """The slice under its name. None without a name."""
    name, spec = text(mapping(value, "metadata"), "name"), mapping(value, "spec")
    if not name:
        return None
    driver, pool = text(spec, "driver"), mapping(spec, "pool")
    # Where each device names its own nodes, which of them are local to one node is not read: they count as not listed.
    listed = () if spec.get("perDeviceNodeSelection") is True else items(spec, "devices")
    devices = (
        DynamicDevice(driver, text(pool, "name"), text(device, "name"), numa_of(driver, mapping(device, "attributes")))
        for device in listed
    )
    return name, NamedSlice(
        name,
        PublishedDevices(
            node_name=text(spec, "nodeName"),
            pool=f"{driver}/{text(pool, 'name')}",
            generation=integer(pool, "generation"),
            devices=tuple(devices),
        ),
    )


def numa_of(driver: str, attributes: Mapping[str, Any]) -> int | None:
    """The NUMA node that the attributes of a device name; None if none does."""
    names = (_STANDARD, *(name for own in _OWN for name in (own, f"{driver}/{own}")), _COMPATIBLE)
    for name in names:
        attribute = mapping(attributes, name)
        several = attribute.get("ints")
        value = attribute.get("int", several[0] if isinstance(several, list) and several else None)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_NUMA:
            return value
    return None


def decode_claim(value: Mapping[str, Any]) -> tuple[str, AllocatedClaim] | None:
    """The claim under its namespace and name. None without a name."""
    metadata = mapping(value, "metadata")
    if not text(metadata, "name"):
        return None
    claim = f"{text(metadata, 'namespace')}/{text(metadata, 'name')}"
    allocated = mapping(mapping(mapping(value, "status"), "allocation"), "devices")
    devices = tuple((text(d, "driver"), text(d, "pool"), text(d, "device")) for d in items(allocated, "results"))
    return claim, AllocatedClaim(claim, devices)


SLICES: Final = Source(path=f"{_BASE}/resourceslices", decode=decode_slice)
"""All slices."""
CLAIMS: Final = Source(path=f"{_BASE}/resourceclaims", decode=decode_claim)
"""All claims."""
