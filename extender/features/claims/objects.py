"""Slices, classes and claims, as kube-scheduler's allocator reads them, and what has changed for each node.

Rules of this file
- The event loop changes this. Other threads read it: what they get is replaced by changes, and never changed itself.
- A slice that cannot be read hides what its node has, or what all nodes have if it does not name one. A claim that
  cannot be read holds the devices that it names, and nothing is known of what it asks for.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from extender.bounded import BoundedMap
from extender.dra.objects import DeviceClass, DraNode, ResourceClaim, ResourceSlice
from extender.dra.pools import PoolId, SliceIndex
from extender.dra.requests import AllocatedState
from extender.dra.rules import AllocatorRules
from extender.features.claims.feed import AllocatedClaim, NamedSlice

MAX_HOLDERS: Final = 2000
"""Claims that have devices of the pools of one node. If there are more, the node's devices are not known."""
MAX_RELEASED: Final = 1000
RELEASE_SECONDS: Final = 0.5
"""How long kube-scheduler may not have seen that devices are free again."""
MAX_SLICES: Final = 256
"""Of the pools of one node, for questions."""
MAX_NODES: Final = 10_000
"""Nodes whose parts are kept for questions."""
Version: TypeAlias = tuple[int, int]


class NodeClaims(NamedTuple):
    """The slices of the pools that one node can use, and the claims that have devices of these pools."""

    slices: Sequence[ResourceSlice]
    holders: Sequence[ResourceClaim]


