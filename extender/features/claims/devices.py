"""Devices that DRA drivers publish, their NUMA nodes, and the claims that hold them. No kubelet manager knows them.

Rules of this file
- Of a pool only the slices of its highest generation count, as for kube-scheduler.
- A device that is not local to one node is left out, of nodes and of claims: its NUMA node does not matter.
- The NUMA node of a claimed device is not known if no current slice lists the device.
- Values that readers get are never changed afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.questions.node_context import DynamicDevice


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedDevices:
    """One ResourceSlice. `node_name` empty: its devices are not local to one node."""

    node_name: str
    pool: str
    generation: int
    devices: tuple[DynamicDevice, ...] = ()


class ExtendedClaim(NamedTuple):
    """A claim that kube-scheduler has made for extended resources of a pod.

    `containers`: which container has each of its devices, by position, init containers first; -1: not known.
    """

    pod_uid: str = ""
    containers: tuple[int, ...] = ()


NO_POD: Final = ExtendedClaim()
NO_CLAIM: Final = ("", NO_POD)
NO_DEVICES: Final[tuple[DynamicDevice, ...]] = ()


class DynamicDevices:
    """All slices and all allocated claims. `complete`: whether both have been listed."""

    def __init__(self) -> None:
        self.complete = False
        self._slices: dict[str, dict[str, PublishedDevices]] = {}
        self._node_of: dict[str, str] = {}
        self._holders: dict[tuple[str, str, str], str] = {}
        self._claims: dict[str, tuple[tuple[str, str, str], ...]] = {}
        self._extended_of: dict[str, str] = {}
        self._by_pod: dict[str, tuple[str, ExtendedClaim]] = {}
        """Claims for extended resources by the UID of the pod, and the UIDs by claim."""
        self._listed_by: dict[tuple[str, str, str], set[str]] = {}
        """The slices that list a device, by name. During an update two generations of a pool list it."""
        self._known: dict[str, tuple[DynamicDevice, ...]] = {}

    def set_slice(self, name: str, published: PublishedDevices | None) -> None:
        """The slice *name*; None: it is gone."""
        before = self._node_of.pop(name, None)
        if before is not None:
            self._forget_slice(name, before)
        if published is not None:
            self._node_of[name] = published.node_name
            self._slices.setdefault(published.node_name, {})[name] = published
            for device in published.devices:
                self._listed_by.setdefault(device.key, set()).add(name)
            self._known.pop(published.node_name, None)

    def _forget_slice(self, name: str, node_name: str) -> None:
        for key in {device.key for device in self._slices[node_name].pop(name).devices}:
            self._listed_by[key].discard(name)
            if not self._listed_by[key]:
                del self._listed_by[key]
        self._known.pop(node_name, None)
        if not self._slices[node_name]:
            del self._slices[node_name]

    def set_claim(self, claim: str, devices: Sequence[tuple[str, str, str]], extended: ExtendedClaim = NO_POD) -> None:
        """The devices that the claim NAMESPACE/NAME has; empty: it is not allocated, or gone.

        *extended*: the pod for whose extended resources kube-scheduler has made it.
        """
        former = self._extended_of.pop(claim, "")
        if self._by_pod.get(former, NO_CLAIM)[0] == claim:
            del self._by_pod[former]
        if extended.pod_uid and devices:
            self._extended_of[claim] = extended.pod_uid
            self._by_pod[extended.pod_uid] = claim, extended
        for key in self._claims.pop(claim, ()):
            if self._holders.get(key) == claim:
                del self._holders[key]
            self._changed(key)
        if devices:
            self._claims[claim] = tuple(devices)
        for key in devices:
            self._holders[key] = claim
            self._changed(key)

    def of_node(self, name: str) -> tuple[DynamicDevice, ...]:
        """The devices of a node, in the order in which each slice lists them. "": those local to no node.

        The same object as long as none of them changes.
        """
        if name not in self._slices:  # nothing is kept of a name that no slice has
            return NO_DEVICES
        found = self._known.get(name)
        if found is None:
            slices = [published for _, published in sorted(self._slices[name].items())]
            newest: dict[str, int] = {}
            for each in slices:
                newest[each.pool] = max(newest.get(each.pool, 0), each.generation)
            devices = [d for each in slices if each.generation == newest[each.pool] for d in each.devices]
            found = tuple(device._replace(claim=self._holders.get(device.key, "")) for device in devices)
            self._known[name] = found
        return found

    def of_claim(self, claim: str, node_name: str) -> tuple[DynamicDevice, ...] | None:
        """The devices of the claim NAMESPACE/NAME that matter on a node; None: it is not known to be allocated."""
        keys = self._claims.get(claim)
        if keys is None or not self.complete:
            return None
        here = {device.key: device for device in self.of_node(node_name)}
        return tuple(
            here.get(key) or DynamicDevice(*key, claim=claim) for key in keys if key in here or not self._is_listed(key)
        )

    def of_extended(self, pod_uid: str, node_name: str) -> Sequence[tuple[int, DynamicDevice]] | None:
        """The devices that stand for a pod's extended resources, each with the position of its container.

        None: they are not known to be allocated for the node.
        """
        claim, extended = self._by_pod.get(pod_uid, NO_CLAIM)
        devices = self.of_claim(claim, node_name)
        if devices is None or not self.is_allocated_for(claim, node_name):
            return None
        keys = dict(zip(self._claims[claim], extended.containers, strict=True))
        return [(keys[device.key], device) for device in devices]

    def is_allocated_for(self, claim: str, node_name: str) -> bool:
        """Whether the claim NAMESPACE/NAME is known to have devices that a pod on the node can use.

        False as well for devices that are local to another node: a newer allocation has not been seen yet.
        """
        keys = self._claims.get(claim)
        if keys is None or not self.complete:
            return False
        homes = ({self._node_of[name] for name in self._listed_by.get(key, ())} for key in keys)
        return all(not nodes or nodes & {node_name, ""} for nodes in homes)

    def _is_listed(self, key: tuple[str, str, str]) -> bool:
        """Whether a current slice lists the device."""
        nodes = {self._node_of[name] for name in self._listed_by.get(key, ())}
        return any(key == device.key for node_name in nodes for device in self.of_node(node_name))

    def _changed(self, key: tuple[str, str, str]) -> None:
        for name in self._listed_by.get(key, ()):
            self._known.pop(self._node_of[name], None)
