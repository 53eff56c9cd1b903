"""The watches of ResourceSlices and ResourceClaims (`resource.k8s.io/v1`, Kubernetes 1.34 and newer).

The NUMA node of a device is in the attribute `resource.kubernetes.io/numaNode`, since 1.37 the standard, or in one that
its driver has had before. Where the attribute is a list, it names every NUMA node that the device is local to, its own
one first. CPUs and memory are on their own one.

RBAC: `list`, `watch` on resourceslices and resourceclaims of resource.k8s.io.
"""

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

from extender.features.claims.devices import NO_POD, ExtendedClaim, PublishedDevices
from extender.kube.objects import integer, items, mapping, text
from extender.kube.source import Source
from extender.questions.node_context import CPU_DRIVER, DynamicDevice

MAX_NUMA: Final = 1024
MAX_LISTED: Final = 64
"""Entries of a list. The API server allows fewer."""
_BASE: Final = "/apis/resource.k8s.io/v1"
_STANDARD: Final = "resource.kubernetes.io/numaNode"
_OWN: Final = ("numaNode", "numaNodeID", "numa")
"""Names without a domain belong to the domain of the driver."""
_ON_ONE_NODE: Final = (CPU_DRIVER, "dra.memory")
_EXTENDED: Final = "resource.kubernetes.io/extended-resource-claim"
_REQUEST: Final = re.compile(r"container-(\d{1,4})-request-\d{1,4}")
_COMPATIBLE: Final = "dra.net/numaNode"


class NamedSlice(NamedTuple):
    """One ResourceSlice."""

    name: str
    published: PublishedDevices


class AllocatedClaim(NamedTuple):
    """One ResourceClaim. `claim`: NAMESPACE/NAME; `devices`: driver, pool and name of each; empty: not allocated."""

    claim: str
    devices: tuple[tuple[str, str, str], ...]
    extended: ExtendedClaim = NO_POD


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


def numa_of(driver: str, attributes: Mapping[str, Any]) -> int:
    """The NUMA nodes that the attributes of a device name, as raw bits; 0 if none does."""
    names = (_STANDARD, *(name for own in _OWN for name in (own, f"{driver}/{own}")), _COMPATIBLE)
    for name in names:
        attribute = mapping(attributes, name)
        several = attribute.get("ints", [attribute.get("int")])
        nodes = several[: 1 if driver in _ON_ONE_NODE else MAX_LISTED] if isinstance(several, list) else []
        if nodes and all(type(node) is int and 0 <= node < MAX_NUMA for node in nodes):
            return sum({1 << node for node in nodes})
    return 0


def decode_claim(value: Mapping[str, Any]) -> tuple[str, AllocatedClaim] | None:
    """The claim under its namespace and name. None without a name."""
    metadata = mapping(value, "metadata")
    if not text(metadata, "name"):
        return None
    claim = f"{text(metadata, 'namespace')}/{text(metadata, 'name')}"
    allocated = mapping(mapping(mapping(value, "status"), "allocation"), "devices")
    results = items(allocated, "results")
    devices = tuple((text(d, "driver"), text(d, "pool"), text(d, "device")) for d in results)
    pod_uid = _pod_of_extended(metadata)
    containers = tuple(_container_of(text(d, "request")) for d in results) if pod_uid else ()
    return claim, AllocatedClaim(claim, devices, ExtendedClaim(pod_uid, containers))


def _pod_of_extended(metadata: Mapping[str, Any]) -> str:
    """The UID of the pod for whose extended resources kube-scheduler has made the claim; "" for other claims."""
    if text(mapping(metadata, "annotations"), _EXTENDED) != "true":
        return ""
    return next((text(each, "uid") for each in items(metadata, "ownerReferences") if each.get("kind") == "Pod"), "")


def _container_of(request: str) -> int:
    """The position of the container in the name of a request that kube-scheduler has made; -1 if it has none."""
    found = _REQUEST.fullmatch(request)
    return int(found[1]) if found else -1


SLICES: Final = Source(path=f"{_BASE}/resourceslices", decode=decode_slice, key=attrgetter("name"))
"""All slices."""
CLAIMS: Final = Source(path=f"{_BASE}/resourceclaims", decode=decode_claim, key=attrgetter("path"))
"""All claims."""
