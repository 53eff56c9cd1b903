"""Pods with pod-level resources under PodLevelResourceManagers, pod scope (§3.8): one bubble for the whole pod."""

from tests.oracle.cpu_manager import CpuManager, CpuSet
from tests.oracle.errors import AdmissionError
from tests.oracle.hints import Hint, Hints
from tests.oracle.memory_manager import Amounts, Block, MemoryManager
from tests.oracle.pods import Pod, memory_requests, whole_cpus

NO_ROOM_FOR_INIT = "pod rejected, pod has shared init containers but no {} available for them"
NO_ROOM_FOR_SHARED = (
    "pod rejected, sum of exclusive container {} requests equals pod budget, leaving no {} for shared containers"
)


def _fault(pod: Pod, exclusive: dict[str, int], total: int) -> str | None:
    """Which containers that share would have nothing left to share."""
    held = 0
    for container in pod.containers:
        if container.kind == "sidecar":
            held += exclusive[container.name]
        elif container.kind == "init" and exclusive[container.name] == 0 and held >= total:
            return NO_ROOM_FOR_INIT
    held += sum(exclusive[container.name] for container in pod.containers if container.kind == "app")
    sharing = any(container.kind != "init" and exclusive[container.name] == 0 for container in pod.containers)
    return NO_ROOM_FOR_SHARED if sharing and held >= total else None


# -- CPUs --


def _cpu_needs(manager: CpuManager, pod: Pod) -> tuple[int, dict[str, int]]:
    if not pod.guaranteed:
        return 0, {}
    return (
        whole_cpus(pod.pod_requests.get("cpu", 0)),
        {container.name: manager.exclusive(pod, container) for container in pod.containers},
    )


def cpu_hints(manager: CpuManager, pod: Pod, active: dict[str, Pod]) -> Hints | None:
    if not manager.static:
        return None
    manager.collect(active)
    total, exclusive = _cpu_needs(manager, pod)
    if total == 0:
        return None
    if _fault(pod, exclusive, total):
        return {"cpu": []}
    return manager.hints_for_total(pod, exclusive, total)


def allocate_cpus(manager: CpuManager, pod: Pod, affinity: Hint, active: dict[str, Pod]) -> None:
    if not manager.static:
        return
    manager.collect(active)
    total, exclusive = _cpu_needs(manager, pod)
    if total == 0:
        return
    fault = _fault(pod, exclusive, total)
    if fault:
        raise AdmissionError("EmptyPodSharedPoolError", fault.format("cpus" if "{} av" in fault else "cpu", "cpus"))
    manager.check_full_cores(total)
    bubble = manager.take_near(total, affinity.mask, frozenset())
    manager.pod_entries[pod.uid] = bubble
    manager.entries[pod.uid] = _divide_bubble(manager, pod, bubble, exclusive)


def _divide_bubble(manager: CpuManager, pod: Pod, bubble: CpuSet, exclusive: dict[str, int]) -> dict[str, CpuSet]:
    """Sidecars and app containers keep theirs; ordinary init containers use what the sidecars before them left."""
    entries: dict[str, CpuSet] = {}
    left = bubble
    for container in pod.containers:
        need = exclusive[container.name]
        if need > 0:
            entries[container.name] = manager.take(left, need)
            if container.kind != "init":
                left -= entries[container.name]
        elif container.kind == "init":
            entries[container.name] = left
    for container in pod.containers:
        entries.setdefault(container.name, left)
    return entries


# -- memory --


def _pod_amounts(pod: Pod) -> Amounts:
    return {name: size for name, size in memory_requests(pod.pod_requests).items() if size > 0}


def _memory_fault(manager: MemoryManager, pod: Pod, total: Amounts) -> str | None:
    for name, size in sorted(total.items()):
        exclusive = {c.name: manager.requested(pod, c).get(name, 0) for c in pod.containers}
        fault = _fault(pod, exclusive, size)
        if fault:
            return fault.format(name, "memory")
    return None


def memory_hints(manager: MemoryManager, pod: Pod, active: dict[str, Pod]) -> Hints | None:
    if manager.static:
        manager.collect(active)
    if manager.ignores(pod):
        return None
    total = _pod_amounts(pod)
    if _memory_fault(manager, pod, total):
        return {name: [] for name in total}
    return manager.hints_for_total(pod, total)


def allocate_memory(manager: MemoryManager, pod: Pod, affinity: Hint, active: dict[str, Pod]) -> None:
    if manager.static:
        manager.collect(active)
    if manager.ignores(pod):
        return
    total = _pod_amounts(pod)
    fault = _memory_fault(manager, pod, total)
    if fault:
        raise AdmissionError("EmptyPodSharedPoolError", fault)
    mask = manager.choose(pod, total, affinity)
    for name, size in total.items():
        manager.charge(Block(mask, name, size), size)
    manager.pod_blocks[pod.uid] = [Block(mask, name, size) for name, size in total.items()]
    manager.blocks[pod.uid] = {
        name: [Block(mask, resource, size) for resource, size in amounts.items() if size]
        for name, amounts in _divide_amounts(manager, pod, total).items()
    }


def _divide_amounts(manager: MemoryManager, pod: Pod, total: Amounts) -> dict[str, Amounts]:
    left = dict(total)
    amounts: dict[str, Amounts] = {}
    for container in pod.containers:
        wanted = manager.requested(pod, container)
        if wanted:
            amounts[container.name] = wanted
            if container.kind != "init":
                for name, size in wanted.items():
                    if name in left or container.kind == "app":
                        left[name] = (left.get(name, 0) - size) % 2**64
        elif container.kind == "init":
            amounts[container.name] = dict(left)
    for container in pod.containers:
        amounts.setdefault(container.name, dict(left))
    return amounts
