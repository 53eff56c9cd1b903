"""The memory manager with policies None and Static (§7)."""

from copy import deepcopy
from dataclasses import dataclass, field
from itertools import combinations, islice, permutations, product
from typing import Any

from tests.oracle.amounts import whole
from tests.oracle.errors import NaiveKubeletError, allocate_failed
from tests.oracle.hints import Hint, Hints, Mask, masks_over, narrowness
from tests.oracle.machine import Machine
from tests.oracle.pods import Container, Pod, memory_requests, pod_total
from tests.oracle.rules import OracleRules

Amounts = dict[str, int]


@dataclass
class Node:
    """One NUMA node: how much is allocatable, free and given away, and the group it belongs to."""

    cells: Mask
    total: Amounts
    system: Amounts
    allocatable: Amounts
    free: Amounts
    reserved: Amounts
    assignments: int = 0


@dataclass
class Block:
    mask: Mask
    type: str
    size: int


@dataclass
class MemoryManager:
    machine: Machine
    kubelet: dict[str, Any]
    rules: OracleRules
    nodes: dict[int, Node] = field(default_factory=dict)
    blocks: dict[str, dict[str, list[Block]]] = field(default_factory=dict)
    pod_blocks: dict[str, list[Block]] = field(default_factory=dict)
    reuse: dict[str, dict[tuple[Mask, str], int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.static = (self.kubelet.get("memoryManagerPolicy") or "None") == "Static"
        if self.static:
            self._start()

    def _start(self) -> None:
        """§7.2, §7.3."""
        system: dict[int, Amounts] = {}
        sums: Amounts = {}
        for reserved in self.kubelet.get("reservedMemory") or []:
            node = reserved["numaNode"]
            if node not in self.machine.numa_records:
                raise NaiveKubeletError(f"memorymanager: reserved memory for unknown NUMA node {node}")
            for name, quantity in reserved["limits"].items():
                amounts = system.setdefault(node, {})
                amounts[name] = amounts.get(name, 0) + whole(quantity)
                sums[name] = sums.get(name, 0) + whole(quantity)
        reservation = memory_requests(self.kubelet.get("reservation") or {})
        for name in {*sums, *reservation}:
            if sums.get(name, 0) != reservation.get(name, 0):
                raise NaiveKubeletError(f"memorymanager: reserved {name} differs from the node allocatable reservation")
        if sums.get("memory", 0) == 0:
            raise NaiveKubeletError("memorymanager: the static policy needs reserved memory")
        for node in self.machine.numa_ids:
            self.nodes[node] = self._fresh_node(node, system.get(node, {}))

    def _fresh_node(self, node: int, system: Amounts) -> Node:
        record = self.machine.numa_records[node]
        total = {f"hugepages-{size}": pages * whole(size) for size, pages in (record.get("hugepages") or {}).items()}
        pages = sum(total.values())
        allocatable = {name: amount - system.get(name, 0) for name, amount in total.items()}
        total["memory"] = record.get("memory", 0)
        allocatable["memory"] = (total["memory"] - system.get("memory", 0) - pages) % 2**64
        systems = {name: system.get(name, 0) for name in total}
        return Node(frozenset({node}), total, systems, allocatable, dict(allocatable), dict.fromkeys(total, 0))

    # -- release (§7.8) --

    def collect(self, active: dict[str, Pod]) -> None:
        for uid in list(self.blocks):
            known = {c.name for c in active[uid].containers} if uid in active else set()
            for name in list(self.blocks[uid]):
                if name not in known:
                    self.remove(uid, name)

    def collected(self, active: dict[str, Pod], limit: int = 5000) -> list["MemoryManager"]:
        """All that `collect` can come to: a kubelet walks the pods, and the containers of each, in a random order."""
        found: dict[str, MemoryManager] = {}
        stale = {uid: list(held) for uid, held in self.blocks.items() if uid not in active}
        masks = {block.mask for uid in stale for blocks in self.blocks[uid].values() for block in blocks}
        orders = permutations(stale) if any(one & other for one, other in combinations(masks, 2)) else [tuple(stale)]
        inner = ((uids, names) for uids in orders for names in product(*(permutations(stale[uid]) for uid in uids)))
        for uids, names in islice(inner, limit):
            after = deepcopy(self)
            for uid, ordered in zip(uids, names, strict=True):
                for name in ordered:
                    after.remove(uid, name)
            after.collect(active)
            found.setdefault(repr(sorted((number, vars(node)) for number, node in after.nodes.items())), after)
        return list(found.values())

    def started(self, pod: Pod, container: Container) -> None:
        """A container starts: the ordinary init containers before it are done and give their memory back."""
        for earlier in pod.containers:
            if earlier.name == container.name:
                return
            if earlier.kind == "init":
                self.remove(pod.uid, earlier.name)

    def remove(self, uid: str, name: str) -> None:
        blocks = self.blocks.get(uid, {}).pop(name, [])
        last = uid in self.blocks and not self.blocks[uid]
        if last:
            del self.blocks[uid]
        if uid in self.pod_blocks:  # charged once for the pod, given back with its last container
            blocks = self.pod_blocks.pop(uid) if last else []
        self._release(blocks)

    def _release(self, blocks: list[Block]) -> None:
        for block in blocks:
            left = block.size
            for number in sorted(block.mask):
                node = self.nodes[number]
                node.assignments -= 1
                if node.assignments == 0:
                    node.cells = frozenset({number})
                given = min(node.reserved[block.type], left)
                node.reserved[block.type] -= given
                node.free[block.type] += given
                left -= given

    # -- hints (§7.4) --

    def requested(self, pod: Pod, container: Container) -> Amounts:
        if pod.has_pod_resources and self.rules.pod_level_managers and not container.guaranteed_alone:
            return {}
        return memory_requests(container.requests)

    def ignores(self, pod: Pod) -> bool:
        skipped = pod.has_pod_resources and self.rules.pod_level_skips_managers and not self.rules.pod_level_managers
        return not self.static or not pod.guaranteed or skipped

    def hints(self, pod: Pod, container: Container, active: dict[str, Pod]) -> Hints | None:
        if self.static:
            self.collect(active)
        if self.ignores(pod):
            return None
        wanted = self.requested(pod, container)
        blocks = self.blocks.get(pod.uid, {}).get(container.name)
        if blocks is not None:
            return _held_hints(blocks, wanted)
        return self._as_hints(pod, wanted)

    def pod_hints(self, pod: Pod, active: dict[str, Pod]) -> Hints | None:
        if self.static:
            self.collect(active)
        if self.ignores(pod):
            return None
        return self.hints_for_total(pod, self._pod_total(pod))

    def hints_for_total(self, pod: Pod, wanted: Amounts) -> Hints | None:
        if not wanted:
            return None
        held = self.blocks.get(pod.uid, {})
        for container in pod.containers:
            if container.name in held:
                return _held_hints(held[container.name], wanted)
        return self._as_hints(pod, wanted)

    def _pod_total(self, pod: Pod) -> Amounts:
        requests = [(container.kind, self.requested(pod, container)) for container in pod.containers]
        names = {name for kind, amounts in requests if kind == "app" for name in amounts}
        return {
            name: pod_total([(kind, amounts.get(name, 0)) for kind, amounts in requests], sidecars=True)
            for name in names
        }

    def _as_hints(self, pod: Pod, wanted: Amounts) -> Hints:
        found = self.possible(pod, wanted)
        return {name: list(found) for name in wanted} if found else {}

    def possible(self, pod: Pod, wanted: Amounts) -> list[Hint]:
        smallest = len(self.nodes)
        masks = []
        for mask in masks_over(sorted(self.nodes)):
            if any(self._sum("allocatable", mask, name) < size for name, size in wanted.items()):
                continue
            smallest = min(smallest, len(mask))
            if len(mask) == 1 and any(len(self.nodes[node].cells) > 1 for node in mask):
                continue
            if len(mask) > 1 and self._breaks_group(mask):
                continue
            if all(self._sum("free", mask, n) + self._reusable(pod, mask, n) >= size for n, size in wanted.items()):
                masks.append(mask)
        return [Hint(mask, len(mask) == smallest) for mask in masks]

    def _breaks_group(self, mask: Mask) -> bool:
        """Some node of the mask is in use, alone or in another group."""
        used = [self.nodes[node].cells for node in mask if self.nodes[node].assignments > 0]
        return any(len(cells) == 1 or cells != mask for cells in used)

    def _sum(self, what: str, mask: Mask, name: str) -> int:
        for node in mask:
            if name not in self.nodes[node].total:
                raise NaiveKubeletError(f"panic: NUMA node {node} does not know {name}")
        return sum(getattr(self.nodes[node], what)[name] for node in mask)

    def _reusable(self, pod: Pod, mask: Mask, name: str) -> int:
        return self.reuse.get(pod.uid, {}).get((mask, name), 0)

    # -- allocation (§7.5) --

    def allocate(self, pod: Pod, container: Container, affinity: Hint, active: dict[str, Pod]) -> None:
        if self.static:
            self.collect(active)
        if self.ignores(pod):
            return
        held = self.blocks.get(pod.uid, {}).get(container.name)
        if held is not None:
            self._update_reuse(pod, container, held)
            return
        wanted = self.requested(pod, container)
        if not wanted and self.rules.empty_memory_request_skipped:
            return
        mask = self.choose(pod, wanted, affinity)
        blocks = [Block(mask, name, size) for name, size in wanted.items()]
        for block in blocks:
            self.charge(block, max(0, block.size - self._reusable(pod, mask, block.type)))
        self._update_reuse(pod, container, blocks)
        self.blocks.setdefault(pod.uid, {})[container.name] = blocks
        self._shrink_init_blocks(pod, container, blocks)

    def choose(self, pod: Pod, wanted: Amounts, hint: Hint) -> Mask:
        """The nodes that the memory is put on, from the topology manager's hint."""
        if hint.mask is None:
            found = self._for_memory(pod, wanted)
            if not found:
                raise _failed("failed to get the default NUMA affinity, no NUMA nodes with enough memory is available")
            best = _best(found)
            if hint.preferred and not best.preferred:
                raise _failed("failed to find the default preferred hint")
            hint = best
        assert hint.mask is not None
        affinity = hint.mask
        if any(self._sum("free", affinity, name) < size for name, size in wanted.items()):
            wider = [h for h in self._for_memory(pod, wanted) if h.mask is not None and h.mask >= affinity]
            if not wider:
                raise _failed("failed to find NUMA nodes to extend the current topology hint")
            best = _best(wider)
            if hint.preferred and not best.preferred:
                raise _failed("failed to find the extended preferred hint")
            hint = best
        assert hint.mask is not None
        if self.rules.memory_group_check and len(hint.mask) > 1 and self._breaks_group(hint.mask):
            raise _failed("preferred hint violates NUMA node allocation")
        return hint.mask

    def _for_memory(self, pod: Pod, wanted: Amounts) -> list[Hint]:
        """The possible hints under the name `memory`: none if the request does not name it."""
        return self.possible(pod, wanted) if "memory" in wanted else []

    def charge(self, block: Block, amount: int) -> None:
        """The lowest node is filled first; each node counts an assignment, also for nothing."""
        for number in sorted(block.mask):
            node = self.nodes[number]
            node.assignments += 1
            node.cells = block.mask
            taken = min(node.free[block.type], amount)
            node.free[block.type] -= taken
            node.reserved[block.type] += taken
            amount -= taken

    def _update_reuse(self, pod: Pod, container: Container, blocks: list[Block]) -> None:
        """§7.6."""
        table = self.reuse.get(pod.uid, {})
        for block in blocks:
            key = (block.mask, block.type)
            if container.kind == "init":
                table[key] = max(table.get(key, 0), block.size)
            else:
                table[key] = max(0, table.get(key, 0) - block.size)
        self.reuse = {pod.uid: table}

    def _shrink_init_blocks(self, pod: Pod, container: Container, blocks: list[Block]) -> None:
        """What a container reuses is no longer charged to the init container it came from."""
        for block in blocks:
            left = block.size
            for earlier in pod.containers:
                if earlier.name == container.name:
                    break
                if earlier.kind != "init":
                    continue
                for old in self.blocks[pod.uid].get(earlier.name, []):
                    if old.type == block.type and old.mask == block.mask:
                        used = min(old.size, left)
                        old.size -= used
                        left -= used


def _held_hints(blocks: list[Block], wanted: Amounts) -> Hints | None:
    """§7.7."""
    if len(blocks) != len(wanted) or any(wanted.get(block.type) != block.size for block in blocks):
        return None
    return {block.type: [Hint(block.mask, preferred=True)] for block in blocks}


def _best(hints: list[Hint]) -> Hint:
    return min(hints, key=lambda hint: (not hint.preferred, *narrowness(hint.mask or frozenset())))


def _failed(text: str) -> Exception:
    return allocate_failed(f"[memorymanager] {text}")
