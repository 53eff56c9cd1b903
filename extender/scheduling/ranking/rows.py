"""The admission of one node, restated for all rows of the free table that give the pod the same answer.

The nodes have equal keys, so each gives the pod the same amounts of the same NUMA nodes. What is left differs, and is
in the table's columns.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from extender.cluster.free_table import Int64s, RowGroup
from extender.kubelet.machine import Machine
from extender.scheduling.ranking.outcome import CPU, AdmissionOutcome, Headroom

Taken = tuple[str, Headroom, Headroom]


@dataclass(frozen=True, slots=True)
class RowsOutcome:
    """A `RankedAdmission` of many nodes: the amounts that are free are arrays, with one for each row."""

    machine: Machine
    resources: Sequence[Taken]

    def spans(self) -> Iterator[tuple[int, bool]]:
        """Not known of rows: a merit that follows from the placements is that of their key."""
        raise NotImplementedError

    def taken(self) -> Iterator[Taken]:
        """Each resource of which the pod takes something, with the headroom before and after."""
        yield from self.resources


def rows_outcome(one: AdmissionOutcome, group: RowGroup, rows: Int64s) -> RowsOutcome | None:
    """The admission of all *rows*, which have the key of *one*; None where the columns lack what a merit reads."""
    resources = []
    for name, before, after in one.taken():
        columns = group.amounts_of(name, rows)
        if columns is None or not _has_all(one, group, name, columns):
            return None
        ids = one.machine.cpu_numa_ids if name == CPU else one.machine.numa_ids
        places = [ids.index(numa) for numa in columns if numa >= 0]
        gone = [before.aligned[place] - after.aligned[place] for place in places]
        less = before.free - after.free
        if places and sum(gone) != less:  # memory of several NUMA nodes joins them, so more is lost than is taken
            return None
        free = sum(columns.values())
        aligned = tuple(amounts for numa, amounts in columns.items() if numa >= 0)
        left = tuple(amounts - taken for amounts, taken in zip(aligned, gone, strict=True))
        resources.append((name, Headroom(before.capacity, free, aligned), Headroom(after.capacity, free - less, left)))
    return RowsOutcome(one.machine, resources)


def _has_all(one: AdmissionOutcome, group: RowGroup, resource: str, columns: Collection[int]) -> bool:
    """Whether the columns of a resource have all that is free of it, and each NUMA node as strategies count it."""
    if resource == CPU:
        return not one.kubelet.cpu_options.full_pcpus_only
    kinds = [kind for each in group.hardware.devices if each.resource == resource for kind, _ in each.kinds]
    return all(kind > 0 and kind.bit_length() - 1 in columns for kind in kinds) or all(kind <= 0 for kind in kinds)