class ClaimObjects:
    """All that decides which devices claims get. *rules*: of the kube-scheduler. *clock*: seconds."""

    def __init__(self, rules: AllocatorRules, clock: Callable[[], float]) -> None:
        self.rules: Final = rules
        self.clock: Final = clock
        self.classes: Final[dict[str, DeviceClass]] = {}
        self.selecting: Final = set[str]()
        """The slices for which the labels of nodes matter."""
        self._next: Final = count(1).__next__
        self._everywhere = 0
        self._versions: dict[str, int] = {}
        self._slices: dict[str, ResourceSlice] = {}
        self._unread: dict[str, str] = {}
        self._slices_of: dict[PoolId, dict[str, ResourceSlice]] = {}
        self._claims: dict[str, AllocatedClaim] = {}
        self._holders: dict[PoolId, tuple[ResourceClaim, ...]] = {}
        self._of_nodes: BoundedMap[str, tuple[Version, NodeClaims | None]] = BoundedMap(MAX_NODES)
        self._released: BoundedMap[str, tuple[ResourceClaim, float]] = BoundedMap(MAX_RELEASED)
        self._slice_version = 0
        self._index: tuple[int, SliceIndex] = 0, SliceIndex((), rules)

    def set_slice(self, name: str, value: NamedSlice | None) -> None:
        """The slice *name*; None: it is gone."""
        before = self._slices.pop(name, None)
        if before is not None:
            of_pool = self._slices_of[before.driver, before.pool]
            del of_pool[name]
            if not of_pool:
                del self._slices_of[before.driver, before.pool]
            self._changed(before)
        hidden = self._unread.pop(name, None)
        exact = None if value is None else value.exact
        if exact is not None:
            self._slices[name] = self._slices_of.setdefault((exact.driver, exact.pool), {})[name] = exact
            self._changed(exact)
        elif value is not None:
            self._unread[name] = value.published.node_name
        for node_name in {hidden, self._unread.get(name)} - {None}:
            self._changed_on(node_name or "")
        self.selecting.discard(name)
        if exact is not None and _selects(exact):
            self.selecting.add(name)
        self._slice_version = self._next()

    def set_class(self, name: str, value: DeviceClass | None) -> None:
        """The class *name*; None: it is gone, or it cannot be read."""
        self.classes.pop(name, None)
        if value is not None:
            self.classes[name] = value
        self._changed_on("")

    def set_claim(self, name: str, value: AllocatedClaim | None) -> None:
        """The claim NAMESPACE/NAME; None: it is gone."""
        before = self._claims.pop(name, None)
        if value is not None:
            self._claims[name] = value
        held, holds = (_pools(None if each is None else each.exact) for each in (before, value))
        if before is not None and held and not holds:
            self._released[name] = before.exact, self.clock()
        for pool_id in dict.fromkeys((*held, *holds)):
            kept = tuple(each for each in self._holders.pop(pool_id, ()) if each.name != name)
            if value is not None and pool_id in holds:
                kept = (*kept, value.exact)
            if kept:
                self._holders[pool_id] = kept
            for each in self._slices_of.get(pool_id, {}).values():
                self._changed(each)

    def released(self) -> Iterator[tuple[ResourceClaim, Collection[str]]]:
        """The claims that lost their devices in the last `RELEASE_SECONDS`, and the nodes that have these."""
        since = self.clock() - RELEASE_SECONDS
        for name, (claim, at) in list(self._released.items()):
            if at < since:
                del self._released[name]
                continue
            slices = (each for pool_id in _pools(claim) for each in self._slices_of.get(pool_id, {}).values())
            yield claim, {each.selection.node_name for each in slices}

    def claims(self, names: Sequence[str]) -> Sequence[ResourceClaim] | None:
        """Those of *names* that are not allocated; None: one does not exist, or cannot be read."""
        found = [self._claims.get(name) for name in names]
        known = [each.exact for each in found if each is not None and each.is_read]
        return [each for each in known if each.allocated is None] if len(known) == len(names) else None

    def claim(self, name: str) -> ResourceClaim | None:
        """One claim; None: it does not exist."""
        found = self._claims.get(name)
        return None if found is None else found.exact

    def version(self, node_name: str) -> Version:
        """Another one as soon as anything changes that decides about devices on the node."""
        return self._everywhere, self._versions.get(node_name, 0)

    def index(self) -> SliceIndex:
        """All slices."""
        version, found = self._index
        if version != (now := self._slice_version):
            found = SliceIndex(list(self._slices.values()), self.rules)
            self._index = now, found
        return found

    def of_node(self, name: str) -> "NodeClaims | None":
        """What decides about the devices of a node, the same object while its version is the same; None: not known."""
        known, version = self._of_nodes.get(name), self.version(name)
        if known is None or known[0] != version:
            known = self._of_nodes[name] = version, self._node_claims(DraNode(name, {}))
        return known[1]

    def _node_claims(self, node: DraNode) -> "NodeClaims | None":
        if self.selecting or not {"", node.name}.isdisjoint(self._unread.values()):
            return None
        ids = list(self.index().pool_ids(node))
        slices = [each for pool_id in ids for each in self._slices_of[pool_id].values()]
        holders = {each.name: each for pool_id in ids for each in self._holders.get(pool_id, ())}
        is_small = len(slices) <= MAX_SLICES and len(holders) <= MAX_HOLDERS
        return NodeClaims(tuple(slices), tuple(holders.values())) if is_small else None

    def pending(self) -> Mapping[str, ResourceClaim]:
        """The claims that are not allocated, by NAMESPACE/NAME."""
        pending = (each.exact for each in self._claims.values() if each.is_read and each.exact.allocated is None)
        return {each.name: each for each in pending}

    def held_on(self, node: DraNode, further: Sequence[ResourceClaim]) -> AllocatedState | None:
        """What claims have of the pools of a node, and *further* ones that are not written yet; None: not known."""
        if not {"", node.name}.isdisjoint(list(self._unread.values())):
            return None
        found = {each.name: each for pool_id in self.index().pool_ids(node) for each in self._holders.get(pool_id, ())}
        return None if len(found) > MAX_HOLDERS else AllocatedState([*found.values(), *further], self.rules)

    def _changed(self, each: ResourceSlice) -> None:
        self._changed_on("" if each.counter_sets else each.selection.node_name)

    def _changed_on(self, node_name: str) -> None:
        if node_name:
            self._versions[node_name] = self._next()
        else:
            self._everywhere = self._next()


def _pools(claim: ResourceClaim | None) -> Sequence[PoolId]:
    return () if claim is None else [each.id[:2] for each in claim.allocated or ()]


def _selects(each: ResourceSlice) -> bool:
    selections = (each.selection, *(device.selection for device in each.devices))
    return any(selection.selects is not None for selection in selections)
