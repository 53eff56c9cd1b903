"""What kube-scheduler writes into `status.allocation` of each claim. The time and random share ids are left out.

Mirrors: allocator/allocator_incubating.go Allocate, createNodeSelector.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from extender.dra.objects import DeviceClass, DraNode, ResourceClaim
from extender.dra.rules import AllocatorRules
from extender.dra.search import Search, Taken

ANY_SHARE: Final = "*"
"""Written in place of a share id, which is random."""


def allocations(search: Search, claims: Sequence[ResourceClaim], node: DraNode, rules: AllocatorRules) -> list[Any]:
    """The allocation of each claim, as JSON, after a search that found a solution."""
    found = []
    for number, claim in enumerate(claims):
        taken = search.taken[number]
        devices: dict[str, Any] = {"results": [_result(each, rules) for each in taken]} if taken else {}
        if config := [*_of_classes(search, number), *_of_claim(search, number, claim)]:
            devices["config"] = config
        allocation: dict[str, Any] = {"devices": devices}
        if selector := _node_selector(taken, node):
            allocation["nodeSelector"] = {"nodeSelectorTerms": [selector]}
        found.append(allocation)
    return found


def _result(taken: Taken, rules: AllocatorRules) -> dict[str, Any]:
    request, device = taken.ask.request, taken.candidate.device
    driver, pool, name = taken.candidate.id
    result: dict[str, Any] = {"request": request.full_name, "driver": driver, "pool": pool, "device": name}
    if request.admin_access:
        result["adminAccess"] = True
    if request.tolerations:
        result["tolerations"] = [each.document for each in request.tolerations]
    if rules.binding_conditions and device.binding_conditions:
        result["bindingConditions"] = list(device.binding_conditions)
        if device.binding_failures:
            result["bindingFailureConditions"] = list(device.binding_failures)
    if taken.is_shared:
        result["shareID"] = ANY_SHARE
    if taken.consumed:
        result["consumedCapacity"] = {name: amount.text for name, amount in taken.consumed.items()}
    return result


def _of_classes(search: Search, claim: int) -> list[dict[str, Any]]:
    """The configuration of each class once, with the names of all its requests."""
    entries: dict[str, list[dict[str, Any]]] = {}
    for number, each in enumerate(search.prepared[claim]):
        ask = each.options[search.chosen.get((claim, number), 0)]
        known = entries.get(ask.device_class.name)
        if known is None:
            entries[ask.device_class.name] = list(_from_class(ask.device_class, ask.request.full_name))
        for entry in known or ():
            entry["requests"].append(ask.request.full_name)
    return [entry for of_class in entries.values() for entry in of_class]


def _from_class(device_class: DeviceClass, request: str) -> Iterator[dict[str, Any]]:
    yield from ({**document, "source": "FromClass", "requests": [request]} for document in device_class.config)


def _of_claim(search: Search, claim: int, document: ResourceClaim) -> Iterator[dict[str, Any]]:
    """The configuration of the claim: an entry once for each request that it names, or once if it names none."""
    for requests, entry in document.config:
        if not requests:
            yield {**entry, "source": "FromClaim"}
        for number, each in enumerate(search.prepared[claim]):
            chosen = each.options[search.chosen.get((claim, number), 0)].request
            if not chosen.names.isdisjoint(requests):
                yield {**entry, "source": "FromClaim", "requests": list(requests)}


def _node_selector(taken: Sequence[Taken], node: DraNode) -> dict[str, Any]:
    """The nodes on which the devices can be used; empty: on all."""
    selector: dict[str, list[Any]] = {}
    for each in taken:
        device, in_slice = each.candidate.device, each.candidate.slice
        selection = device.selection if in_slice.per_device else in_slice.selection
        if selection.node_name or device.binds_to_node:
            only = {"key": "metadata.name", "operator": "In", "values": [node.name]}
            return {"matchFields": [only]}
        for name, requirements in (("matchFields", selection.fields), ("matchExpressions", selection.expressions)):
            for requirement in requirements:
                known = selector.setdefault(name, [])
                if all(_identity(requirement) != _identity(other) for other in known):
                    known.append(requirement)
    return {name: known for name, known in selector.items() if known}


def _identity(requirement: Any) -> tuple[object, object, frozenset[str]]:  # noqa: ANN401 - JSON
    return requirement.get("key"), requirement.get("operator"), frozenset(requirement.get("values") or ())
