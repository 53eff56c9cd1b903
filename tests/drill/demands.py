"""Pods of the drill that demand alignment, and whether a kubelet placed one as it demands: by ids, from its verdict."""

from random import Random
from typing import Any

from tests.oracle.amounts import parse_cpus

Json = dict[str, Any]
PREFIX = "numa-extender.io/"
DEMANDS: tuple[dict[str, str], ...] = (
    {},
    {"alignment": "single-numa-node"},
    {"alignment": "single-numa-node", "alignment-scope": "pod"},
    {"alignment": "same-socket", "alignment-scope": "pod"},
    {"alignment": "single-numa-node", "memory": "no-remote-memory"},
    {"alignment": "preferred"},
    {"alignment-resources": "cpu"},
)


def demand_of(pod: Json) -> dict[str, str]:
    """The demand of a pod, without the prefix of the keys."""
    annotations = pod["metadata"].get("annotations", {})
    ours = {key.removeprefix(PREFIX): value for key, value in annotations.items()}
    return {key: value for key, value in ours.items() if not key.startswith("group")}


def add_demand(pod: Json, random: Random) -> None:
    """Let a Guaranteed pod demand alignment, with five chances in six."""
    if pod["status"]["qosClass"] == "Guaranteed" and (demand := random.choice(DEMANDS)):
        pod["metadata"]["annotations"] = {f"{PREFIX}{key}": value for key, value in demand.items()}


def is_met(pod: Json, verdict: Json, scenario: Json) -> bool:
    """Whether an admitted pod lies where it demands. Restated from the ids that the kubelet gave it."""
    demand = demand_of(pod)
    node_of = {row[0]: row[3] for row in scenario["machine"]["cpus"]}
    socket_of_node = {row[3]: row[2] for row in scenario["machine"]["cpus"]}
    device_nodes = {
        (resource, device["id"]): set(device["numa"])
        for resource, devices in scenario["devices"].items()
        for device in devices
    }
    groups: list[set[int]] = []
    for placed in verdict["containers"].values():
        cpus = {node_of[cpu] for cpu in parse_cpus(placed["cpus"])}
        memory = {node for block in placed.get("memory", ()) for node in block["numa"]}
        devices = set[int]().union(
            *(device_nodes[resource, each] for resource, ids in placed.get("devices", {}).items() for each in ids)
        )
        if demand.get("memory") == "no-remote-memory" and cpus and memory != cpus:
            return False
        groups.append(cpus if demand.get("alignment-resources") == "cpu" else cpus | memory | devices)
    if demand.get("alignment-scope") == "pod":
        groups = [set[int]().union(*groups)]
    if demand.get("alignment") == "single-numa-node" or "alignment-resources" in demand:
        return all(len(group) <= 1 for group in groups)
    if demand.get("alignment") == "same-socket":
        return all(len({socket_of_node[node] for node in group}) <= 1 for group in groups)
    return True
