"""Sets of nodes that need only one judgement: what differs between their states does not matter to the pod."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from extender.cluster.free_table import NO_KEY, FreeTable, RowGroup, StatesGroup
from extender.scheduling.columns import Int64s
from extender.scheduling.pod_shape import PodShape

MAX_MERGES: Final = 500
"""How many times one call goes through rows: each takes some 0.1 ms, and more for thousands of rows."""
WORTH: Final = 4
"""Nodes of one group that are compared faster than judged one by one."""


class Alike(NamedTuple):
    """Nodes with equal keys for a pod. `members`: positions in the places; they are the `rows` of the `group`."""

    members: Int64s
    group: RowGroup | StatesGroup
    rows: Int64s


def alike(table: FreeTable, shape: PodShape, places: Int64s) -> Iterator[Alike]:
    """Sets of nodes with equal keys for the pod. Nodes without a key are in none.

    Nor are those of small groups, and those beyond `MAX_MERGES`: they are judged one by one, off the event loop.
    """
    left = MAX_MERGES
    for group, which, rows in table.by_group(places):
        steps = shape.resolved(group.kubelet.rules).steps
        merges = group.merges(steps)
        if len(rows) < WORTH or merges > left:
            continue
        left -= merges
        numbers = group.alike(rows, steps)
        if numbers is None:
            continue
        order = np.argsort(numbers, kind="stable")
        ends = np.flatnonzero(np.diff(numbers[order])) + 1
        for members in np.split(order, ends):
            if numbers[members[0]] != NO_KEY:
                yield Alike(which[members], group, rows[members])
