"""The memory manager's Static policy: hints, allocation, groups, reuse inside a pod, release.

Rules of this file
- Amounts are bytes. A node in a multi-node group (`cells`) serves that group only. A node with single-node assignments
  joins no group.
- No feasible mask means "no preference", not "impossible": a lack of memory is found in `allocate`, as
  UnexpectedAdmissionError.
- The stored affinity is a lower bound here: it may be extended, never narrowed.
- Admission is not monotone in free memory. Nothing may assume that it is.

Mirrors: kubelet `cm/memorymanager/policy_static.go` and `state/state.go`.
"""

from collections.abc import Mapping
from dataclasses import replace

from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.errors import KubeletPanicError
from extender.kubelet.hints import NIL_POINTER, NO_PREFERENCE, Hints, narrowest, walked_universe
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import INT64_MAX, ContainerRequest, PodRequest
from extender.kubelet.sets import Universe, at_least, iter_bits, universe
from extender.kubelet.state import Block, MemoryAmounts, MemoryState, NUMANodeMemory, without
from extender.kubelet.verdict import Provider, Reason, Refusal

Reusable = Mapping[tuple[int, str], int]
"""Bytes that later containers of a pod may reuse, by (exact mask, type)."""

_NO_MEMORY = "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
_NO_PREFERRED = "failed to find the default preferred hint"
_NO_EXTENSION = "failed to find NUMA nodes to extend the current topology hint"
_NO_PREFERRED_EXTENSION = "failed to find the extended preferred hint"
_GROUP_VIOLATED = "preferred hint violates NUMA node allocation"
_NOT_INT64 = "failed to represent quantity as int64"


def container_hints(
    kubelet: Kubelet, state: MemoryState, pod: PodRequest, container: ContainerRequest, budget: Budget = UNLIMITED
) -> dict[str, Hints | None]:
    """Where the container's memory can be allocated, the same hints for every type. Empty: no preference.

    Source: policy_static.go, GetTopologyHints.
    """
    request = container.memory_bytes
    if not kubelet.memory_static or request is None:
        return {}
    if max(request.values(), default=0) > INT64_MAX:
        return {}
    held = state.entries.get(pod.uid, {}).get(container.name)
    if held is not None:
        return regenerate_hints(held, request)
    return _per_type(calculate_hints(state, request, reusable_by(state, pod.uid), budget), request)


def pod_hints(
    kubelet: Kubelet, state: MemoryState, pod: PodRequest, budget: Budget = UNLIMITED
) -> dict[str, Hints | None]:
    """Where the memory of the whole pod can be allocated. Empty: no preference.

    Source: policy_static.go, GetPodTopologyHints.
    """
    request = pod.total_memory_bytes if pod.pod_level is None else pod.pod_level.memory_bytes
    if not kubelet.memory_static or not pod.guaranteed or not request or max(request.values()) > INT64_MAX:
        return {}
    held_by = state.entries.get(pod.uid, {})
    restores = kubelet.rules.memory_hints_restored
    if restores and pod.pod_level is not None and pod.uid in state.pod_entries:
        return regenerate_hints(state.pod_entries[pod.uid], request)
    for c in pod.containers:
        if c.name in held_by:
            return regenerate_hints(held_by[c.name], c.memory_bytes or {} if restores else request)
    return _per_type(calculate_hints(state, request, reusable_by(state, pod.uid), budget), request)


def _per_type(hints: Hints | None, request: Mapping[str, int]) -> dict[str, Hints | None]:
    return {} if hints is None else dict.fromkeys(request, hints)


def regenerate_hints(blocks: tuple[Block, ...], request: Mapping[str, int]) -> dict[str, Hints | None]:
    """Hints of a container that already has blocks: their NUMA nodes, or no preference if they do not match.

    Source: policy_static.go, regenerateHints.
    """
    if len(blocks) != len(request) or any(request.get(b.type) != b.size for b in blocks):
        return {}
    return {b.type: _just(b.mask) for b in blocks}


def _just(mask: int) -> Hints:
    space = universe(tuple(iter_bits(mask)))
    return Hints(space, space.full, space.full, mask.bit_count())


