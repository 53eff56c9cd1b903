"""Copies of pods that are admitted one after another, as long as each container gets a single NUMA node.

Such a copy takes known amounts from known NUMA nodes, so the copies are counted and not replayed. The count ends before
the first copy whose verdict needs more than the free amounts of single NUMA nodes. `CopySeries.state` is then a state
in which as much is free as after the copies.

Rules of this file
- States with equal amounts have equal verdicts where the coarse replay has one. Which CPUs and devices are free in
  `CopySeries.state` may differ from those that a kubelet would leave.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from extender.kubelet.budget import Budget
from extender.kubelet.sets import lowest_bits
from extender.kubelet.state import DeviceState, ManagerState, NUMANodeMemory
from extender.replay.coarse.admission import CPU, CoarseReplay, PodStep, affinity_of, take
from extender.replay.coarse.amounts import FreeAmounts
from extender.replay.coarse.layout import ANYWHERE
from extender.replay.coarse.verdict import CoarseAdmitted, CoarseVerdict

HOLDER: Final = "\0copies"
"""The UID that holds the devices of the copies in `CopySeries.state`."""


class Run(NamedTuple):
    """Copies of one pod with one verdict, one after another. `is_placed`: whether a manager places them."""

    turn: int
    copies: int
    verdict: CoarseAdmitted
    is_placed: bool


class CopySeries:
    """Copies of the pods of *replays*, in turn, on a node in the state *before*, which has these amounts.

    `copies`: how many were counted.
    """

    def __init__(self, replays: Sequence[CoarseReplay], amounts: FreeAmounts, before: ManagerState) -> None:
        self._replays: Final = replays
        self._amounts: Final = amounts
        self._before: Final = before
        self._steps: Final = [_steps(replay, amounts) for replay in replays]
        self._used: dict[tuple[str, int], int] = {}
        """What the copies took, by resource and raw mask of the NUMA node, and by resource and `ANYWHERE`."""
        self._free_cpus: Final = list(amounts.cpus.free)
        self._whole_cores: Final = list(amounts.cpus.whole_cores)
        self.copies = 0

    def runs(self, most: int) -> Iterator[Run]:
        """Count copies until there are *most*. A run counts when the next one is taken from the iterator."""
        while self.copies < most:
            turn = self.copies % len(self._steps)
            replay, steps = self._replays[turn], self._steps[turn]
            affinities = None if steps is None else self._affinities(replay, steps)
            if steps is None or affinities is None:
                return
            verdict = self._verdict(replay, affinities)
            if not isinstance(verdict, CoarseAdmitted):
                return
            is_alone = len(self._steps) == len(steps) == 1 and not any(c.reusable for c in replay.pod.containers)
            times = self._times(steps[0], affinities[0], most - self.copies) if is_alone else 1
            yield Run(turn, times, verdict, any(affinity != ANYWHERE for affinity in affinities))
            self._take(replay, affinities, times)
            self.copies += times

    def _verdict(self, replay: CoarseReplay, affinities: list[int]) -> CoarseVerdict | None:
        """The verdict of all nodes with this key. The first such node is walked as it is after the copies so far."""
        key = (self._amounts.hardware.number, *affinities)
        if replay.knows(key):
            return replay.admit_by_key(key, self._amounts, Budget())
        kubelet, layout = self._amounts.kubelet, self._amounts.layout
        return replay.admit_by_key(key, FreeAmounts.of(kubelet, layout, self.state()), Budget())

    def _affinities(self, replay: CoarseReplay, steps: tuple[PodStep, ...]) -> list[int] | None:
        """The affinity of each merge of one more copy. None: it does not follow from what single NUMA nodes have."""
        amounts, used, found = self._amounts, self._used, []
        if len(steps) > 1:
            used = dict(used)
        for step in steps:
            fits = replay.fits(amounts, step, used)
            if fits is None:
                return None
            affinity = affinity_of(amounts.hardware, fits)
            if not affinity:
                return None
            if amounts.hardware.whole_cores and step.cpus:
                before = self._used.get((CPU, affinity), 0)
                if affinity == ANYWHERE or not replay.has_whole_cores(amounts, affinity, before):
                    return None
            found.append(affinity)
            if step.stays and len(steps) > 1:
                take(used, step, affinity)
        return found

    def _times(self, step: PodStep, affinity: int, most: int) -> int:
        """How many copies get this affinity, one after another: other NUMA nodes can only become less able."""
        amounts, used = self._amounts, self._used
        times = most
        for resource, wanted in step.wanted:
            for bit, free in amounts.single.get(resource) or ():
                if wanted and bit in (affinity, ANYWHERE):
                    times = min(times, (free - used.get((resource, bit), 0)) // wanted)
        if amounts.hardware.whole_cores and step.cpus:
            layout = amounts.layout
            position = layout.cpu_numa_ids.index(affinity.bit_length() - 1)
            cpus = amounts.cpus.whole_cores[position] * layout.cpus_per_core - used.get((CPU, affinity), 0)
            times = min(times, cpus // step.cpus)
        return times

    def _take(self, replay: CoarseReplay, affinities: list[int], times: int) -> None:
        """Subtract what *times* copies keep when their containers run. Ordinary init containers keep nothing."""
        layout, steps = self._amounts.layout, replay.by_container or ()
        by_container = affinities if len(affinities) == len(steps) else affinities * len(steps)
        for step, affinity in zip(steps, by_container, strict=True):
            if step.stays:
                take(self._used, step, affinity, times)
                if layout.cpu_static and step.cpus:
                    self._take_cores(layout.cpu_numa_ids.index(affinity.bit_length() - 1), step.cpus, times)

    def _take_cores(self, position: int, count: int, times: int) -> None:
        """Take CPUs from one NUMA node as `walk` does: whole cores first, then single CPUs outside whole cores."""
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
        kubelet, before = self._amounts.kubelet, self._before
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
        amounts, machine, taken = self._amounts, self._amounts.kubelet.machine, 0
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


def _steps(replay: CoarseReplay, amounts: FreeAmounts) -> tuple[PodStep, ...] | None:
    """The merges of the pod on this node; None where its copies are walked."""
    return replay.steps(by_pod=amounts.hardware.by_pod) if amounts.hardware.is_plain else None
