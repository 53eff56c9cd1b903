"""What each class leaves free, as columns of numbers: thousands of classes are compared with a request at once.

Rules of this file
- A row is one state of one kubelet. A column is what one NUMA node alone can serve of one resource. Rows of a group
  have the same kubelet, the same traits, the same devices and the same columns. Traits are what else a judgement reads
  of a class, such as whether its nodes are stale.
- A class has a row for each of its possible states. Classes whose amounts cannot be counted, and those with the NRI
  topology-aware policy, have no rows: they are judged one by one.
- `alike` gives each row a key: the NUMA node that each merge of a pod gets, or why it gets none. Rows with equal keys
  give the pod the same verdict, which one full replay finds. A row has no key where more than this decides.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from extender.kubelet.config import Scope, TopologyPolicy
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.sets import iter_bits
from extender.replay.alignment_demand import CPU
from extender.replay.free_amounts import ANYWHERE, FreeAmounts, layout_of
from extender.replay.pod_steps import PodStep, PodSteps

Int64s = NDArray[np.int64]
NO_PLACE: Final = -1
"""The place of a class without rows."""
NO_KEY: Final = -1
"""The number of a row whose class is judged by itself."""
_MAX_AMOUNT: Final = 1 << 56
"""The largest amount in a row. The sum of 64 such amounts fits into 64 bits."""
_MAX_BITS: Final = 50
"""Limit on the bits of packed masks. The remaining bits are for the number of a merge."""
_GROUP_SHIFT: Final = 32
_ROW: Final = (1 << _GROUP_SHIFT) - 1
_FIRST_ROWS: Final = 16
WHOLE_CORES: Final = "\0whole cores"
"""The columns of CPUs on whole free cores, under full-pcpus-only."""


class _Columns(NamedTuple):
    """The columns of one resource.

    `bits`: for each column, the position of its NUMA node in the group; -1 for a column that does not matter.
    """

    places: slice
    bits: Int64s


_NOT_SERVED: Final = _Columns(slice(0), np.zeros(0, np.int64))


class _Rows:
    """Rows of numbers. A row that is free again is used before a new one."""

    def __init__(self, width: int) -> None:
        self.values = np.zeros((_FIRST_ROWS, width), np.int64)
        self._free: Final[list[int]] = []
        self._used = 0

    def __len__(self) -> int:
        return self._used - len(self._free)

    def add(self, values: Sequence[int]) -> int:
        """Store the numbers; returns their row."""
        if self._free:
            row = self._free.pop()
        else:
            row, self._used = self._used, self._used + 1
            if row == len(self.values):
                self.values = np.concatenate([self.values, np.zeros_like(self.values)])
        self.values[row] = values
        return row

    def remove(self, row: int) -> None:
        """The row is free again."""
        self._free.append(row)


class RowGroup:
    """The rows of one kubelet with the same traits, one set of devices and one set of columns."""

    def __init__(self, kubelet: Kubelet, amounts: FreeAmounts) -> None:
        self.kubelet: Final = kubelet
        self.devices: Final = amounts.devices
        self._layout: Final = layout_of(kubelet)
        self._has_whole_cores: Final = kubelet.cpu_options.full_pcpus_only
        self._is_plain: Final = self._layout.is_sound and kubelet.policy is not TopologyPolicy.NONE
        self._largest: Final = {each.resource: each.largest for each in amounts.devices}
        """The largest request of CPUs and devices that one NUMA node can serve when it is empty, by resource."""
        if kubelet.cpu_static:
            sizes = [cpus.bit_count() for cpus in kubelet.machine.numa_cpus.values()]
            self._largest[CPU] = max(sizes) if len(sizes) > 1 else sum(sizes) + (1 << 62)
        self._masks: Final = sorted({bit for rows in amounts.single.values() for bit, _ in rows or () if bit > 0})
        """The raw mask of each NUMA node that has a bit."""
        self._allocatable: Final = amounts.bytes.allocatable
        self._without_topology: Final = {
            each.resource for each in amounts.devices if all(kind <= 0 for kind, _ in each.kinds)
        }
        self._columns: Final[dict[str, _Columns | None]] = {}
        width = 0
        for resource, rows in amounts.single.items():
            if rows is None:
                self._columns[resource] = None
                continue
            bits = [ANYWHERE if bit == ANYWHERE else 1 << self._masks.index(bit) for bit, _ in rows]
            self._columns[resource] = _Columns(slice(width, width + len(bits)), np.array(bits, np.int64))
            width += len(bits)
        if self._has_whole_cores and (cpus := self._columns.get(CPU)) is not None:
            self._columns[WHOLE_CORES] = _Columns(slice(width, width + len(cpus.bits)), cpus.bits)
            width += len(cpus.bits)
        self._rows: Final = _Rows(width + 1)
        """The free amounts of each row, then the NUMA nodes with assignments of memory, as a mask."""

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, amounts: FreeAmounts) -> int:
        """Store the amounts of one class; returns its row."""
        values = [amount for rows in amounts.single.values() for _, amount in rows or ()]
        if WHOLE_CORES in self._columns:
            values += [cores * self.kubelet.machine.cpus_per_core for cores in amounts.cpus.whole_cores]
        in_use = sum(1 << i for i, mask in enumerate(self._masks) if amounts.bytes.in_use & mask)
        return self._rows.add([*values, in_use])

    def remove(self, row: int) -> None:
        """The row's class has gone."""
        self._rows.remove(row)

    def amounts_of(self, resource: str, rows: Int64s) -> dict[int, NDArray[np.object_]] | None:
        """What is free of the resource in each row, as ints of any size, by NUMA id; -1 where that does not matter.

        None: the rows have no column for the resource.
        """
        columns = self._columns.get(resource)
        if columns is None:
            return None
        masks = [bit if bit == ANYWHERE else self._masks[bit.bit_length() - 1] for bit in columns.bits.tolist()]
        ids = [ANYWHERE if mask == ANYWHERE else mask.bit_length() - 1 for mask in masks]
        return dict(zip(ids, self._rows.values[rows, columns.places].T.astype(object), strict=True))

    def merges(self, pod: PodSteps) -> int:
        """How many times `alike` goes through the rows."""
        return len(self._steps(pod) or ())

    def _steps(self, pod: PodSteps) -> tuple[PodStep, ...] | None:
        return pod.of(by_pod=self.kubelet.scope is Scope.POD)

    def alike(self, rows: Int64s, pod: PodSteps) -> Int64s | None:
        """A key for each row, or `NO_KEY`; None: no row has a key. Only keys of one call can be compared."""
        kubelet, steps = self.kubelet, self._steps(pod)
        if steps is None or not self._is_plain:
            return None
        count, width = len(rows), len(self._masks)
        stored = self._rows.values[rows]
        free, in_use = stored[:, :-1], stored[:, -1]
        admitted, has_key = _Numbers(count, width), np.ones(count, np.bool_)
        found = np.full(count, NO_KEY, np.int64)
        for position, step in enumerate(steps):
            able, refused = np.full(count, ANYWHERE, np.int64), _Numbers(count, width)
            fits_of: dict[str, Int64s] = {}
            for resource, wanted in step.wanted:
                columns = self._columns.get(resource, _NOT_SERVED)
                if columns is None:
                    return None
                if columns is not _NOT_SERVED:
                    fits = fits_of[resource] = _fits(free, columns, wanted)
                    able &= fits
                    refused.add(fits)
                elif resource in pod.memory_types and kubelet.memory_static:
                    return None
            has_wide_room = self._has_wide_room(free, in_use, step.memory)
            refused.add(has_wide_room.astype(np.int64))
            fails = has_key & (able == 0)
            fails &= self._is_refusal_decided(step, position, fits_of, has_wide_room)
            found[fails] = (refused.packed[fails] * len(steps) + position) << 1 | 1
            affinity = self._affinity(able)
            admitted.add(affinity)
            has_key &= able != 0
            if self._has_whole_cores and step.cpus:
                cores = self._columns.get(WHOLE_CORES)
                if cores is None or not pod.takes_whole_cores(kubelet.machine.cpus_per_core):
                    return None
                has_key &= affinity & _fits(free, cores, pod.cpus) != 0
            if step.stays and position + 1 < len(steps):
                self._take(free, step.wanted, affinity)
        found[has_key] = admitted.packed[has_key] << 1
        return found

    def _is_refusal_decided(
        self, step: PodStep, position: int, fits_of: Mapping[str, Int64s], has_wide_room: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """For each row in which no single NUMA node has room for all resources of a merge: whether that is a refusal.

        *fits_of*: the NUMA nodes with room, by resource. *position*: the number of the merge. Earlier merges have taken
        room. The refusal names a resource without such a NUMA node. Memory that no set of NUMA nodes can serve has no
        hint: the other resources choose the NUMA node, and the allocation fails there.
        """
        policy = self.kubelet.policy
        decided = np.ones(len(has_wide_room), np.bool_)
        is_restricted = policy is TopologyPolicy.RESTRICTED
        may_widen = is_restricted and any(self._largest.get(name, size) < size for name, size in step.wanted)
        if may_widen or not (is_restricted or policy is TopologyPolicy.SINGLE_NUMA_NODE):
            return ~decided
        others, memory = np.full(len(decided), ANYWHERE, np.int64), np.full(len(decided), ANYWHERE, np.int64)
        for resource, fits in fits_of.items():
            if resource in self._without_topology:
                decided &= fits != 0
            if resource in step.memory:
                memory &= fits
            else:
                others &= fits
        if position or (is_restricted and not self._has_numa_node_for(step.memory)):
            decided &= memory != 0
            return decided
        decided &= (memory != 0) | has_wide_room | ((others != ANYWHERE) & (not self._has_whole_cores))
        return decided

    def _has_numa_node_for(self, memory: Mapping[str, int]) -> bool:
        """Whether a NUMA node has that much memory when it is empty."""
        managed = {name: wanted for name, wanted in memory.items() if name in self._allocatable}
        sizes = zip(*(self._allocatable[name] for name in managed), strict=True)
        return any(all(map(int.__ge__, row, managed.values())) for row in sizes)

    def _has_wide_room(self, free: Int64s, in_use: Int64s, memory: Mapping[str, int]) -> NDArray[np.bool_]:
        """Whether several NUMA nodes without assignments have room for the memory together."""
        has_room = np.ones(len(free), np.bool_)
        idle_nodes = None
        for name, wanted in memory.items():
            columns = self._columns.get(name)
            if columns is None:
                continue
            idle = (in_use[:, None] & columns.bits) == 0
            idle_nodes = idle.sum(axis=1)
            has_room &= np.where(idle, free[:, columns.places], 0).sum(axis=1) >= wanted
        return has_room if idle_nodes is None else has_room & (idle_nodes > 1)

    def _affinity(self, able: Int64s) -> Int64s:
        """The NUMA node, of those in *able*, that the merge chooses in each row."""
        values, places = np.unique(able, return_inverse=True)
        return np.array([self._closest(value) for value in values.tolist()], np.int64)[places]

    def _closest(self, able: int) -> int:
        """The first of them; with distances between NUMA nodes, the one closest to itself."""
        if able == ANYWHERE or able & (able - 1) == 0:  # also none
            return able
        if not self._layout.self_distances:
            return able & -able
        distance_of = dict(zip(self.kubelet.machine.numa_ids, self._layout.self_distances, strict=True))
        return 1 << min(iter_bits(able), key=lambda i: (distance_of[self._masks[i].bit_length() - 1], i))

    def _take(self, free: Int64s, wanted: Sequence[tuple[str, int]], affinity: Int64s) -> None:
        for resource, amount in wanted:
            columns = self._columns.get(resource)
            if columns is not None:
                is_taken = (columns.bits == affinity[:, None]) | (columns.bits == ANYWHERE)
                free[:, columns.places] -= np.where(is_taken, amount, 0)


class StatesGroup:
    """Classes of a group that can be in several states: the rows of each."""

    def __init__(self, group: RowGroup, states: int) -> None:
        self.kubelet: Final = group.kubelet
        self._group: Final = group
        self._rows: Final = _Rows(states)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Sequence[int]) -> int:
        """Store the rows of one class, the likeliest state first."""
        return self._rows.add(rows)

    def remove(self, number: int) -> list[int]:
        """The class has gone. Returns its rows."""
        self._rows.remove(number)
        rows: list[int] = self._rows.values[number].tolist()
        return rows

    def merges(self, pod: PodSteps) -> int:
        """How many times `alike` goes through rows."""
        return self._group.merges(pod)

    def alike(self, numbers: Int64s, pod: PodSteps) -> Int64s | None:
        """As `RowGroup.alike`. Equal if the keys of the likeliest states are equal, and the sets of all keys."""
        rows = self._rows.values[numbers]
        found = self._group.alike(rows.ravel(), pod)
        if found is None:
            return None
        keys = found.reshape(rows.shape)
        different = np.sort(keys, axis=1)
        different[:, 1:][different[:, 1:] == different[:, :-1]] = NO_KEY
        both = np.column_stack((keys[:, 0], np.sort(different, axis=1)))
        _, found = np.unique(both, axis=0, return_inverse=True)
        return np.where((keys != NO_KEY).all(axis=1), found.ravel(), NO_KEY)


