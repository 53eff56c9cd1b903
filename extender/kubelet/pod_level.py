"""Pods with pod-level resources (PodLevelResourceManagers) in pod scope.

The pod gets one "bubble" of CPUs, which is divided among its containers.

Rules of this file
- The bubble is taken from the node once. Exclusive containers get a part of it, shared ones share the rest.
- Devices of such pods are not allocated at admission at all.

Mirrors: kubelet 1.36 `cm/topologymanager/scope_pod.go` (admitUsingPodResources) and AllocatePod of the CPU and memory
managers' static policies.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from extender.kubelet import cpu_manager, memory_manager
from extender.kubelet.budget import Budget
from extender.kubelet.hints import IMPOSSIBLE, Hints, TopologyHint
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import ContainerRequest, PodRequest
from extender.kubelet.state import Block, CPUState, MemoryState
from extender.kubelet.verdict import Provider, Reason, Refusal


def checked_cpu_hints(kubelet: Kubelet, state: CPUState, pod: PodRequest, budget: Budget) -> Hints | None:
    """CPU hints of the whole pod. IMPOSSIBLE if the pod-level budget leaves nothing for a shared container."""
    if kubelet.cpu_static and pod.pod_level is not None and pod.pod_level.cpus and _cpu_shortage(pod):
        return IMPOSSIBLE
    return cpu_manager.pod_hints(kubelet, state, pod, budget)


def checked_memory_hints(
    kubelet: Kubelet, state: MemoryState, pod: PodRequest, budget: Budget
) -> dict[str, Hints | None]:
    """Memory hints of the whole pod. IMPOSSIBLE for every type if a budget leaves nothing for a shared container."""
    if kubelet.memory_static and pod.pod_level is not None and _memory_shortage(pod):
        return dict.fromkeys(pod.pod_level.memory_bytes, IMPOSSIBLE)
    return memory_manager.pod_hints(kubelet, state, pod, budget)


def _cpu_shortage(pod: PodRequest) -> str | None:
    assert pod.pod_level is not None
    return _shortage(pod, pod.pod_level.cpus, lambda c: c.cpus, "cpu", "cpus", "cpus")


def _memory_shortage(pod: PodRequest) -> str | None:
    assert pod.pod_level is not None
    for name, budget in pod.pod_level.memory_bytes.items():
        found = _shortage(pod, budget, lambda c, name=name: (c.memory_bytes or {}).get(name, 0), name, name, "memory")  # type: ignore[misc]
        if found:
            return found
    return None


def _shortage(
    pod: PodRequest, budget: int, amount: Callable[[ContainerRequest], int], resource: str, plural: str, left: str
) -> str | None:
    """Why the budget leaves nothing for a shared container. None if it leaves something.

    Source: policy_static.go of both managers, validatePodScopeResources.
    """
    exclusive = 0
    long_running_shared = False
    for c in pod.containers:
        wanted = amount(c)
        if c.reusable:
            if not wanted and exclusive >= budget:
                return f"pod rejected, pod has shared init containers but no {plural} available for them"
            continue
        exclusive += wanted
        long_running_shared = long_running_shared or not wanted
    if long_running_shared and exclusive >= budget:
        return (
            f"pod rejected, sum of exclusive container {resource} requests equals pod budget, "
            f"leaving no {left} for shared containers"
        )
    return None


def take_bubble(kubelet: Kubelet, state: CPUState, pod: PodRequest, affinity: int | None, budget: Budget) -> CPUState:
    """The state after the pod's whole CPU budget is taken from the node, before it is divided.

    If dividing it then fails, the kubelet never releases this bubble: no container entry refers to it.

    Source: cm/cpumanager/policy_static.go, AllocatePod.

    Raises:
        Refusal: EmptyPodSharedPoolError, SMTAlignmentError or UnexpectedAdmissionError.
    """
    assert pod.pod_level is not None
    total = pod.pod_level.cpus
    if not kubelet.cpu_static or not total:
        return state
    if kubelet.rules.pod_cpus_restored and pod.uid in state.pod_entries:
        return state
    if shortage := _cpu_shortage(pod):
        raise Refusal(Reason.EMPTY_POD_SHARED_POOL, shortage, provider=Provider.CPU, resource="cpu", wanted=total)
    cpu_manager.check_smt_alignment(kubelet, state, total)
    bubble = cpu_manager.take(kubelet, cpu_manager.available(kubelet, state), total, affinity, budget)
    pod_entries = {**state.pod_entries, pod.uid: bubble}
    return replace(state, default=state.default & ~bubble, pod_entries=pod_entries)


def share_out_cpus(kubelet: Kubelet, state: CPUState, pod: PodRequest, budget: Budget) -> CPUState:
    """The state after every container has its part of the bubble: exclusive ones as requested, shared ones the rest.

    Source: cm/cpumanager/policy_static.go, AllocatePod.

    Raises:
        Refusal: UnexpectedAdmissionError if the bubble is too small for an exclusive container.
    """
    bubble = state.pod_entries.get(pod.uid, 0)
    if not bubble or (kubelet.rules.pod_cpus_restored and pod.uid in state.entries):
        return state
    held: dict[str, int] = {}
    left = bubble
    for c in pod.containers:
        if c.cpus:
            held[c.name] = cpu_manager.take(kubelet, left, c.cpus, None, budget)
            if not c.reusable:
                left &= ~held[c.name]
        elif c.reusable:
            held[c.name] = left
    for c in pod.containers:
        held.setdefault(c.name, left)
    entries = {**state.entries, pod.uid: {c.name: held[c.name] for c in pod.containers}}
    return replace(state, entries=entries)


def allocate_memory(
    kubelet: Kubelet, state: MemoryState, pod: PodRequest, hint: TopologyHint, budget: Budget
) -> MemoryState:
    """The state after the pod's memory budget is pinned and divided into blocks.

    Source: cm/memorymanager/policy_static.go, AllocatePod.

    Raises:
        Refusal: EmptyPodSharedPoolError or UnexpectedAdmissionError.
    """
    assert pod.pod_level is not None
    wanted = pod.pod_level.memory_bytes
    if not kubelet.memory_static or not wanted:
        return state
    if kubelet.rules.pod_memory_restored and pod.uid in state.pod_entries:
        return state
    if shortage := _memory_shortage(pod):
        raise Refusal(Reason.EMPTY_POD_SHARED_POOL, shortage, provider=Provider.MEMORY, resource="memory")
    mask = memory_manager.choose_mask(kubelet, state, wanted, {}, hint.affinity, budget, preferred=hint.preferred)
    nodes = state.nodes
    for name, size in wanted.items():
        nodes = memory_manager.charge(nodes, mask, name, size)
    return replace(
        state,
        nodes=nodes,
        entries={**state.entries, pod.uid: _share_out(pod, mask)},
        pod_entries={**state.pod_entries, pod.uid: tuple(Block(mask, name, size) for name, size in wanted.items())},
    )


def _share_out(pod: PodRequest, mask: int) -> dict[str, tuple[Block, ...]]:
    """Blocks by container: exclusive ones as requested, shared ones what is left of the budget; none of size 0.

    The kubelet subtracts in unsigned 64 bits. An app container may take a type that the budget does not have; the rest
    of that type is then 2^64 minus the amount. A sidecar may only take types that the budget has.

    Source: cm/memorymanager/policy_static.go, AllocatePod.
    """
    assert pod.pod_level is not None
    left = dict(pod.pod_level.memory_bytes)
    blocks: dict[str, tuple[Block, ...]] = {}
    for c in pod.containers:
        if not c.memory_bytes:
            if c.reusable:
                blocks[c.name] = _blocks(mask, left)
            continue
        blocks[c.name] = _blocks(mask, c.memory_bytes)
        if c.reusable:
            continue
        for name, size in c.memory_bytes.items():
            if name in left or not c.sidecar:
                left[name] = (left.get(name, 0) - size) % (1 << 64)
    for c in pod.containers:
        blocks.setdefault(c.name, _blocks(mask, left))
    return {c.name: blocks[c.name] for c in pod.containers}


def _blocks(mask: int, sizes: Mapping[str, int]) -> tuple[Block, ...]:
    return tuple(Block(mask, name, size) for name, size in sizes.items() if size)
