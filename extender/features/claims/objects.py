"""Slices, classes and claims: which devices a node has, who has them, and what decides about further ones.

Rules of this file
- The event loop changes this. Other threads read it: what they get is replaced by changes, and never changed itself.
  A change is made before it is noted, so that what is read after a note has it.
- Of a pool only the slices of its highest generation count, as for kube-scheduler.
- Devices that are not local to one node are left out, because they have no NUMA node that matters.
- The NUMA node of a claimed device is not known if no current slice lists the device.
- CPUs of a prepared claim are where the report of the node says, and not where their device is.
- If a slice cannot be read, the devices of its node are not known, or those of all nodes if it does not name one. A
  claim that cannot be read holds the devices that it names. What it asks for is not known.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import count, takewhile
from typing import Final, NamedTuple, TypeAlias, TypeVar

from extender.bounded import BoundedMap
from extender.dra.extended import container_of
from extender.dra.objects import DeviceClass, DeviceId, DraNode, ResourceClaim, ResourceSlice
from extender.dra.pools import PoolId, SliceIndex
from extender.dra.rules import AllocatorRules
from extender.features.claims.cpus.choice import Choice
from extender.features.claims.feed import MAX_NUMA, AllocatedClaim, NamedSlice
from extender.questions.node_context import CPU_DRIVER, DynamicDevice

MAX_HOLDERS: Final = 2000
"""Claims that have devices of the pools of one node. If there are more, nothing is known of the devices to come."""
MAX_CHANGES: Final = 10_000
"""The last changes of nodes that are kept."""
MAX_RELEASED: Final = 1000
RELEASE_SECONDS: Final = 2.0
"""How long before a filter call kube-scheduler may have looked at what is free: it does so once for all nodes.

