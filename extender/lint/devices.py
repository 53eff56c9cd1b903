"""ResourceSlices of DRA drivers, and claims: what kube-scheduler does otherwise than their authors expect.

Source: the bugs of docs/dra.md, and the NUMA attributes of docs/alignment.md.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from extender.lint.catalogue import Finding, found
from extender.lint.documents import Located

CLAIM_KINDS: Final = ("ResourceClaim", "ResourceClaimTemplate")
_LISTS: Final = ("ints", "bools", "strings", "versions")
_NUMA: Final = ("numaNode", "numaNodeID", "numa")
_ROOT: Final = "resource.kubernetes.io/pcieRoot"
_CPU_DRIVER: Final = "dra.cpu"
_SECOND_SOCKET: Final = "cpudevsocket001"


def lint_devices(documents: Sequence[Located]) -> Iterator[Finding]:
    """Findings about all slices and claims."""
    slices = [document for document in documents if document.text("kind") == "ResourceSlice"]
    for document in slices:
        yield from _lint_slice(document)
    yield from _lint_pools(slices)
    for document in documents:
        if document.text("kind") in CLAIM_KINDS:
            template = document.text("kind") == CLAIM_KINDS[1]
            yield from _lint_claim(document.near("spec", "spec") if template else document.near("spec"))


def _lint_slice(document: Located) -> Iterator[Finding]:
    driver, devices = document.text("spec", "driver"), document.items("spec", "devices")
    attributes = [(device, name, value) for device in devices for name, value in device.entries("attributes").items()]
    lists = ((device, name, value) for device, name, value in attributes if any(map(value.get, _LISTS)))
    for device, name, value in lists:
        yield found("dra-list-attribute", value, device=device.text("name"), name=name)
        break  # one finding a slice
    if devices and not any(name == _ROOT or name.rpartition("/")[2] in _NUMA for _, name, _ in attributes):
        yield found("dra-no-numa-node", document.near("spec", "devices"), driver=driver)
    for device in devices if driver == _CPU_DRIVER else ():
        if device.text("name") == _SECOND_SOCKET:
            yield found("dra-cpu-two-sockets", device)


def _lint_pools(slices: Sequence[Located]) -> Iterator[Finding]:
    """Findings about slices that are of one pool, or of pools of one name."""
    by_pool: dict[object, list[Located]] = defaultdict(list)
    with_counters: dict[str, Located] = {}
    for document in slices:
        driver, pool = document.text("spec", "driver"), document.text("spec", "pool", "name")
        by_pool[driver, pool, document.plain("spec", "pool", "generation")].append(document)
        if document.items("spec", "sharedCounters"):
            other = with_counters.setdefault(pool, document)
            if other.text("spec", "driver") != driver:
                place, name = document.near("spec", "sharedCounters"), other.text("spec", "driver")
                yield found("dra-pools-of-one-name", place, pool=pool, driver=driver, other=name)
    for of_pool in by_pool.values():
        counts = [document.plain("spec", "pool", "resourceSliceCount") for document in of_pool]
        for document, count in zip(of_pool, counts, strict=True):
            if count != counts[0]:
                place = document.near("spec", "pool", "resourceSliceCount")
                yield found("dra-slice-count", place, pool=document.text("spec", "pool", "name"), first=counts[0])


def _lint_claim(spec: Located) -> Iterator[Finding]:
    several = {
        request.text("name")
        for request in spec.items("devices", "requests")
        for exact in (request.get("exactly"), *request.items("firstAvailable"))
        if exact is not None and isinstance(count := exact.plain("count"), int) and count > 1
    }
    for constraint in spec.items("devices", "constraints"):
        attribute = constraint.text("distinctAttribute")
        named = {str(each.value).partition("/")[0] for each in constraint.items("requests")}
        if attribute and several & (named or several):
            yield found("dra-distinct-count", constraint.near("distinctAttribute"), attribute=attribute)
