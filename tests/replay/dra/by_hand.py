"""Small clusters with devices, for tests of the allocator."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from extender.dra.cel import match
from extender.dra.objects import DeviceClass, DraNode, ResourceClaim, ResourceSlice
from extender.dra.pools import SliceIndex
from extender.dra.replay import MAX_STEPS, AllocatorAnswer, ClusterDevices, allocate
from extender.dra.requests import AllocatedState
from extender.dra.rules import rules_for
from extender.wire.dra import claim_from_json, slice_from_json

NODE = DraNode("node-a", {"zone": "a"})


def device(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "attributes": {"index": {"int": int(name.strip("gpu") or 0)}}, **fields}


def slice_of(devices: Sequence[Mapping[str, Any]], name: str = "slice", **spec: Any) -> ResourceSlice:
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    document = {"driver": "gpu.example.com", "nodeName": "node-a", "pool": pool, "devices": devices, **spec}
    return slice_from_json({"metadata": {"name": name}, "spec": document}, "slice")


def exactly(name: str = "r", **fields: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **fields}}


def claim_of(*requests: Mapping[str, Any], name: str = "claim", constraints: Sequence[Any] = ()) -> ResourceClaim:
    devices = {"requests": requests and list(requests), "constraints": list(constraints)}
    return claim_from_json({"metadata": {"namespace": "x", "name": name}, "spec": {"devices": devices}}, "claim")


def answers(
    slices: Sequence[ResourceSlice],
    claims: Sequence[ResourceClaim],
    *,
    selector: str = "true",
    version: str = "1.36.3",
    held: Sequence[ResourceClaim] = (),
    steps: int = MAX_STEPS,
) -> list[AllocatorAnswer]:
    rules = rules_for(version)
    classes = {"gpu": DeviceClass("gpu", (selector,))}
    matches = partial(match, with_lists=rules.lists_in_cel)
    cluster = ClusterDevices(SliceIndex(slices, rules), classes, AllocatedState(held, rules), matches, rules)
    return allocate(cluster, NODE, claims, steps)


def devices_of(answer: AllocatorAnswer) -> list[str]:
    return [each["device"] for allocation in answer.allocations for each in allocation["devices"]["results"]]