def calculate_hints(
    state: MemoryState, request: Mapping[str, int], reusable: Reusable, budget: Budget = UNLIMITED
) -> Hints | None:
    """Every set of NUMA nodes with enough free memory of every type. None if there is none.

    The preferred width is the number of NUMA nodes whose allocatable memory, in use or not, would be enough.

    Source: policy_static.go, calculateHints.
    """
    nodes = state.nodes
    # 1. For each type, the masks with enough allocatable memory and those with enough free memory.
    space = walked_universe([n.id for n in nodes], Provider.MEMORY)
    allocatable = enough = space.everything
    for memory_type, wanted in request.items():
        budget.spend(len(reusable) + (space.size >> 5) + len(nodes))
        amounts = [_amounts(n, memory_type) for n in nodes]
        allocatable &= at_least(tuple([a.allocatable for a in amounts]), wanted)
        free = at_least(tuple([a.free for a in amounts]), wanted)
        # 2. Memory of the pod's own init containers counts as free, but only on exactly their mask.
        for (mask, reusable_type), size in reusable.items():
            if reusable_type == memory_type and _free(state, mask, memory_type) + size >= wanted:
                free |= 1 << space.number(mask)
        enough &= free
    # 3. The narrowest mask that could ever serve the request decides what is preferred, even if it is in use.
    width = space.width(allocatable) or len(nodes)
    # 4. Drop masks that would split a group or join a node in use. No mask left means no preference.
    feasible = allocatable & enough & _open_masks(space, nodes) & ~1
    return Hints.preferring_width(space, feasible, width) if feasible else NO_PREFERENCE


def _amounts(node: NUMANodeMemory, memory_type: str) -> MemoryAmounts:
    for name, amounts in node.amounts:
        if name == memory_type:
            return amounts
    raise KubeletPanicError(NIL_POINTER, missing=memory_type)


def _open_masks(space: Universe, nodes: tuple[NUMANodeMemory, ...]) -> int:
    """The masks that groups allow: a NUMA node outside all groups; several NUMA nodes that are not in use; a group.

    A group is allowed only while no node of it is in use by another group.
    """
    grouped = in_use = 0
    for node in nodes:
        bit = 1 << node.id
        grouped |= bit if node.cells != bit else 0
        in_use |= bit if node.assignments > 0 else 0
    single = space.by_width[1] if nodes else 0
    family = (single & ~space.touching(grouped)) | (space.everything & ~single & ~space.touching(in_use))
    for node in nodes:
        if node.assignments > 0 and node.cells & (node.cells - 1):
            users = [n for n in nodes if node.cells >> n.id & 1 and n.assignments > 0]
            if all(n.cells == node.cells for n in users):
                family |= 1 << space.number(node.cells)
    return family


def allocate(
    kubelet: Kubelet,
    state: MemoryState,
    pod: PodRequest,
    container: ContainerRequest,
    affinity: int | None,
    budget: Budget = UNLIMITED,
    *,
    preferred: bool,
) -> MemoryState:
    """The state after the container's memory is pinned. The same state if it requests none.

    Source: policy_static.go, Allocate.

    Raises:
        Refusal: UnexpectedAdmissionError.
    """
    request = container.memory_bytes
    if not kubelet.memory_static or request is None:
        return state
    if not request and kubelet.rules.empty_memory_request_skipped:
        return state
    # 1. A container that has blocks keeps them (the kubelet restarted, or the container did).
    held = state.entries.get(pod.uid, {}).get(container.name)
    if held is not None:
        return replace(state, reusable=_reusable_after(state, pod, container, held))
    if max(request.values(), default=0) > INT64_MAX:
        raise _refusal(_NOT_INT64)
    reusable = reusable_by(state, pod.uid)
    budget.spend(len(request) * len(state.nodes) + len(pod.containers))
    # 2. Choose the NUMA nodes.
    mask = choose_mask(kubelet, state, request, reusable, affinity, budget, preferred=preferred)
    blocks = tuple(Block(mask, memory_type, size) for memory_type, size in request.items())
    nodes = state.nodes
    # 3. Charge the nodes with what the pod's init containers did not already charge (updateMachineState).
    for block in blocks:
        nodes = charge(nodes, mask, block.type, max(0, block.size - reusable.get((mask, block.type), 0)))
    # 4. Record what later containers may reuse, and shrink the blocks of init containers by what is reused now.
    held_by = {**state.entries.get(pod.uid, {}), container.name: blocks}
    _shrink_init_blocks(held_by, pod, container, blocks)
    return MemoryState(
        nodes=nodes,
        entries={**state.entries, pod.uid: held_by},
        pod_entries=state.pod_entries,
        reusable=_reusable_after(state, pod, container, blocks),
    )


