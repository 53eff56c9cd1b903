"""A number (slot) for each node name, for arrays by node.

Rules of this file
- A slot belongs to one name until the name is removed. A freed slot is used again.
- Slot `NO_SLOT` (-1) is the last element of every array by slot: it stands for all unknown names.
"""

from bisect import bisect_left, insort
from collections.abc import Collection
from itertools import repeat
from typing import Final

import numpy as np
from numpy.typing import NDArray

NO_SLOT: Final = -1

Int64s = NDArray[np.int64]


class NameTable:
    """The slots of all known names; see the file's rules."""

    def __init__(self) -> None:
        self._slot_of: dict[str, int] = {}
        self.ordered: Final[list[str]] = []
        """The names, sorted. Do not change it."""
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._slot_of)

    def get(self, name: str) -> int:
        """The slot of a name; `NO_SLOT` if it is unknown."""
        return self._slot_of.get(name, NO_SLOT)

    def slots_of(self, names: Collection[str]) -> Int64s:
        """The slot of each name, in order."""
        return np.fromiter(map(self._slot_of.get, names, repeat(NO_SLOT)), np.int64, len(names))

    def add(self, name: str) -> int:
        """The slot of a name; a new one if it has none."""
        slot = self._slot_of.get(name)
        if slot is None:
            slot = self._free.pop() if self._free else len(self._slot_of)
            self._slot_of[name] = slot
            insort(self.ordered, name)
        return slot

    def remove(self, name: str) -> int:
        """Forget a known name. Returns its slot, which may be another name's from now on."""
        slot = self._slot_of.pop(name)
        del self.ordered[bisect_left(self.ordered, name)]
        self._free.append(slot)
        return slot
