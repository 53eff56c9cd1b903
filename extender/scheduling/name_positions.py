"""Where a few names are among the names of a call, without splitting thousands of packed names into strings."""

from collections.abc import Collection, Sequence
from itertools import compress

import numpy as np

from extender.cluster.name_table import NO_SLOT, Int64s, NameTable
from extender.wire.node_names import NodeNames


def slots_of(names: NodeNames, table: NameTable) -> Int64s:
    """The slot of each of *names* in the present table, in order; looked up once for each version of the table."""
    if names.slots is None or names.slots[0] != table.version:
        slots = table.find_each(names) if names.spans is None else table.find(names.packed, *names.spans)
        names.slots = (table.version, slots)
    return names.slots[1]


def positions_of(wanted: Collection[str], names: Sequence[str], table: NameTable) -> Int64s:
    """The positions among *names* of those that are in *wanted*, ascending. Names that *table* lacks may be in both."""
    slots = [table.get(name) for name in wanted]
    if isinstance(names, NodeNames) and NO_SLOT not in slots:
        is_wanted = np.zeros(table.capacity + 1, np.bool_)  # the last one is for NO_SLOT, which is -1
        is_wanted[slots] = True
        return np.flatnonzero(is_wanted[slots_of(names, table)])
    return np.flatnonzero(np.fromiter((name in wanted for name in names), np.bool_, len(names)))


def shared_names(wanted: Collection[str], names: Sequence[str], table: NameTable) -> Collection[str]:
    """Those of *wanted* that are among *names*."""
    slots = [table.get(name) for name in wanted]
    if isinstance(names, NodeNames) and NO_SLOT not in slots:
        is_among = np.zeros(table.capacity + 1, np.bool_)
        is_among[slots_of(names, table)] = True
        return list(compress(wanted, is_among[slots].tolist()))
    return frozenset(wanted).intersection(names)


def has_name(names: Sequence[str], name: str, table: NameTable) -> bool:
    """Whether *name* is among *names*."""
    return bool(shared_names((name,), names, table))