def choose_mask(
    kubelet: Kubelet,
    state: MemoryState,
    request: Mapping[str, int],
    reusable: Reusable,
    affinity: int | None,
    budget: Budget = UNLIMITED,
    *,
    preferred: bool,
) -> int:
    """The NUMA nodes that a request is pinned to, given what the Topology Manager stored.

    Source: policy_static.go, Allocate, getDefaultHint, extendTopologyManagerHint, isAffinityViolatingNUMAAllocations.

    Raises:
        Refusal: UnexpectedAdmissionError.
    """
    # 1. Without an affinity the manager uses its own best hint (getDefaultHint).
    mask = affinity
    if mask is None:
        hints = calculate_hints(state, request, reusable, budget)
        if hints is None or not request:
            raise _short(state, request, _NO_MEMORY)
        mask, chosen_preferred = _best(hints)
        if preferred and not chosen_preferred:
            raise _short(state, request, _NO_PREFERRED)
        preferred = chosen_preferred
    # 2. An affinity with too little memory is extended by further nodes, never replaced (extendTopologyManagerHint).
    if any(_free(state, mask, memory_type) < wanted for memory_type, wanted in request.items()):
        hints = calculate_hints(state, request, reusable, budget)
        wider = 0 if hints is None else hints.feasible & hints.universe.containing(mask)
        if hints is None or not wider:
            raise _short(state, request, _NO_EXTENSION, mask)
        mask, chosen_preferred = _best(Hints(hints.universe, wider, wider & hints.preferred))
        if preferred and not chosen_preferred:
            raise _short(state, request, _NO_PREFERRED_EXTENSION, mask)
    # 3. Newer kubelets refuse a mask that would change a group in use (isAffinityViolatingNUMAAllocations).
    if kubelet.rules.memory_group_check and mask & (mask - 1):
        for node in state.nodes:
            if mask >> node.id & 1 and node.assignments > 0 and node.cells != mask:
                raise _short(state, request, _GROUP_VIOLATED, mask)
    return mask


def _best(hints: Hints) -> tuple[int, bool]:
    """Preferred before others, then narrower."""
    return narrowest(hints.universe, hints.preferred or hints.feasible), bool(hints.preferred)


def _free(state: MemoryState, mask: int, memory_type: str) -> int:
    return sum(_amounts(n, memory_type).free for n in state.nodes if mask >> n.id & 1)


def _short(state: MemoryState, request: Mapping[str, int], message: str, mask: int = -1) -> Refusal:
    """A refusal that names the first type that does not fit into the mask, or plain memory if a group is the reason."""
    for memory_type, wanted in request.items():
        had = _free(state, mask, memory_type)
        if had < wanted:
            return _refusal(message, memory_type, wanted, had)
    return _refusal(message, "memory", request.get("memory"), None)


def _refusal(message: str, resource: str = "memory", wanted: int | None = None, had: int | None = None) -> Refusal:
    text = f"Allocate failed due to [memorymanager] {message}, which is unexpected"
    return Refusal(
        Reason.UNEXPECTED_ADMISSION, text, provider=Provider.MEMORY, resource=resource, wanted=wanted, had=had
    )


def charge(nodes: tuple[NUMANodeMemory, ...], mask: int, memory_type: str, size: int) -> tuple[NUMANodeMemory, ...]:
    """Take *size* bytes from the nodes of *mask*, lowest id first. Each of these nodes counts one assignment.

    Source: policy_static.go, updateMachineState.
    """
    result = []
    for node in nodes:
        if not mask >> node.id & 1:
            result.append(node)
            continue
        amounts = _amounts(node, memory_type)
        taken = min(size, amounts.free)
        size -= taken
        changed = amounts._replace(free=amounts.free - taken, reserved=amounts.reserved + taken)
        result.append(_with(node, memory_type, changed, node.assignments + 1, mask))
    return tuple(result)


