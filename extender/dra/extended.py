"""Extended resources for which kube-scheduler makes a claim: those that a DeviceClass stands for.

Rules of this file
- A class stands for the resource that it names, and every class for `deviceclass.resource.kubernetes.io/CLASS`. Of two
  classes that name one resource the newer one counts, then the lower name. The other class then counts for no resource,
  if kube-scheduler sees it after that one. It sees classes in any order, and here in that of the list.
- Where a device plugin of the node has the resource, the plugin serves it.
- A container that lives on has a request of its own. Init containers that end use what later containers have. One more
  request serves their largest excess.

Mirrors: kube-scheduler `plugins/dynamicresources/extendeddynamicresources.go` of 1.36.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from extender.dra.objects import DeviceClass, DeviceRequest

_PREFIX: Final = "deviceclass.resource.kubernetes.io/"
_REQUEST: Final = re.compile(r"container-(\d{1,4})-request-\d{1,4}", re.ASCII)
NO_DRA, DEVICE_PLUGIN, CLAIM, CANNOT_FIT = "no-dra", "device-plugin", "claim", "filter: cannot fit resource"


class RequestingContainer(NamedTuple):
    """`requests`: all resources that it requests, in whole units. `ends`: an init container that is not a sidecar."""

    name: str
    requests: Mapping[str, int]
    ends: bool = False


class RequestMapping(NamedTuple):
    """Which request of the claim gives the container its resource."""

    container: str
    resource: str
    request: str


class SpecialClaim(NamedTuple):
    """What kube-scheduler does for a pod on a node. `requests`, `mappings`: for the verdict `claim`."""

    verdict: str
    requests: Sequence[DeviceRequest] = ()
    mappings: Sequence[RequestMapping] = ()


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    """The class that stands for each resource."""
    found: dict[str, DeviceClass] = {}
    for each in classes:
        if name := each.extended_resource:
            other = found.get(name)
            if other is not None and (other.created, each.name) > (each.created, other.name):
                continue
            found[name] = each
        found[f"{_PREFIX}{each.name}"] = each
    return found


def class_of_name(resource: str, classes: Mapping[str, DeviceClass]) -> DeviceClass | None:
    """The class in the name `deviceclass.resource.kubernetes.io/CLASS`; None: it has none."""
    return classes.get(resource.removeprefix(_PREFIX)) if resource.startswith(_PREFIX) else None


def special_claim(
    containers: Sequence[RequestingContainer], classes: Sequence[DeviceClass], allocatable: Mapping[str, int]
) -> SpecialClaim:
    """The claim for the extended resources of a pod. *containers*: init containers first. *allocatable*: the node's."""
    names = sorted({name for each in containers for name, amount in each.requests.items() if amount > 0})
    standing = classes_by_resource(classes)
    extended = {name: standing.get(name) for name in names if _is_extended(name)}
    if not any(extended.values()):
        return SpecialClaim(NO_DRA)
    served = {name: each for name, each in extended.items() if each is not None and not allocatable.get(name)}
    if any(name not in served and name not in allocatable for name in extended):
        return SpecialClaim(CANNOT_FIT)
    if not served:
        return SpecialClaim(DEVICE_PLUGIN)
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    for name, device_class in served.items():
        _add(containers, name, device_class.name, requests, mappings)
    return SpecialClaim(CLAIM, sorted(requests, key=lambda each: each.name), mappings)


def _is_extended(resource: str) -> bool:
    if resource.startswith(_PREFIX):
        return True
    return "/" in resource and "kubernetes.io/" not in resource and not resource.startswith("requests.")


def _add(
    containers: Sequence[RequestingContainer],
    resource: str,
    class_name: str,
    requests: list[DeviceRequest],
    mappings: list[RequestMapping],
) -> None:
    """Add the requests and mappings for one resource: those of containers that live on first."""
    lasting: dict[int, DeviceRequest] = {}
    for number, each in enumerate(containers):
        if not each.ends and each.requests.get(resource):
            lasting[number] = _request(number, each, resource, class_name, each.requests[resource])
            mappings.append(RequestMapping(each.name, resource, lasting[number].name))
    most: DeviceRequest | None = None
    own: list[tuple[str, list[DeviceRequest], bool]] = []
    for number, each in enumerate(containers):
        if not each.ends or not each.requests.get(resource):
            continue
        missing, reused = each.requests[resource], []
        for later, request in lasting.items():
            if later > number and missing > 0:
                reused.append(request)
                missing -= request.number
        own.append((each.name, reused, missing > 0))
        if missing > 0 and (most is None or missing > most.number):
            most = _request(number, each, resource, class_name, missing)
    requests.extend([*([] if most is None else [most]), *lasting.values()])
    for name, reused, needs_more in own:
        mappings.extend(RequestMapping(name, resource, request.name) for request in reused)
        if needs_more and most is not None:
            mappings.append(RequestMapping(name, resource, most.name))


def _request(number: int, container: RequestingContainer, resource: str, class_name: str, count: int) -> DeviceRequest:
    """The request `container-NUMBER-request-POSITION`, by the position of the resource among all of the container."""
    position = sorted(container.requests).index(resource)
    return DeviceRequest(f"container-{number}-request-{position}", class_name, number=count)


def container_of(request: str) -> int:
    """The position of the container in the name of a request, init containers first; -1: it has none."""
    found = _REQUEST.fullmatch(request)
    return int(found[1]) if found else -1
