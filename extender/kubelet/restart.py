"""A kubelet starts on a node whose pods run: which state files it accepts, and which pods it admits again.

Rules of this file
- A kubelet that starts admits its pods again, one after another, before its pod sources are ready. Until then its
  managers release nothing, not even what a refused pod holds.
- A container that runs keeps its devices without an allocation. No device plugin has registered yet, so every other
  allocation of devices fails.
- Then it releases what pods that are gone had. It walks Go maps, whose order is random. The order matters only for
  memory blocks on groups of NUMA nodes that overlap, which kubelets up to 1.31 allow: what one block returns is then
  missing for another.

Mirrors: kubelet `kubelet.go` HandlePodAdditions, `cm/{cpumanager,memorymanager}` restoreState and validateState,
`cm/devicemanager/manager.go` devicesToAllocate, `cm/memorymanager/memory_manager.go` (removeStaleState),
`policy_static.go` (releaseMemory).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, permutations, product
from typing import Final

from extender.kubelet.admission import Outcome, admit, release_pods
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.memory_manager import release_container
from extender.kubelet.observed import contradictions
from extender.kubelet.pod import PodRequest
from extender.kubelet.startup import initial_state
from extender.kubelet.state import DeviceState, ManagerState, NUMANodeMemory
from extender.kubelet.verdict import Provider

CPU_FILE: Final = "cpu_manager_state"
MEMORY_FILE: Final = "memory_manager_state"


@dataclass(frozen=True, slots=True)
class RefusedFile:
    """A state file with which the kubelet does not start. It starts once the file is deleted."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Restored:
    """The state after a start. The managers of refused files begin empty, as if the files had been deleted."""

    state: ManagerState
    refused: tuple[RefusedFile, ...] = ()


def restore(old: Kubelet, new: Kubelet, state: ManagerState) -> Restored:
    """What kubelet *new* restores from the state files that *old* wrote. Devices have not registered."""
    empty = initial_state(new, {})
    kept = _without_lost_entries(old, new, state)
    kept = ManagerState(
        cpu=replace(kept.cpu, reusable=("", 0)),
        memory=replace(kept.memory, reusable=("", {})),
        devices=DeviceState.of({name: {} for name in state.devices.devices}, state.devices.entries),
    )
    refused, (_, invalid) = [], contradictions(new, kept)
    for name, manager, policies, before, after in (
        (CPU_FILE, Provider.CPU, ("none", "static"), old.cpu_static, new.cpu_static),
        (MEMORY_FILE, Provider.MEMORY, ("None", "Static"), old.memory_static, new.memory_static),
    ):
        reason = _unread_format(old, new)
        if before != after:
            reason = f"it is of policy {policies[before]}, and the kubelet is configured with {policies[after]}"
        if not reason and (error := invalid.get(manager)) is not None:
            reason = f"{error.field.removeprefix(f'state.{name}.')}: {error.reason}"
        if reason:
            refused.append(RefusedFile(name, reason))
            kept = replace(kept, cpu=empty.cpu) if name == CPU_FILE else replace(kept, memory=empty.memory)
    return Restored(kept, tuple(refused))


def admit_again(
    kubelet: Kubelet, state: ManagerState, pods: Iterable[PodRequest], *, running: bool = True
) -> list[Outcome]:
    """The outcome of each pod, in this order. *running*: its containers run; False after a reboot."""
    outcomes = []
    for pod in pods:
        request = _without_running_devices(state, pod) if running else pod
        outcome = admit(kubelet, state, request, collects=False)
        outcomes.append(outcome)
        state = outcome.state
    return outcomes


def _without_running_devices(state: ManagerState, pod: PodRequest) -> PodRequest:
    """The pod without the devices that a kubelet does not allocate to containers that run."""
    held = state.devices.entries.get(pod.uid, {})
    containers = []
    for container in pod.containers:
        counts = {resource: len(ids) for resource, ids in held.get(container.name, {}).items()}
        wanted = {
            resource: count
            for resource, count in container.devices.items()
            if container.reusable or counts.get(resource, count) != count
        }
        containers.append(replace(container, devices=wanted))
    return replace(pod, containers=tuple(containers))


def _without_lost_entries(old: Kubelet, new: Kubelet, state: ManagerState) -> ManagerState:
    """The state without pods' own entries, where the new kubelet does not read them.

    They survive only between kubelets with the gate, and not from 1.37 to 1.36.
    """
    is_kept = new.rules.pod_level_managers and not (old.rules.minor >= 37 > new.rules.minor)
    if is_kept or not (state.cpu.pod_entries or state.memory.pod_entries):
        return state
    return replace(state, cpu=replace(state.cpu, pod_entries={}), memory=replace(state.memory, pod_entries={}))


def _unread_format(old: Kubelet, new: Kubelet) -> str:
    """Kubelets without the gate compute another checksum for a file of 1.36 with the gate."""
    if old.rules.minor == 36 and old.rules.pod_level_managers:
        is_read = new.rules.minor >= 37 or new.rules.pod_level_managers
        return (
            "" if is_read else "it was written with the feature gate PodLevelResourceManagers, and fails its checksum"
        )
    return ""


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
