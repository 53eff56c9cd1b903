"""The coarse replay of one pod on many nodes: one walk for each distinct key.

The key of a node for a pod holds what decides the admission: the hardware, and for each container the NUMA node that it
gets, or why it gets none. Nodes with equal keys give the pod the same verdict, so one of them is walked. Where a key
does not decide, each node is walked; where counts do not decide, there is no verdict.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from extender.kubelet.budget import Budget
from extender.kubelet.config import TopologyPolicy
from extender.kubelet.never import can_never_fit
from extender.kubelet.pod import INT64_MAX, ContainerRequest, PodRequest
from extender.kubelet.verdict import Reason, When
from extender.replay.coarse.amounts import FreeAmounts
from extender.replay.coarse.layout import ANYWHERE, Layout, NodeHardware
from extender.replay.coarse.verdict import CoarseRefusalError, CoarseRejected, CoarseVerdict, IdsDecideError
from extender.replay.coarse.walk import CoarseWalk

CPU: Final = "cpu"
NOT_SERVED: Final = ()
"""Rows of a resource that no manager of the node serves."""

MAX_KNOWN: Final = 4096
"""For how many keys one `CoarseReplay` keeps the verdicts; then all are dropped."""

Key = tuple[object, ...]


class PodStep(NamedTuple):
    """One merge of an admission: what is wanted of each resource, in the order in which providers are asked.

    `stays`: what is taken stays taken while later containers are admitted.
    """

    wanted: tuple[tuple[str, int], ...]
    memory: Mapping[str, int]
    cpus: int
    stays: bool


class CoarseReplay:
    """Admissions of one pod on any number of nodes with equal rules.

    The pod is new: `ManagerState.knows` is False of every node. Verdicts by key are kept as long as this object.
    Any thread may call it: what it keeps are immutable values that follow from their keys, so it does not matter which
    thread computes one, or whether two do.
    """

    __slots__ = ("_by_pod", "_known", "_never", "by_container", "cpus", "memory_types", "pod")

    def __init__(self, pod: PodRequest) -> None:
        self.pod = pod
        self._never: dict[int, bool] = {}
        self._known: dict[Key, CoarseVerdict | None] = {}
        self._by_pod = _steps_by_pod(pod)
        self.by_container: Final = _steps_by_container(pod)
        """The steps in scope container. They say in scope pod as well what the pod takes."""
        self.cpus = sum(c.cpus for c in pod.containers)
        self.memory_types = frozenset(name for c in pod.containers for name in c.memory_bytes or ())

    def steps(self, *, by_pod: bool) -> tuple[PodStep, ...] | None:
        """The merges of the admission in scope pod or container; None where each node is walked."""
        return self._by_pod if by_pod else self.by_container

    def admit(self, amounts: FreeAmounts, budget: Budget | None = None) -> CoarseVerdict | None:
        """The verdict of `admission.admit` in a state with these amounts; None: ids decide.

        *budget* bounds the work; None: as much as one full replay may take.

        Raises:
            BudgetError: the budget is used up, or its time is over.
        """
        return self.admit_by_key(self.key(amounts), amounts, budget or Budget())

    def admit_by_key(self, key: Key | None, amounts: FreeAmounts, budget: Budget) -> CoarseVerdict | None:
        """`admit` where the key of the amounts is known."""
        if key is None:
            return self._walk(amounts, budget)
        try:
            return self._known[key]
        except KeyError:
            verdict = self._walk(amounts, budget)
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[key] = verdict
        return verdict

    def knows(self, key: Key) -> bool:
        """Whether the verdict of the key is kept."""
        return key in self._known

    def key(self, amounts: FreeAmounts) -> Key | None:
        """The values that decide the admission. None if it also depends on something that no key has.

        A key has the number of the hardware and, for each merge, the NUMA node that is its affinity. If the first merge
        finds no single NUMA node, it has the result of `_refusal` instead.
        """
        hardware = amounts.hardware
        steps = self.steps(by_pod=hardware.by_pod)
        if steps is None or not hardware.is_plain:
            return None
        if len(steps) == 1 and not hardware.whole_cores and (affinity := _affinity(amounts, steps[0])):
            return hardware.number, affinity
        return self._key_of_steps(amounts, steps)

    def _key_of_steps(self, amounts: FreeAmounts, steps: tuple[PodStep, ...]) -> Key | None:
        hardware = amounts.hardware
        key: list[object] = [hardware.number]
        used: dict[tuple[str, int], int] = {}
        for position, step in enumerate(steps):
            fits = self.fits(amounts, step, used)
            if fits is None:
                return None
            affinity = affinity_of(hardware, fits)
            if not affinity:
                return _refusal(amounts, step, fits, position)
            key.append(affinity)
            if hardware.whole_cores and step.cpus and not self.has_whole_cores(amounts, affinity):
                return None
            if step.stays:
                take(used, step, affinity)
        return tuple(key)

    def fits(
        self, amounts: FreeAmounts, step: PodStep, used: Mapping[tuple[str, int], int]
    ) -> list[tuple[str, int]] | None:
        """The single NUMA nodes with room, as a raw mask for each resource that has an opinion; None: not known.

        The mask is -1 where there is room and the NUMA node does not matter. *used*: what earlier containers took, by
        resource and raw mask.
        """
        fits = []
        single = amounts.single
        for resource, wanted in step.wanted:
            rows = single.get(resource, NOT_SERVED)
            if rows is None:
                return None
            able = 0
            if used:
                for bit, free in rows:
                    if free - used.get((resource, bit), 0) >= wanted:
                        able |= bit
            else:
                for bit, free in rows:
                    if free >= wanted:
                        able |= bit
            if rows is not NOT_SERVED:
                fits.append((resource, able))
            elif resource in self.memory_types and amounts.layout.memory_static:
                return None  # the kubelet panics, unless all NUMA nodes that have such memory are in groups
        return fits

    def takes_whole_cores(self, layout: Layout) -> bool:
        """Whether each container requests a multiple of a core's CPUs."""
        return all(c.cpus % layout.cpus_per_core == 0 for c in self.pod.containers)

    def has_whole_cores(self, amounts: FreeAmounts, affinity: int, used: int = 0) -> bool:
        """With full-pcpus-only: whether all CPUs of the pod fit on whole cores of this NUMA node.

        *used*: the CPUs that others use.
        """
        layout = amounts.layout
        position = layout.cpu_numa_ids.index(affinity.bit_length() - 1)
        cpus = amounts.cpus.whole_cores[position] * layout.cpus_per_core - used
        return self.takes_whole_cores(layout) and cpus >= self.cpus

    def _walk(self, amounts: FreeAmounts, budget: Budget) -> CoarseVerdict | None:
        if self.pod.pod_level is not None or not amounts.layout.is_sound:
            return None
        walk = CoarseWalk(amounts, self.pod, budget)
        try:
            return walk.run()
        except CoarseRefusalError as refusal:
            never = refusal.reason is Reason.KUBELET_PANIC or self._can_never_fit(amounts, budget)
            when = When.NEVER if never else When.NOW
            return CoarseRejected(refusal.reason, refusal.provider, walk.container, refusal.resource, when)
        except IdsDecideError:
            return None

    def _can_never_fit(self, amounts: FreeAmounts, budget: Budget) -> bool:
        found = self._never.get(amounts.hardware.number)
        if found is None:
            found = can_never_fit(amounts.kubelet, amounts.inventory, self.pod, budget)
            if len(self._never) >= MAX_KNOWN:
                self._never.clear()
            self._never[amounts.hardware.number] = found
        return found