class _Numbers:
    """Packs masks of each row into one number. *bits*: how many bits a mask has; a mask may also be -1."""

    def __init__(self, count: int, bits: int) -> None:
        self.packed = np.zeros(count, np.int64)
        self._used = 0
        self._width: Final = max(1, bits)

    def add(self, masks: Int64s) -> None:
        if self._used + self._width > _MAX_BITS:
            _, self.packed = np.unique(self.packed, return_inverse=True)
            self._used = int(self.packed.max(initial=0)).bit_length()
        self.packed = self.packed << self._width | masks & ((1 << self._width) - 1)
        self._used += self._width


def _fits(free: Int64s, columns: _Columns, wanted: int) -> Int64s:
    """The NUMA nodes with room, as a mask of each row."""
    fits: Int64s = np.bitwise_or.reduce(np.where(free[:, columns.places] >= wanted, columns.bits, 0), axis=1)
    return fits


class FreeTable:
    """The rows of all classes of one cluster. The place of a class is one int: its group, and its number in it."""

    def __init__(self) -> None:
        self._groups: Final[dict[int, RowGroup | StatesGroup]] = {}
        self._numbers: Final[dict[object, int]] = {}
        self._keys: Final[dict[int, object]] = {}
        self._last = NO_PLACE

    def add(self, kubelet: Kubelet, amounts: Sequence[FreeAmounts], traits: Hashable) -> int:
        """Store one class, by the amounts of its states; returns its place, `NO_PLACE` if it cannot be compared.

        *traits*: everything else that a judgement of the class reads, apart from its kubelet and its states.
        """
        keys = [_columns_of(kubelet, each) for each in amounts]
        if keys[0] is None or any(key != keys[0] for key in keys):
            return NO_PLACE
        number = self._number((traits, keys[0]), lambda: RowGroup(kubelet, amounts[0]))
        group = self._groups[number]
        assert isinstance(group, RowGroup)
        rows = [group.add(each) for each in amounts]
        if len(rows) == 1:
            return number << _GROUP_SHIFT | rows[0]
        several = self._number((number, len(rows)), lambda: StatesGroup(group, len(rows)))
        states = self._groups[several]
        assert isinstance(states, StatesGroup)
        return several << _GROUP_SHIFT | states.add(rows)

    def _number(self, key: object, make: Callable[[], RowGroup | StatesGroup]) -> int:
        number = self._numbers.get(key)
        if number is None:
            self._last = number = self._numbers[key] = self._last + 1
            self._groups[number], self._keys[number] = make(), key
        return number

    def remove(self, place: int) -> None:
        """The class at this place has gone."""
        if place == NO_PLACE:
            return
        number, row = place >> _GROUP_SHIFT, place & _ROW
        group = self._groups[number]
        if isinstance(group, RowGroup):
            group.remove(row)
        else:
            key = self._keys[number]
            assert isinstance(key, tuple)
            for each in group.remove(row):
                self.remove(key[0] << _GROUP_SHIFT | each)
        if not group:
            del self._groups[number], self._numbers[self._keys.pop(number)]

    def by_group(self, places: Int64s) -> Iterator[tuple[RowGroup | StatesGroup, Int64s, Int64s]]:
        """Each group, which of *places* are in it, and their rows there."""
        groups = places >> _GROUP_SHIFT
        for number in np.unique(groups[places != NO_PLACE]).tolist():
            which = np.flatnonzero(groups == number)
            yield self._groups[number], which, places[which] & _ROW


def _columns_of(kubelet: Kubelet, amounts: FreeAmounts) -> tuple[object, ...] | None:
    """What rows of one group have in common; None for a state that has no row."""
    if amounts.bytes.grouped:
        return None
    columns: list[tuple[str, Sequence[int] | None]] = []
    largest = bits = 0
    for resource, rows in amounts.single.items():
        columns.append((resource, None if rows is None else tuple([bit for bit, _ in rows])))
        for bit, amount in rows or ():
            largest, bits = max(largest, amount), bits | max(0, bit)
    if largest >= _MAX_AMOUNT or bits.bit_count() > _MAX_BITS // 2:
        return None
    return id(kubelet), amounts.devices, tuple(columns), tuple(amounts.bytes.allocatable.items())