Of 279 calls of the live scene `claims` at load 5, the longest ended 0.16 s after kube-scheduler began with the pod. The
rest is for a watch of kube-scheduler's that is behind ours. If it takes longer, the prediction can be wrong: bind
counts that (`Forecasts`), and refuses devices that break a demand.
"""
KEPT_SECONDS: Final = 60.0
Version: TypeAlias = tuple[int, int]
K = TypeVar("K", bound=Hashable)
_CPU_ID: Final = "dra.cpu/cpuID"
NO_DEVICES: Final[tuple[DynamicDevice, ...]] = ()


class NodeClaims(NamedTuple):
    """The slices of the pools that one node can use, and the claims that have devices of these pools.

    `extended`: the claims of these for extended resources, by the UID of the pod.
    """

    slices: Sequence[ResourceSlice]
    holders: Sequence[ResourceClaim]
    extended: Mapping[str, str] = {}


class ClaimObjects:
    """All slices, classes and claims. `complete`: whether slices and claims have been listed.

    *rules*: of the kube-scheduler. *clock*: seconds.
    """

    def __init__(self, rules: AllocatorRules, clock: Callable[[], float]) -> None:
        self.complete = False
        self.rules: Final = rules
        self.clock: Final = clock
        self.classes: Final[dict[str, DeviceClass]] = {}
        self.templates: Final[dict[str, ResourceClaim]] = {}
        """What claims that are made from a template ask for, by NAMESPACE/NAME of the template."""
        self.selecting: Final = set[str]()
        """The slices for which the labels of nodes matter."""
        self.rooted: Final[dict[str, str]] = {}
        """The node of each slice with devices of which only the PCIe root is known."""
        self._next: Final = count(1).__next__
        self._everywhere = 0
        self._changes: deque[tuple[int, str]] = deque(maxlen=MAX_CHANGES)
        self._versions: dict[str, int] = {}
        self._slices: dict[str, NamedSlice] = {}
        self._of_pool: dict[PoolId, dict[str, NamedSlice]] = {}
        self._of_node: dict[str, dict[str, NamedSlice]] = {}
        self._unread: dict[str, str] = {}
        """The node of each slice that cannot be read; "": all nodes."""
        self.cpus: Mapping[str, Mapping[str, int]] = {}
        """The NUMA nodes, as raw bits, of the CPUs of each prepared claim, by node and the UID of the claim."""
        self._roots: dict[str, Mapping[str, int]] = {}
        """The NUMA node of each PCIe root, by node."""
        self._claims: dict[str, AllocatedClaim] = {}
        self.chosen: Final[dict[str, Choice]] = {}
        """What was chosen for claims that are not allocated, by NAMESPACE/NAME."""
        self._extended: dict[str, str] = {}
        """The claim that kube-scheduler has made for extended resources of a pod, by its UID."""
        self._holders: dict[PoolId, tuple[ResourceClaim, ...]] = {}
        self._devices: dict[str, tuple[int, tuple[DynamicDevice, ...]]] = {}
        """With the version of the node."""
        self._node_claims: dict[str, tuple[Version, NodeClaims]] = {}
        self._released: BoundedMap[str, tuple[ResourceClaim, float]] = BoundedMap(MAX_RELEASED)
        self._index: tuple[int, SliceIndex] = 0, SliceIndex((), rules)
        self._slice_version = 0

    def set_slice(self, name: str, value: NamedSlice | None) -> None:
        """The slice *name*; None: it is gone."""
        before = self._slices.pop(name, None)
        for each in (before, value):
            if each is not None:
                _put(self._of_pool, each.pool_id, name, value if each is value else None)
                _put(self._of_node, each.node_name, name, value if each is value else None)
        self._unread.pop(name, None)
        self.selecting.discard(name)
        self.rooted.pop(name, None)
        if value is not None:
            self._slices[name] = value
            if value.roots:
                self.rooted[name] = value.node_name
            if value.exact is None:
                self._unread[name] = value.node_name
            elif value.selects_labels:
                self.selecting.add(name)
        self._slice_version = self._next()
        for each in (before, value):
            self._changed(each)

    def set_class(self, name: str, value: DeviceClass | None) -> None:
        """The class *name*; None: it is gone, or it cannot be read."""
        self.classes.pop(name, None)
        if value is not None:
            self.classes[name] = value
        self._everywhere = self._next()

    def set_template(self, name: str, value: ResourceClaim | None) -> None:
        """The template NAMESPACE/NAME; None: it is gone."""
        self.templates.pop(name, None)
        if value is not None:
            self.templates[name] = value

    def set_claim(self, name: str, value: AllocatedClaim | None) -> None:
        """The claim NAMESPACE/NAME; None: it is gone."""
        before = self._claims.pop(name, None)
        if before is not None and self._extended.get(before.extended_of) == name:
            del self._extended[before.extended_of]
        if value is not None:
            self._claims[name] = value
            if value.extended_of and value.devices:
                self._extended[value.extended_of] = name
        if value is not None and value.chosen is not None and value.exact.allocated is None:
            self.chosen[name] = value.chosen
        else:
            self.chosen.pop(name, None)
        held, holds = (_pools(each and each.exact) for each in (before, value))
        if before is not None and held and not holds:
            self._released[name] = before.exact, self.clock()
        for pool_id in dict.fromkeys((*held, *holds)):
            kept = tuple(each for each in self._holders.pop(pool_id, ()) if each.name != name)
            kept += (value.exact,) if value is not None and pool_id in holds else ()
            if kept:
                self._holders[pool_id] = kept
            for each in self._of_pool.get(pool_id, {}).values():
                self._changed(each)

    def set_roots(self, node_name: str, numa_nodes: Mapping[str, int]) -> None:
        """The NUMA node of each PCIe root of a node."""
        if self._roots.get(node_name) is not numa_nodes:
            self._roots[node_name] = numa_nodes
            for each in self._of_node.get(node_name, {}).values():
                self._changed(each)

    @property
    def cpu_nodes(self) -> Iterable[str]:
        """The nodes whose CPUs the DRA driver for CPUs allocates."""
        slices = (of for (driver, _), of in self._of_pool.items() if driver == CPU_DRIVER)
        return {each.node_name for of in slices for each in of.values()}

    def cpus_on(self, name: str) -> Mapping[int, DynamicDevice]:
        """The devices of a node that are one CPU each, by the CPU."""
        here = {device.key: device for device in self.devices_on(name)}
        slices = (each.exact for each in self._of_node.get(name, {}).values() if each.exact is not None)
        found = (
            (each.attributes.get(_CPU_ID), here.get((of.driver, of.pool, each.name)))
            for of in slices
            for each in of.devices
        )
        return {
            int(str(cpu.value)): device
            for cpu, device in found
            if cpu is not None and device is not None and device.is_cpus
        }

    def chosen_for(self, names: Iterable[str]) -> Iterator[str]:
        """The nodes that were chosen for those of these claims that are not allocated."""
        return (self.chosen[name].node_name for name in names if name in self.chosen)

    def devices_on(self, name: str) -> tuple[DynamicDevice, ...]:
        """The devices of a node, in the order in which each slice lists them. "": those local to no node.

        The same object as long as none of them changes.
        """
        version, slices_here = self._versions.get(name, 0), self._of_node.get(name)
        if slices_here is None:  # nothing is kept of a name that no slice has
            return NO_DEVICES
        known = self._devices.get(name)
        if known is None or known[0] != version:
            slices = [each for _, each in sorted(slices_here.items())]
            newest: dict[PoolId, int] = {}
            for each in slices:
                newest[each.pool_id] = max(newest.get(each.pool_id, 0), each.generation)
            holders = {d: claim.name for pool in newest for claim in self._holders.get(pool, ()) for d in _ids(claim)}
            devices = [d for each in slices if each.generation == newest[each.pool_id] for d in each.devices.values()]
            roots = {key: root for each in slices for key, root in each.roots.items()}
            found = tuple(
                device._replace(
                    claim=holders.get(device.key, ""),
                    numa=device.numa or self._numa_of_root(name, roots.get(device.key, "")),
                )
                for device in devices
            )
            known = self._devices[name] = version, found
        return known[1]

    def _numa_of_root(self, node_name: str, root: str) -> int:
        """The NUMA node of a PCIe root as raw bits; 0: not known."""
        numa = self._roots.get(node_name, {}).get(root, -1)
        return 1 << numa if 0 <= numa < MAX_NUMA else 0

    def devices_of(self, claim: str, node_name: str) -> tuple[DynamicDevice, ...] | None:
        """The devices of the claim NAMESPACE/NAME that matter on a node; None: it is not known to be allocated."""
        keys = self._devices_of(claim)
        if keys is None:
            return None
        here = {device.key: device for device in self.devices_on(node_name)}
        known = [key for key in keys if key in here or not self._is_listed(key)]
        found = (here.get(key) or DynamicDevice(*key, claim=claim) for key in known)
        cpus = self.cpus.get(node_name, {}).get(self._claims[claim].uid)
        return tuple(each._replace(numa=cpus) if cpus and each.is_cpus else each for each in found)

    def devices_for_extended(self, pod_uid: str, node_name: str) -> Sequence[tuple[int, DynamicDevice]] | None:
        """The devices that stand for a pod's extended resources, each with the position of its container.

        None: they are not known to be allocated for the node.
        """
        claim = self._extended.get(pod_uid, "")
        devices = self.devices_of(claim, node_name)
        if devices is None or not self.is_allocated_for(claim, node_name):
            return None
        positions = {each.id: container_of(each.request) for each in self._claims[claim].exact.allocated or ()}
        return [(positions[device.key], device) for device in devices]

    def is_allocated_for(self, claim: str, node_name: str) -> bool:
        """Whether the claim NAMESPACE/NAME is known to have devices that a pod on the node can use.

        False as well for devices that are local to another node: a newer allocation has not been seen yet.
        """
        keys = self._devices_of(claim)
        homes = ({each.node_name for each in self._listing(key)} for key in keys or ())
        return keys is not None and all(not nodes or nodes & {node_name, ""} for nodes in homes)

    def _devices_of(self, claim: str) -> Sequence[DeviceId] | None:
        known = self._claims.get(claim)
        return known.devices if known is not None and known.devices and self.complete else None

    def _listing(self, key: DeviceId) -> Iterator[NamedSlice]:
        return (each for each in self._of_pool.get(key[:2], {}).values() if key in each.devices)

    def _is_listed(self, key: DeviceId) -> bool:
        """Whether a current slice lists the device."""
        nodes = {each.node_name for each in self._listing(key)}
        return any(key == device.key for node_name in nodes for device in self.devices_on(node_name))

    def released(self, filtered_at: float) -> Iterator[tuple[ResourceClaim, Collection[str]]]:
        """The claims that lost their devices after kube-scheduler may have looked, and the nodes that have these."""
        for name, (claim, at) in list(self._released.items()):
            if at < self.clock() - KEPT_SECONDS:
                del self._released[name]
            if at < filtered_at - RELEASE_SECONDS:
                continue
            yield claim, {each.node_name for pool in _pools(claim) for each in self._of_pool.get(pool, {}).values()}

    def readable(self, name: str) -> ResourceClaim | None:
        """One claim; None: it does not exist, or cannot be read."""
        found = self._claims.get(name)
        return found.exact if found is not None and found.is_read else None

    def claim(self, name: str) -> ResourceClaim | None:
        """One claim; None: it does not exist. Where it cannot be read, it has the allocated devices alone."""
        found = self._claims.get(name)
        return None if found is None else found.exact

    def extended_claim(self, pod_uid: str) -> ResourceClaim | None:
        """The claim for the extended resources of a pod; None: it is not allocated."""
        return self.claim(self._extended.get(pod_uid, ""))

    def deallocated(self, names: Iterable[str], offered: Sequence[str]) -> Mapping[str, ResourceClaim]:
        """The claims of these that are allocated, and yet a pod with them may go to all *offered* nodes.

        Each as it is without the allocation. Two nodes are enough to see it: most allocations are for one.
        """
        known = ((name, self.readable(name)) for name in names)
        held = ((name, claim) for name, claim in known if claim is not None and claim.allocated)
        unusable = (each for each in held if not all(self.is_allocated_for(each[0], node) for node in offered[:2]))
        return {name: claim._replace(allocated=None) for name, claim in unusable}

    def pending(self) -> dict[str, ResourceClaim]:
        """The claims that are not allocated, by NAMESPACE/NAME."""
        known = self._claims.items()
        return {name: each.exact for name, each in known if each.is_read and each.exact.allocated is None}

    def version(self, node_name: str) -> Version:
        """Another one as soon as anything changes that decides about devices on the node."""
        return self._everywhere, self._versions.get(node_name, 0)

    @property
    def stamp(self) -> int:
        """The stamp of now, on the event loop."""
        return max(self._everywhere, self._changes[-1][0] if self._changes else 0)

    def changes_since(self, stamp: int) -> tuple[int, Sequence[str] | None]:
        """The stamp of now, and the nodes whose version has changed since *stamp*; None: it can be any of them."""
        everywhere, changes = self._everywhere, self._changes.copy()
        now = max(everywhere, changes[-1][0] if changes else 0)
        changed = list(takewhile(lambda each: each[0] > stamp, reversed(changes)))
        is_all = everywhere > stamp or len(changed) == MAX_CHANGES
        return now, None if is_all else [name for _, name in changed]

    def index(self) -> SliceIndex:
        """All slices that can be read."""
        version, found = self._index
        if version != (now := self._slice_version):
            slices = [each.exact for each in list(self._slices.values()) if each.exact is not None]
            found = SliceIndex(slices, self.rules)
            self._index = now, found
        return found

    def holders_on(self, node: DraNode) -> Sequence[ResourceClaim] | None:
        """The claims that have devices of the pools of a node; None: it is not known."""
        if not {"", node.name}.isdisjoint(list(self._unread.values())):
            return None
        found = {each.name: each for pool_id in self.index().pool_ids(node) for each in self._holders.get(pool_id, ())}
        return None if len(found) > MAX_HOLDERS else list(found.values())

    def claims_on(self, name: str) -> NodeClaims | None:
        """What decides about devices to come, the same object while its version is the same; None: not known.

        Also if labels of nodes matter, or slices that are not local to the node.
        """
        if self.selecting or "" in self._of_node or name not in self._of_node:
            return None
        known, version = self._node_claims.get(name), self.version(name)
        if known is None or known[0] != version:
            holders = self.holders_on(DraNode(name, {}))
            exact = tuple(each.exact for each in self._of_node[name].values() if each.exact is not None)
            if holders is None:
                return None
            known_as = ((self._claims.get(each.name), each.name) for each in holders)
            extended = {each.extended_of: name for each, name in known_as if each is not None and each.extended_of}
            known = self._node_claims[name] = version, NodeClaims(exact, holders, extended)
        return known[1]

    def _changed(self, each: NamedSlice | None) -> None:
        """What a slice has is another device, or somebody else's."""
        if each is None:
            return
        version = self._next()
        if each.node_name in self._of_node:
            self._versions[each.node_name] = version
        else:
            self._versions.pop(each.node_name, None)
            self._devices.pop(each.node_name, None)
            self._node_claims.pop(each.node_name, None)
            self._roots.pop(each.node_name, None)
        self._changes.append((version, each.node_name))
        if not each.node_name or each.exact is None or each.exact.counter_sets:
            self._everywhere = self._next()


def _put(table: dict[K, dict[str, NamedSlice]], key: K, name: str, value: NamedSlice | None) -> None:
    """Keep the slice *name* under *key*; None: keep it no longer. Nothing is kept of a key without slices."""
    found = table.setdefault(key, {})
    found.pop(name, None)
    if value is not None:
        found[name] = value
    if not found:
        del table[key]


def _pools(claim: ResourceClaim | None) -> Sequence[PoolId]:
    return () if claim is None else [each.id[:2] for each in claim.allocated or ()]


def _ids(claim: ResourceClaim) -> Iterator[DeviceId]:
    return (each.id for each in claim.allocated or ())
