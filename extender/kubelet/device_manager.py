"""The device manager: hints from device counts, allocation in tiers, reuse inside a pod, release.

Rules of this file
- Hints count devices, so a pick among equal devices has no effect later. If a tier has devices of different kinds and
  not all are taken, the kubelet picks at random: `Choices` decides which split the replay follows.
- One replay follows one script of choices; `admission` runs the possible scripts. A choice is how many devices of each
  kind to take from a tier that has more than needed. Kinds differ in NUMA set or health.
- Within a kind the smallest ids are taken, so that a replay is repeatable.
- NUMA sets of devices are raw masks. None: the plugin reported no topology.

Mirrors: kubelet `cm/devicemanager/topology_hints.go` and `manager.go`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.errors import KubeletPanicError
from extender.kubelet.hints import IMPOSSIBLE, NIL_POINTER, NO_PREFERENCE, Hints, walked_universe
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import ContainerRequest, PodRequest
from extender.kubelet.sets import touching_at_least
from extender.kubelet.state import Device, DeviceState, held_devices, without
from extender.kubelet.verdict import Provider, Reason, Refusal

MAX_ALTERNATIVES: Final = 65
"""Most alternatives counted for one choice: no admission tries more (`admission.MAX_OUTCOMES`)."""


@dataclass(slots=True)
class Choices:
    """Follows a script of choice numbers, with 0 beyond its end, and counts the alternatives of each choice."""

    script: tuple[int, ...] = ()
    alternatives: list[int] = field(default_factory=list)
    random_picks: set[tuple[str, str]] = field(default_factory=set)
    """(container, resource) pairs for which the kubelet had more devices to pick from than it needed."""

    def split(self, count: int, sizes: Sequence[int], budget: Budget = UNLIMITED) -> tuple[int, ...]:
        """How many to take from each kind, *count* in all. *sizes*: how many each kind has, above *count* in all."""
        if len(sizes) == 1:
            return (count,)
        position = len(self.alternatives)
        wanted = self.script[position] if position < len(self.script) else 0
        budget.spend(len(sizes))
        chosen = split = first_split(count, sizes)
        found = 1
        while found < MAX_ALTERNATIVES:
            budget.spend(len(sizes))
            following = next_split(split, sizes)
            if following is None:
                break
            split = following
            if found == wanted:
                chosen = split
            found += 1
        assert wanted < found, "a script names a choice that does not exist"
        self.alternatives.append(found)
        return tuple(chosen)


def first_split(count: int, sizes: Sequence[int]) -> list[int]:
    """Takes *count* from kinds of the given sizes, as many as possible from the first ones."""
    split = []
    for size in sizes:
        split.append(min(count, size))
        count -= split[-1]
    return split


def next_split(split: Sequence[int], sizes: Sequence[int]) -> list[int] | None:
    """The next split after *split* if the first kinds give as many as possible. None after the last one.

    It takes one fewer from the last kind whose followers have room for one more, and fills these up from the left.
    """
    room = moved = 0
    for position in range(len(sizes) - 1, -1, -1):
        if room and split[position]:
            rest = first_split(moved + 1, sizes[position + 1 :])
            return [*split[:position], split[position] - 1, *rest]
        room += sizes[position] - split[position]
        moved += split[position]
    return None


_NONE: frozenset[str] = frozenset()


def container_hints(
    kubelet: Kubelet, state: DeviceState, pod: PodRequest, container: ContainerRequest, budget: Budget = UNLIMITED
) -> dict[str, Hints | None]:
    """The hints of each device-plugin resource of the container. Unknown resources are skipped.

    Source: topology_hints.go, GetTopologyHints.
    """
    result = {}
    for resource, count in container.devices.items():
        if not _is_plugin_resource(state, resource):
            continue
        held = state.entries.get(pod.uid, {}).get(container.name, {}).get(resource, _NONE)
        reusable = reusable_by(state, pod.uid).get(resource, _NONE)
        result[resource] = _resource_hints(kubelet, state, resource, count, held, reusable, budget)
    return result


def pod_hints(
    kubelet: Kubelet, state: DeviceState, pod: PodRequest, budget: Budget = UNLIMITED
) -> dict[str, Hints | None]:
    """The hints for the devices of the whole pod, without reuse.

    Source: topology_hints.go, GetPodTopologyHints.
    """
    result = {}
    for resource, count in pod.total_devices.items():
        if not _is_plugin_resource(state, resource):
            continue
        containers = state.entries.get(pod.uid, {}).values()
        held = frozenset(i for resources in containers for i in resources.get(resource, _NONE))
        result[resource] = _resource_hints(kubelet, state, resource, count, held, _NONE, budget)
    return result


def _is_plugin_resource(state: DeviceState, resource: str) -> bool:
    return resource in state.devices or resource in state.held


def _resource_hints(
    kubelet: Kubelet,
    state: DeviceState,
    resource: str,
    count: int,
    held: frozenset[str],
    reusable: frozenset[str],
    budget: Budget,
) -> Hints | None:
    devices = state.devices.get(resource, {})
    budget.spend(len(devices) + 1)
    if not any(d.numa for d in devices.values()):
        return NO_PREFERENCE
    if held:
        return _generate_hints(kubelet, devices, held, _NONE, count, budget) if len(held) == count else IMPOSSIBLE
    free = _healthy(devices) - state.held.get(resource, _NONE)
    if len(free | reusable) < count:
        return IMPOSSIBLE
    return _generate_hints(kubelet, devices, free, reusable, count, budget)


def _healthy(devices: Mapping[str, Device]) -> frozenset[str]:
    return frozenset(i for i, d in devices.items() if d.healthy)


def _generate_hints(
    kubelet: Kubelet,
    devices: Mapping[str, Device],
    free: frozenset[str],
    reusable: frozenset[str],
    count: int,
    budget: Budget,
) -> Hints:
    """Every set of NUMA nodes with enough devices.

    A device on several NUMA nodes counts for each of them, one without topology for none. Every reusable device with a
    topology must be on a node of the mask. The preferred width is what *all* devices, also busy and unhealthy ones,
    would allow.

    Source: topology_hints.go, generateDeviceTopologyHints and deviceNUMANodes.
    """
    space = walked_universe(_enumerated_numa_ids(kubelet, devices), Provider.DEVICE)
    budget.spend(len(devices) + (space.size >> 5))
    total = touching_at_least(space.ids, _kinds(d.numa for d in devices.values()), count)
    width = space.width(total) or len(space.ids)
    must_touch = [numa for i in reusable if (numa := _numa_of(devices, i)) is not None]
    available = _kinds(_numa_of(devices, i) for i in free)
    feasible = touching_at_least(space.ids, available, count - len(must_touch))
    for numa in dict.fromkeys(must_touch):
        budget.spend(len(space.ids))
        feasible &= space.touching(numa)
    return Hints.preferring_width(space, feasible, width)


def _numa_of(devices: Mapping[str, Device], device_id: str) -> int | None:
    device = devices.get(device_id)
    if device is None:
        raise KubeletPanicError(NIL_POINTER)
    return device.numa


def _enumerated_numa_ids(kubelet: Kubelet, devices: Mapping[str, Device]) -> tuple[int, ...]:
    machine_ids = kubelet.machine.numa_ids
    if not kubelet.rules.device_numa_narrowing:
        return machine_ids
    present = 0
    for device in devices.values():
        present |= device.numa or 0
    return tuple(i for i in machine_ids if present >> i & 1) or machine_ids


def _kinds(numa_sets: Iterable[int | None]) -> tuple[tuple[int, int], ...]:
    """Number of devices by their set of NUMA nodes. Devices without topology are left out."""
    kinds: dict[int, int] = {}
    for numa in numa_sets:
        if numa:
            kinds[numa] = kinds.get(numa, 0) + 1
    return tuple(sorted(kinds.items()))


def allocate(
    state: DeviceState,
    pod: PodRequest,
    container: ContainerRequest,
    affinity: int | None,
    choices: Choices,
    budget: Budget = UNLIMITED,
) -> DeviceState:
    """The state after the allocation of the container's devices. The same state if it requests none of a device plugin.

    The kubelet allocates resources in random order and stops at the first failure. A refusal has the first one by name,
    and the others as alternatives.

    Source: manager.go, Allocate and allocateContainerResources.

    Raises:
        Refusal: UnexpectedAdmissionError.
    """
    taken: dict[str, frozenset[str]] = dict(state.entries.get(pod.uid, {}).get(container.name, {}))
    changed = False
    refusals: list[Refusal] = []
    for resource, count in container.devices.items():
        if not _is_plugin_resource(state, resource) or resource in container.dra_resources:
            continue
        try:
            ids = _devices_to_allocate(state, pod, container, resource, count, affinity, choices, budget)
        except Refusal as refusal:
            refusals.append(refusal)
            continue
        if ids:
            taken[resource] = taken.get(resource, _NONE) | ids
            changed = True
    if refusals:
        refusals[0].alternatives = tuple(r.message for r in refusals[1:])
        raise refusals[0]
    entries, held = state.entries, state.held
    if changed:
        entries = {**entries, pod.uid: {**entries.get(pod.uid, {}), container.name: taken}}
        held = {**held, **{r: held.get(r, _NONE) | ids for r, ids in taken.items()}}
    reusable = _reusable_after(state, pod, container, taken)
    return DeviceState(devices=state.devices, entries=entries, held=held, reusable=reusable)


def _devices_to_allocate(
    state: DeviceState,
    pod: PodRequest,
    container: ContainerRequest,
    resource: str,
    count: int,
    affinity: int | None,
    choices: Choices,
    budget: Budget,
) -> frozenset[str]:
    """Source: manager.go, devicesToAllocate."""
    devices = state.devices.get(resource, {})
    budget.spend(len(devices) + 1)
    held = state.entries.get(pod.uid, {}).get(container.name, {}).get(resource, _NONE)
    if held and len(held) != count:
        raise _refusal(
            f'pod "{pod.uid}" container "{container.name}" changed request for resource "{resource}" '
            f"from {len(held)} to {count}",
            resource,
            count,
            len(held),
        )
    healthy = _healthy(devices)
    if resource not in state.devices:
        raise _refusal(f"cannot allocate unregistered device {resource}", resource, count, 0)
    if not healthy:
        raise _refusal(f"no healthy devices present; cannot allocate unhealthy devices {resource}", resource, count, 0)
    if not held <= healthy:
        message = f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
        raise _refusal(message, resource, count, len(held & healthy))
    needed = count - len(held)
    if needed <= 0:
        return _NONE
    reusable = reusable_by(state, pod.uid).get(resource, _NONE)
    reused = _pick(devices, reusable, min(needed, len(reusable)), choices, (container.name, resource), budget)
    needed -= len(reused)
    if not needed:
        return reused
    free = healthy - state.held.get(resource, _NONE)
    if len(free) < needed:
        message = f"requested number of devices unavailable for {resource}. Requested: {needed}, Available: {len(free)}"
        raise _refusal(message, resource, count, len(free | reused | held))
    for tier in _tiers(devices, free, affinity):
        picked = _pick(devices, tier, min(needed, len(tier)), choices, (container.name, resource), budget)
        reused |= picked
        needed -= len(picked)
        if not needed:
            break
    return reused


def _refusal(message: str, resource: str, wanted: int, had: int) -> Refusal:
    text = f"Allocate failed due to {message}, which is unexpected"
    return Refusal(
        Reason.UNEXPECTED_ADMISSION, text, provider=Provider.DEVICE, resource=resource, wanted=wanted, had=had
    )


def _tiers(devices: Mapping[str, Device], free: frozenset[str], affinity: int | None) -> tuple[frozenset[str], ...]:
    """Devices inside the affinity, then outside, then without topology. Source: manager.go, filterByAffinity."""
    if affinity is None or not any(d.numa for d in devices.values()):
        return (free,)
    nowhere = frozenset(i for i in free if not devices[i].numa)
    aligned = frozenset(i for i in free - nowhere if (devices[i].numa or 0) & affinity)
    return aligned, free - nowhere - aligned, nowhere


def _pick(
    devices: Mapping[str, Device],
    tier: frozenset[str],
    count: int,
    choices: Choices,
    container_and_resource: tuple[str, str],
    budget: Budget,
) -> frozenset[str]:
    """*count* devices of the tier. The kubelet chooses at random how many of each kind."""
    if count in (0, len(tier)):
        return tier if count else _NONE
    choices.random_picks.add(container_and_resource)
    kinds: dict[tuple[int, bool], list[str]] = {}
    for device_id in sorted(tier):
        device = devices.get(device_id)
        kind = (-1, False) if device is None else (-1 if device.numa is None else device.numa, device.healthy)
        kinds.setdefault(kind, []).append(device_id)
    groups = [kinds[k] for k in sorted(kinds)]
    split = choices.split(count, [len(g) for g in groups], budget)
    return frozenset(i for g, n in zip(groups, split, strict=True) for i in g[:n])


def reusable_by(state: DeviceState, uid: str) -> Mapping[str, frozenset[str]]:
    """Ids by resource that later containers of pod *uid* may take over."""
    return state.reusable[1] if state.reusable[0] == uid else {}


def _reusable_after(
    state: DeviceState, pod: PodRequest, container: ContainerRequest, taken: Mapping[str, frozenset[str]]
) -> tuple[str, Mapping[str, frozenset[str]]]:
    """Ordinary init containers leave their devices to later containers. Other containers remove theirs from these.

    Source: manager.go, Allocate.
    """
    reusable = dict(reusable_by(state, pod.uid))
    for resource, ids in taken.items():
        before = reusable.get(resource, _NONE)
        reusable[resource] = before | ids if container.reusable else before - ids
    return pod.uid, reusable


def release(state: DeviceState, uid: str) -> DeviceState:
    """The state after a pod is gone. Source: manager.go, UpdateAllocatedDevices."""
    if uid not in state.entries:
        return state
    entries = without(state.entries, uid)
    return replace(state, entries=entries, held=held_devices(entries))


def rename_devices(
    state: DeviceState, uid: str, resource: str, container: str, ours: frozenset[str], theirs: frozenset[str]
) -> DeviceState:
    """The state in which a container has *theirs* instead of *ours*: another pick among devices of one kind."""
    held_by = state.entries.get(uid, {})
    resources = held_by.get(container, {})
    if resources.get(resource) != ours or ours == theirs:
        return state
    entries = {**state.entries, uid: {**held_by, container: {**resources, resource: theirs}}}
    return replace(state, entries=entries, held=held_devices(entries))
