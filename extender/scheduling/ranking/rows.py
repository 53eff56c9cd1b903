"""One admission, restated for all rows of the free table that give the pod the same answer.

The nodes have equal keys, so each gives the pod the same amounts of the same NUMA nodes. What is left differs, and is
in the table's columns: the arithmetic of `headrooms` and of merits is for arrays as well.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from extender.cluster.free_table import Int64s, RowGroup
from extender.scheduling.ranking.headrooms import CPU, Headroom, Taken
from extender.scheduling.ranking.placement import AdmissionOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsOutcome(AdmissionOutcome):
    """The admission of one node for many: the placements are the same, and amounts are arrays with one for each row."""

    resources: Sequence[Taken]

    def taken(self) -> Iterator[Taken]:
        """Each resource of which the pod takes something, with the headroom before and after."""
        return iter(self.resources)


def rows_outcome(one: AdmissionOutcome, group: RowGroup, rows: Int64s) -> RowsOutcome | None:
    """The admission of all *rows*, which have the key of *one*; None where the columns lack what a merit reads."""
    resources = []
    for name, before, after in one.taken():
        columns = group.amounts_of(name, rows)
        if columns is None or not _has_all(one, group, name, columns):
            return None
        ids = one.kubelet.machine.cpu_numa_ids if name == CPU else one.kubelet.machine.numa_ids
        places = [ids.index(numa) for numa in columns if numa >= 0]
        gone = [before.aligned[place] - after.aligned[place] for place in places]
        less = before.free - after.free
        if places and sum(gone) != less:  # memory of several NUMA nodes joins them, so more is lost than is taken
            return None
        free = sum(columns.values())
        aligned = tuple(amounts for numa, amounts in columns.items() if numa >= 0)
        left = tuple(amounts - taken for amounts, taken in zip(aligned, gone, strict=True))
        resources.append((name, Headroom(before.capacity, free, aligned), Headroom(after.capacity, free - less, left)))
    return RowsOutcome(
        kubelet=one.kubelet, before=one.before, after=one.after, admitted=one.admitted, resources=resources
    )


def _has_all(one: AdmissionOutcome, group: RowGroup, resource: str, columns: Collection[int]) -> bool:
    """Whether the columns of a resource have all that is free of it, counted by NUMA node as strategies count it."""
    if resource == CPU:
        return not one.kubelet.cpu_options.full_pcpus_only
    kinds = [kind for each in group.devices if each.resource == resource for kind, _ in each.kinds]
    return all(kind > 0 and kind.bit_length() - 1 in columns for kind in kinds) or all(kind <= 0 for kind in kinds)
