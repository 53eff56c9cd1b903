"""The device manager's side of a scenario: what its plugins registered, and what earlier pods hold.

`state_before` has no kubelet_internal_checkpoint, so it is made from the steps before: which ids each container got,
or, where the ids vary between repetitions, any free ids on the NUMA nodes that it surely got.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.node_exporter.fake_kubelet import Devices

Json = Mapping[str, Any]
Holding = tuple[str, str, str, tuple[str, ...]]
"""(pod UID, container, resource, device ids)."""


def plugin_devices(scenario: Json) -> Devices:
    """What podresources would list: the healthy devices."""
    return {
        resource: {device["id"]: device["numa"] for device in devices if device["healthy"]}
        for resource, devices in scenario["devices"].items()
    }


def device_checkpoint(scenario: Json, before: int) -> dict[str, Any] | None:
    """The checkpoint before step number `before`; None if the recorded answers do not determine it."""
    held: list[Holding] = []
    for step in scenario["steps"][:before]:
        if step["op"] == "remove":
            held = [holding for holding in held if holding[0] != step["uid"]]
        elif step["op"] == "admit" and step["expect"].get("admit"):
            for holding in _granted(scenario, step, held):
                if holding is None:
                    return None
                held.append(holding)
    numa = {
        (resource, device["id"]): device["numa"] or [-1]
        for resource, devices in scenario["devices"].items()
        for device in devices
    }
    entries = []
    for uid, container, resource, ids in held:
        by_node: dict[str, list[str]] = {}
        for id_ in ids:
            for node in numa[resource, id_]:
                by_node.setdefault(str(node), []).append(id_)
        entries.append({
            "PodUID": uid, "ContainerName": container, "ResourceName": resource, "DeviceIDs": by_node, "AllocResp": "",
        })  # fmt: skip
    registered = {resource: sorted(devices) for resource, devices in plugin_devices(scenario).items()}
    return {"Data": {"PodDeviceEntries": entries, "RegisteredDevices": registered}, "Checksum": 0}


def _granted(scenario: Json, step: Json, held: list[Holding]) -> Iterator[Holding | None]:
    """What an admitted pod got, container by container; None for what is not determined."""
    spec = step["pod"]["spec"]
    uid = step["pod"]["metadata"]["uid"]
    mine: list[Holding] = []
    for name, answer in step["expect"]["containers"].items():
        certain = answer.get("devices", {})
        for resource in {**certain, **answer.get("device_numa", {})}:
            ids = tuple(certain.get(resource) or ())
            if not ids:
                ids = _any_free(scenario, resource, answer["device_numa"][resource], [*held, *mine])
            taken = {(r, id_) for _, _, r, of_pod in held for id_ in of_pod}
            if (
                not ids
                or (resource not in certain and spec.get("initContainers"))
                or taken & {(resource, i) for i in ids}
            ):
                yield None
                return
            mine.append((uid, name, resource, ids))
    asks = [container for kind in ("initContainers", "containers") for container in spec.get(kind, ())]
    wanted = {
        (container["name"], resource)
        for container in asks
        for resource, amount in container.get("resources", {}).get("limits", {}).items()
        if resource in scenario["devices"] and int(amount)
    }
    if wanted - {(name, resource) for _, name, resource, _ in mine}:
        yield None
    yield from mine


def _any_free(scenario: Json, resource: str, nodes: list[list[int] | None], held: list[Holding]) -> tuple[str, ...]:
    """Free healthy devices, one with each of the NUMA sets `nodes`; empty if there are too few."""
    taken = {id_ for _, _, of, ids in held if of == resource for id_ in ids}
    free = [device for device in scenario["devices"][resource] if device["healthy"] and device["id"] not in taken]
    chosen: list[str] = []
    for wanted in nodes:
        found = next((d for d in free if (d["numa"] or []) == (wanted or []) and d["id"] not in chosen), None)
        if found is None:
            return ()
        chosen.append(found["id"])
    return tuple(chosen)
