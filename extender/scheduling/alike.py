"""Sets of nodes that need only one judgement: what differs between their states does not matter to the pod."""

from collections.abc import Iterator

import numpy as np

from extender.cluster.free_table import NO_KEY, FreeTable
from extender.scheduling.columns import Int64s
from extender.scheduling.pod_shape import PodShape


def alike(table: FreeTable, shape: PodShape, places: Int64s) -> Iterator[Int64s]:
    """Sets of nodes with equal keys for the pod: positions in *places*. Nodes without a key are in none."""
    for group, which, rows in table.by_group(places):
        numbers = group.alike(rows, shape.resolved(group.kubelet.rules).replay)
        if numbers is None:
            continue
        order = np.argsort(numbers, kind="stable")
        ends = np.flatnonzero(np.diff(numbers[order])) + 1
        for members in np.split(order, ends):
            if numbers[members[0]] != NO_KEY:
                yield which[members]