def affinity_of(hardware: NodeHardware, fits: Iterable[tuple[str, int]]) -> int:
    """The affinity of a merge, by the single NUMA nodes with room for each resource (`CoarseReplay.fits`); 0: none."""
    able = ANYWHERE
    for _, each in fits:
        able &= each
    return hardware.closest(able)


def take(used: dict[tuple[str, int], int], step: PodStep, affinity: int, times: int = 1) -> None:
    """Add to *used*, by resource and raw mask, what a merge takes from its NUMA node, so many times."""
    for resource, wanted in step.wanted:
        for bit in {affinity, ANYWHERE}:
            used[resource, bit] = used.get((resource, bit), 0) + wanted * times


def _affinity(amounts: FreeAmounts, step: PodStep) -> int:
    """The affinity of a first merge in the usual case: all resources are served, and a NUMA node has room; 0 if not."""
    single, able = amounts.single, ANYWHERE
    for resource, wanted in step.wanted:
        rows = single.get(resource)
        if rows is None:
            return 0
        fits = 0
        for bit, free in rows:
            if free >= wanted:
                fits |= bit
        able &= fits
    return amounts.hardware.closest(able)


def _refusal(amounts: FreeAmounts, step: PodStep, fits: list[tuple[str, int]], position: int) -> Key | None:
    """The key where no single NUMA node has room for everything that a merge has to place.

    *fits*: the single NUMA nodes with room, by resource. *position*: the position of the merge; earlier merges have
    taken room. The refusal names a resource without such a NUMA node. Memory that no set of NUMA nodes can serve has no
    hint: the other resources choose the NUMA node, and the allocation fails there.
    """
    hardware, layout = amounts.hardware, amounts.layout
    single = layout.policy is TopologyPolicy.SINGLE_NUMA_NODE
    if (not single and layout.policy is not TopologyPolicy.RESTRICTED) or amounts.bytes.grouped:
        return None
    others = memory = -1
    for resource, able in fits:
        if not able and resource in amounts.devices and not amounts.devices[resource].has_topology:
            return None
        if resource in step.memory:
            memory &= able
        else:
            others &= able
    if not single and any(hardware.largest.get(resource, wanted) < wanted for resource, wanted in step.wanted):
        return None
    lacking = tuple([resource for resource, able in fits if not able])
    if memory:
        return hardware.number, "refused", position, lacking
    if position:
        return None  # whether wider masks have memory hangs on what the earlier containers hold
    free, allocatable = amounts.bytes.free, amounts.bytes.allocatable
    positions = range(len(layout.numa_ids))
    if not single and not any(all(allocatable[n][i] >= w for n, w in step.memory.items()) for i in positions):
        return None
    idle = [i for i, numa in enumerate(layout.numa_ids) if not amounts.bytes.in_use >> numa & 1]
    if len(idle) > 1 and all(sum([free[n][i] for i in idle]) >= wanted for n, wanted in step.memory.items()):
        return hardware.number, "refused", "memory", *lacking
    if others == -1 or hardware.whole_cores:
        return None
    if not others:
        return hardware.number, "refused", tuple([resource for resource in lacking if resource not in step.memory])
    affinity = hardware.closest(others)
    short = tuple([name for name, able in fits if name in step.memory and not able & affinity])
    return hardware.number, "no memory", affinity, short


