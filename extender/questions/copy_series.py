"""Copies of pods that are admitted one after another, as long as each container gets a single NUMA node.

Such a copy takes known amounts from known NUMA nodes, so the copies are counted and not replayed. The count ends before
the first copy that needs more than the free amounts of single NUMA nodes. `CopySeries.state` is then a state in which
as much is free as after the copies.

Rules of this file
- Which CPUs and devices are free in `CopySeries.state` may differ from those that a kubelet would leave. It serves only
  where free amounts decide: see `cluster.free_table`.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.sets import lowest_bits
from extender.kubelet.state import DeviceState, ManagerState, NUMANodeMemory
from extender.replay.free_amounts import FreeAmounts
from extender.replay.layout import ANYWHERE
from extender.replay.pod_steps import CPU, PodStep, PodSteps

HOLDER: Final = "\0copies"
"""The UID that holds the devices of the copies in `CopySeries.state`."""


class Run(NamedTuple):
    """Copies of one pod on the same NUMA nodes, one after another. `affinities`: of each merge."""

    turn: int
    copies: int
    affinities: tuple[int, ...]

    @property
    def is_placed(self) -> bool:
        """Whether a manager places them."""
        return any(affinity != ANYWHERE for affinity in self.affinities)


class CopySeries:
    """Copies of *requests*, in turn, on a node in the state *before*, which has these amounts.

    `copies`: how many were counted.
    """

    def __init__(
        self,
        kubelet: Kubelet,
        requests: Sequence[PodRequest],
        steps: Sequence[PodSteps],
        amounts: FreeAmounts,
        before: ManagerState,
    ) -> None:
        self._kubelet: Final = kubelet
        self._requests: Final = requests
        self._pods: Final = steps
        self._amounts: Final = amounts
        self._before: Final = before
        self.hardware: Final = amounts.hardware
        by_pod, is_plain = self.hardware.by_pod, self.hardware.is_plain
        self._steps: Final = [each.of(by_pod=by_pod) if is_plain else None for each in steps]
        self._used: dict[tuple[str, int], int] = {}
        """What the copies took, by resource and raw mask of the NUMA node, and by resource and `ANYWHERE`."""
        self._free_cpus: Final = list(amounts.cpus.free)
        self._whole_cores: Final = list(amounts.cpus.whole_cores)
        self.copies = 0

    def runs(self, most: int) -> Iterator[Run]:
        """Count copies until there are *most*. A run counts when the next one is taken from the iterator."""
        while self.copies < most:
            turn = self.copies % len(self._steps)
            pod, steps = self._pods[turn], self._steps[turn]
            affinities = None if steps is None else self._affinities(pod, steps)
            if steps is None or affinities is None:
                return
            has_init = any(c.reusable for c in self._requests[turn].containers)
            is_alone = len(self._steps) == len(steps) == 1 and not has_init
            times = self._times(steps[0], affinities[0], most - self.copies) if is_alone else 1
            yield Run(turn, times, tuple(affinities))
            self._take(pod, affinities, times)
            self.copies += times

    def _affinities(self, pod: PodSteps, steps: tuple[PodStep, ...]) -> list[int] | None:
        """The affinity of each merge of one more copy. None: it does not follow from what single NUMA nodes have."""
        hardware, used, found = self.hardware, self._used, []
        if len(steps) > 1:
            used = dict(used)
        for step in steps:
            able = self._able(pod, step, used)
            affinity = 0 if able is None else hardware.closest(able)
            if not affinity:
                return None
            if hardware.whole_cores and step.cpus and not self._has_whole_cores(pod, affinity):
                return None
            found.append(affinity)
            if step.stays and len(steps) > 1:
                _add(used, step, affinity)
        return found

    def _able(self, pod: PodSteps, step: PodStep, used: Mapping[tuple[str, int], int]) -> int | None:
        """The single NUMA nodes with room for all that is wanted, as a raw mask; None: not known.

        *used*: what earlier containers and copies took, by resource and raw mask.
        """
        able = ANYWHERE
        for resource, wanted in step.wanted:
            if resource not in self._amounts.single:  # no manager serves it
                if resource in pod.memory_types and self._amounts.layout.memory_static:
                    return None
                continue
            rows = self._amounts.single[resource]
            if rows is None:
                return None
            fits = 0
            for bit, free in rows:
                if free - used.get((resource, bit), 0) >= wanted:
                    fits |= bit
            able &= fits
        return able

    def _has_whole_cores(self, pod: PodSteps, affinity: int) -> bool:
        """With full-pcpus-only: whether all CPUs of the pod fit on whole cores of this NUMA node."""
        if affinity == ANYWHERE:
            return False
        return pod.takes_whole_cores(self._amounts.layout) and self._cpus_of_whole_cores(affinity) >= pod.cpus

    def _cpus_of_whole_cores(self, affinity: int) -> int:
        amounts, layout = self._amounts, self._amounts.layout
        position = layout.cpu_numa_ids.index(affinity.bit_length() - 1)
        return amounts.cpus.whole_cores[position] * layout.cpus_per_core - self._used.get((CPU, affinity), 0)

    def _times(self, step: PodStep, affinity: int, most: int) -> int:
        """How many copies get this affinity, one after another: other NUMA nodes can only become less able."""
        amounts, used = self._amounts, self._used
        times = most
        for resource, wanted in step.wanted:
            for bit, free in amounts.single.get(resource) or ():
                if wanted and bit in (affinity, ANYWHERE):
                    times = min(times, (free - used.get((resource, bit), 0)) // wanted)
        if amounts.hardware.whole_cores and step.cpus:
            times = min(times, self._cpus_of_whole_cores(affinity) // step.cpus)
        return times

    def _take(self, pod: PodSteps, affinities: list[int], times: int) -> None:
        """Subtract what *times* copies keep when their containers run. Ordinary init containers keep nothing."""
        layout, steps = self._amounts.layout, pod.by_container or ()
        by_container = affinities if len(affinities) == len(steps) else affinities * len(steps)
        for step, affinity in zip(steps, by_container, strict=True):
            if step.stays:
                _add(self._used, step, affinity, times)
                if layout.cpu_static and step.cpus:
                    self._take_cores(layout.cpu_numa_ids.index(affinity.bit_length() - 1), step.cpus, times)

    def _take_cores(self, position: int, count: int, times: int) -> None:
        """Take CPUs from one NUMA node as its manager does: whole cores first, then single CPUs outside whole cores."""
        per_core, free, whole = self._amounts.layout.cpus_per_core, self._free_cpus, self._whole_cores
        if count % per_core == 0:
            count, times = count * times, 1
        for _ in range(times):
            cores = min(whole[position], count // per_core)
            whole[position] -= cores
            singles = count - cores * per_core
            outside = free[position] - (cores + whole[position]) * per_core
            whole[position] -= max(0, -(-(singles - outside) // per_core))
            free[position] -= count

    def state(self) -> ManagerState:
        """A state in which what the copies took is not free."""
        kubelet, before = self._kubelet, self._before
        if not self.copies:
            return before
        taken = self._cpus(before.cpu.default & ~kubelet.reserved_cpus) if kubelet.cpu_static else 0
        return ManagerState(
            cpu=replace(before.cpu, default=before.cpu.default & ~taken),
            memory=replace(before.memory, nodes=tuple(map(self._memory, before.memory.nodes))),
            devices=self._devices(before.devices),
        )

    def _cpus(self, free: int) -> int:
        """Free CPUs to take, so that as many CPUs and whole cores stay free as were counted."""
        amounts, machine, taken = self._amounts, self._kubelet.machine, 0
        for position, cpus in enumerate(machine.numa_cpus.values()):
            count = amounts.cpus.free[position] - self._free_cpus[position]
            if not count:
                continue
            outside, broken = cpus & free, amounts.cpus.whole_cores[position] - self._whole_cores[position]
            for core in machine.core_cpus.values():
                if core & outside == core and core.bit_count() == amounts.layout.cpus_per_core:
                    outside &= ~core
                    if broken:
                        broken -= 1
                        ours = lowest_bits(core, count)
                        count -= ours.bit_count()
                        taken |= ours
            taken |= lowest_bits(outside, count)
        return taken

    def _memory(self, node: NUMANodeMemory) -> NUMANodeMemory:
        used = {name: size for (name, bit), size in self._used.items() if bit == 1 << node.id}
        rows = [
            (
                name,
                each._replace(reserved=each.reserved + used[name], free=each.free - used[name])
                if name in used
                else each,
            )
            for name, each in node.amounts
        ]
        in_use = any(name in used for name, _ in rows)
        return node._replace(assignments=node.assignments + in_use, amounts=tuple(rows))

    def _devices(self, state: DeviceState) -> DeviceState:
        ids: dict[str, frozenset[str]] = {}
        for resource, devices in state.devices.items():
            wanted = {bit: n for (name, bit), n in self._used.items() if name == resource}
            if not wanted:
                continue
            rows = self._amounts.single[resource] or ()
            held = state.held.get(resource, frozenset())
            ours: set[str] = set()
            for bit, _ in rows:
                free = (
                    i for i, (numa, healthy) in devices.items() if healthy and bit in (numa, ANYWHERE) and i not in held
                )
                ours.update(itertools.islice(free, wanted.get(bit, 0)))
            ids[resource] = frozenset(ours)
        if not ids:
            return state
        entries = {**state.entries, HOLDER: {"copies": ids}}
        held_now = {**state.held, **{name: state.held.get(name, frozenset()) | each for name, each in ids.items()}}
        return replace(state, entries=entries, held=held_now)


def _add(used: dict[tuple[str, int], int], step: PodStep, affinity: int, times: int = 1) -> None:
    """Add to *used*, by resource and raw mask, what a merge takes from its NUMA node, so many times."""
    for resource, wanted in step.wanted:
        for bit in {affinity, ANYWHERE}:
            used[resource, bit] = used.get((resource, bit), 0) + wanted * times
