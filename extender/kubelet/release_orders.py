"""The states that a kubelet may come to when it releases what several pods had.

It walks Go maps, whose order is random. The order matters for memory only, and only where blocks are on different
groups of NUMA nodes that overlap, which kubelets up to 1.31 allow: what one block returns is then missing for another.

Mirrors: kubelet `cm/memorymanager/memory_manager.go` (removeStaleState), `policy_static.go` (releaseMemory).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice, permutations, product
from typing import Final

from extender.kubelet.admission import release_pods
from extender.kubelet.memory_manager import release_container
from extender.kubelet.state import ManagerState, NUMANodeMemory

MAX_ORDERS: Final = 120
"""How many orders are followed: all of five pods of one container."""


def release_in_any_order(state: ManagerState, uids: Collection[str]) -> tuple[tuple[ManagerState, ...], bool]:
    """The possible states after these pods are gone, and whether these are all. Unknown pods are ignored."""
    after = release_pods(state, uids)
    entries = state.memory.entries
    held = {uid: tuple(entries[uid]) for uid in uids if uid in entries}
    masks = {block.mask for uid in held for blocks in entries[uid].values() for block in blocks}
    if not any(one & other for one, other in combinations(masks, 2)):
        return (after,), True
    orders = _orders(held)
    found: dict[tuple[NUMANodeMemory, ...], ManagerState] = {after.memory.nodes: after}
    for order in islice(orders, MAX_ORDERS):
        memory = state.memory
        for uid, container in order:
            memory = release_container(memory, uid, container)
        found.setdefault(memory.nodes, replace(after, memory=memory))
    return tuple(found.values()), next(orders, None) is None


def _orders(held: Mapping[str, Sequence[str]]) -> Iterator[list[tuple[str, str]]]:
    """Every order of the pods and of the containers of each; at least `MAX_ORDERS` + 1 of them if there are more."""
    # `product` makes a list of what it is given. Orders of one pod that are left out here are beyond `MAX_ORDERS`.
    of_pod = {uid: tuple(islice(permutations(names), MAX_ORDERS + 1)) for uid, names in held.items()}
    for uids in permutations(held):
        for names in product(*(of_pod[uid] for uid in uids)):
            yield [(uid, name) for uid, ordered in zip(uids, names, strict=True) for name in ordered]