def _discharge(nodes: tuple[NUMANodeMemory, ...], mask: int, memory_type: str, size: int) -> tuple[NUMANodeMemory, ...]:
    """Return *size* bytes to the nodes of *mask*, lowest id first, wherever they were charged.

    Source: policy_static.go, releaseMemory.
    """
    result = []
    for node in nodes:
        amounts = dict(node.amounts).get(memory_type) if mask >> node.id & 1 else None
        if amounts is None:
            result.append(node)
            continue
        returned = min(size, amounts.reserved)
        size -= returned
        changed = amounts._replace(free=amounts.free + returned, reserved=amounts.reserved - returned)
        assignments = node.assignments - 1
        result.append(_with(node, memory_type, changed, assignments, node.cells if assignments else 1 << node.id))
    return tuple(result)


def _with(
    node: NUMANodeMemory, memory_type: str, changed: MemoryAmounts, assignments: int, cells: int
) -> NUMANodeMemory:
    amounts = tuple((name, changed if name == memory_type else a) for name, a in node.amounts)
    return NUMANodeMemory(node.id, assignments, cells, amounts)


def reusable_by(state: MemoryState, uid: str) -> Reusable:
    """What later containers of pod *uid* may take over."""
    return state.reusable[1] if state.reusable[0] == uid else {}


def _reusable_after(
    state: MemoryState, pod: PodRequest, container: ContainerRequest, blocks: tuple[Block, ...]
) -> tuple[str, Reusable]:
    """Ordinary init containers leave their memory to later containers. Other containers use it up.

    Source: policy_static.go, updatePodReusableMemory.
    """
    reusable = dict(reusable_by(state, pod.uid))
    for block in blocks:
        key = (block.mask, block.type)
        before = reusable.get(key, 0)
        reusable[key] = max(before, block.size) if container.reusable else max(0, before - block.size)
    return pod.uid, reusable


def _shrink_init_blocks(
    held: dict[str, tuple[Block, ...]], pod: PodRequest, container: ContainerRequest, blocks: tuple[Block, ...]
) -> None:
    """Rewrite in *held* the blocks of earlier ordinary init containers so that all sizes add up to what is charged.

    Source: policy_static.go, updateInitContainersMemoryBlocks.
    """
    for block in blocks:
        left = block.size
        for earlier in pod.containers:
            if earlier.name == container.name or not left:
                break
            if not earlier.reusable or earlier.name not in held:
                continue
            shrunk = []
            for b in held[earlier.name]:
                used = min(left, b.size) if (b.mask, b.type) == (block.mask, block.type) else 0
                left -= used
                shrunk.append(b._replace(size=b.size - used))
            held[earlier.name] = tuple(shrunk)


def release_container(state: MemoryState, uid: str, container: str) -> MemoryState:
    """The state after one container's blocks are released. Source: policy_static.go, RemoveContainer."""
    held = state.entries.get(uid, {})
    if container not in held:
        return state
    rest = without(held, container)
    nodes = state.nodes
    if uid not in state.pod_entries:
        nodes = _discharge_all(nodes, held[container])
    elif not rest:
        nodes = _discharge_all(nodes, state.pod_entries[uid])
    return replace(
        state,
        nodes=nodes,
        entries={**state.entries, uid: rest} if rest else without(state.entries, uid),
        pod_entries=state.pod_entries if rest else without(state.pod_entries, uid),
    )


def _discharge_all(nodes: tuple[NUMANodeMemory, ...], blocks: tuple[Block, ...]) -> tuple[NUMANodeMemory, ...]:
    for block in blocks:
        nodes = _discharge(nodes, block.mask, block.type, block.size)
    return nodes


def release(state: MemoryState, uid: str) -> MemoryState:
    """The state after everything of a pod is released. Source: memory_manager.go, removeStaleState."""
    for container in state.entries.get(uid, {}):
        state = release_container(state, uid, container)
    return state


def start_containers(state: MemoryState, pod: PodRequest) -> MemoryState:
    """The state once the pod's containers run: each ordinary init container has released its memory to the next one.

    Only containers that are followed by another one are released.

    Source: memory_manager.go, AddContainer.
    """
    last = pod.containers[-1].name if pod.containers else ""
    for c in pod.containers:
        if c.reusable and c.name != last:
            state = release_container(state, pod.uid, c.name)
    return state
