"""The names of the last requests, with the numbers of their nodes.

kube-scheduler sends the same names for pod after pod, in another order each time, and uses no order of the replies.
A request with the same names gets the object of the first one, so all that was computed of them is found again.

Names are compared by their number, and by two sums over their hashes in the table of nodes (`cluster/name_table`). Two
sets of names are taken for one with a probability of 2**-64 at most.
"""

from typing import Final

import numpy as np

from extender.bounded import BoundedMap
from extender.cluster.name_table import NameTable
from extender.wire.node_names import NodeNames

MAX_KNOWN: Final = 8


class KnownNames:
    """See the docstring of this file. *table*: of all nodes."""

    def __init__(self, table: NameTable) -> None:
        self._table: Final = table
        self._known: BoundedMap[tuple[int, int, int, int], NodeNames] = BoundedMap(MAX_KNOWN)

    def of(self, names: NodeNames) -> NodeNames:
        """The same names, perhaps in another order. `slots` are those of the present table."""
        table, version = self._table, self._table.version
        if names.slots is not None and names.slots[0] == version:
            return names
        if names.spans is None:
            names.slots = version, table.find_each(names)
            return names
        hashes = table.hashes(names.packed, *names.spans)
        if hashes is None:
            names.slots = version, table.find(names.packed, *names.spans)
            return names
        key = version, len(hashes), int(np.add.reduce(hashes)), int(np.add.reduce(hashes * hashes))
        found = self._known.get(key)
        if found is None:
            names.slots = version, table.at(hashes)
            found = names
        self._known[key] = found
        return found