def _is_plain(container: ContainerRequest) -> bool:
    """Whether a key can stand for the container's requests."""
    memory = container.memory_bytes
    return (
        not (container.reusable and (container.cpus or container.devices))
        and not container.dra_resources
        and (memory is None or (len(memory) > 0 and max(memory.values()) <= INT64_MAX))
        and all(container.devices.values())
    )


def _step(cpus: int, memory: Mapping[str, int], devices: Mapping[str, int], *, stays: bool) -> PodStep:
    wanted = [*devices.items(), *([(CPU, cpus)] if cpus else []), *memory.items()]
    return PodStep(tuple(wanted), memory, cpus, stays)


def _steps_by_container(pod: PodRequest) -> tuple[PodStep, ...] | None:
    """The merges in scope container; None where walks are needed."""
    if pod.pod_level is not None or not all(map(_is_plain, pod.containers)):
        return None
    return tuple(_step(c.cpus, c.memory_bytes or {}, c.devices, stays=not c.reusable) for c in pod.containers)


def _steps_by_pod(pod: PodRequest) -> tuple[PodStep, ...] | None:
    """The merge in scope pod; None where walks are needed.

    A NUMA node with room for the totals has room for each container in turn, if all types of memory are in the totals.
    """
    types = {name for c in pod.containers for name in c.memory_bytes or ()}
    if _steps_by_container(pod) is None or types != pod.total_memory_bytes.keys():
        return None
    return (_step(pod.total_cpus, pod.total_memory_bytes, pod.total_devices, stays=True),)
