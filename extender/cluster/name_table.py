"""A number for each node name, and the numbers of all names of a request in a few array operations.

A set of strings costs a hash and a cache miss for each name: 0.25 ms for 5,000 names and 15 ms for 65,536. This table
reads the names where they are in the request, eight bytes at a time.

Rules of this file
- A number (slot) belongs to one name until the name is removed. A freed slot is used again.
- Names are found by a hash of 64 bits over all of their bytes and their length. Two known names with one hash are never
  found by it. A name that is not in the table has the hash of a given known name with a probability of 2**-64.
- Slot `NO_SLOT` (-1) is the last element of every array by slot: it stands for all unknown names.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

NO_SLOT: Final = -1
WORD: Final = 8
_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT, _HALF = np.uint64(29), np.uint64(32)
_EMPTY, _REMOVED = 0, 1
"""In place of a hash: nothing was stored at this place, or its name was removed."""
_MIN_BITS: Final = 10
_MAX_LOAD: Final = 4
"""The table has at least this many places for each name. Nearly every name is then at its first place."""

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]
_INSIDE: Final[UInt64s] = (np.tri(WORD + 1, WORD, -1, dtype=np.uint8) * np.uint8(255)).view(np.uint64).reshape(-1)
"""For each number of bytes up to a word: as many bytes of 0xff, then zeros."""


class NameTable:
    """The slots of all known names; see the file's rules."""

    def __init__(self) -> None:
        self._slot_of: dict[str, int] = {}
        self.ordered: Final[list[str]] = []
        """The names, sorted. Do not change it."""
        self.version = 0
        """Changes with each name that is added or removed."""
        self._names: NDArray[np.object_] = np.full(1, None, object)
        self._capacity = 0
        self._free: list[int] = []
        self._unhashed: list[str] = []
        """Names that were added since the last `find`."""
        self._width = WORD
        """Bytes of the longest known name, rounded up to whole words."""
        self._removed = 0
        """Places in the table that names have left."""
        self._make_table(0)

    def __len__(self) -> int:
        return len(self._slot_of)

    @property
    def capacity(self) -> int:
        """All slots are below this."""
        return self._capacity

    def get(self, name: str) -> int:
        """The slot of a name; `NO_SLOT` if it is unknown."""
        return self._slot_of.get(name, NO_SLOT)

    def names_at(self, slots: Int64s) -> list[str]:
        """The name of each slot."""
        names: list[str] = self._names[slots].tolist()
        return names

    def add(self, name: str) -> int:
        """The slot of a name; a new one if it has none."""
        slot = self._slot_of.get(name)
        if slot is None:
            if self._free:
                slot = self._free.pop()
            else:
                slot = self._capacity
                self._capacity += 1
                if slot == len(self._names):
                    self._names = np.concatenate((self._names, np.full(slot, None, object)))
            self.version += 1
            self._names[slot] = name
            self._slot_of[name] = slot
            insort(self.ordered, name)
            self._unhashed.append(name)
        return slot

    def remove(self, name: str) -> int:
        """Forget a known name. Returns its slot, which may be another name's from now on."""
        slot = self._slot_of.pop(name)
        del self.ordered[bisect_left(self.ordered, name)]
        self.version += 1
        self._names[slot] = None
        self._free.append(slot)
        places = np.flatnonzero(self._slots == slot)
        self._hashes[places], self._slots[places] = _REMOVED, NO_SLOT
        self._removed += len(places)
        return slot

    def find_each(self, names: Iterable[str]) -> Int64s:
        """The slot of each name, in order."""
        return np.fromiter((self._slot_of.get(name, NO_SLOT) for name in names), np.int64)

    def hashes(self, packed: bytes, starts: Int64s, sizes: Int64s) -> UInt64s | None:
        """A hash of each name, in order; None if one of them is longer than all known names, or there are none.

        The names are ASCII, and at *starts* in *packed*, with *sizes* bytes. Valid for this `version`.
        """
        self._hash_new_names()
        if not len(starts) or not self._slot_of or sizes.max() > self._width:
            return None
        return _hashes(packed, starts, sizes, self._width)

    def find(self, packed: bytes, starts: Int64s, sizes: Int64s) -> Int64s:
        """The slot of each name, in order. The names are given as for `hashes`."""
        hashes = self.hashes(packed, starts, sizes)
        if hashes is not None:
            return self.at(hashes)
        slots, short = np.full(len(starts), NO_SLOT, np.int64), np.flatnonzero(sizes <= self._width)
        hashes = self.hashes(packed, starts[short], sizes[short])
        if hashes is not None:
            slots[short] = self.at(hashes)
        return slots

    def at(self, hashes: UInt64s) -> Int64s:
        """The slot of the name with each of these `hashes`."""
        place = (hashes >> self._shift).astype(np.int64)
        found = self._hashes[place]
        slots = self._slots[place]
        open_ = np.flatnonzero((found != hashes) & (found != _EMPTY))
        slots[found != hashes] = NO_SLOT
        while len(open_):  # the next place of those whose place has another name
            place[open_] = (place[open_] + 1) & self._mask
            found = self._hashes[place[open_]]
            is_match = found == hashes[open_]
            slots[open_[is_match]] = self._slots[place[open_[is_match]]]
            open_ = open_[~is_match & (found != _EMPTY)]
        return slots

    def _hash_new_names(self) -> None:
        """Add the names that came since the last call to the table; a larger table, if they need one."""
        names = [name for name in self._unhashed if name in self._slot_of and name.isascii()]
        self._unhashed.clear()
        if not names:
            return
        width = -(-max(map(len, names)) // WORD) * WORD
        if width > self._width or _MAX_LOAD * (len(self._slot_of) + self._removed) > len(self._hashes):
            self._width = max(width, self._width)
            self._make_table(len(self._slot_of))
            names = [name for name in self._slot_of if name.isascii()]
        for name, value in zip(names, _hashes_of(names, self._width).tolist(), strict=True):
            self._insert(value, self._slot_of[name])

    def _insert(self, value: int, slot: int) -> None:
        place = value >> int(self._shift)
        while (there := int(self._hashes[place])) not in (_EMPTY, value):
            place = (place + 1) & self._mask
        if there == value and self._slots[place] != slot:
            slot = NO_SLOT  # two names with one hash: none of them is found by it
        self._hashes[place], self._slots[place] = value, slot

    def _make_table(self, names: int) -> None:
        bits = max(_MIN_BITS, (2 * _MAX_LOAD * names - 1).bit_length())
        self._hashes: UInt64s = np.zeros(1 << bits, np.uint64)
        self._slots: Int64s = np.full(1 << bits, NO_SLOT, np.int64)
        self._removed = 0
        self._shift, self._mask = np.uint64(64 - bits), (1 << bits) - 1


def _hashes_of(names: list[str], width: int) -> UInt64s:
    sizes = np.fromiter(map(len, names), np.int64, len(names))
    return _hashes("".join(names).encode(), np.cumsum(sizes) - sizes, sizes, width)


def _hashes(packed: bytes, starts: Int64s, sizes: Int64s, width: int) -> UInt64s:
    """A hash of each name, the same for every order of names. *width*: whole words, no less than any of *sizes*."""
    rows, columns = len(starts), width // WORD
    windows = np.ndarray((len(packed),), f"V{width}", packed + bytes(width), strides=(1,))
    words = windows[starts].view(np.uint64).reshape(rows, columns)
    shortest = int(sizes.min())
    hashes = sizes.astype(np.uint64) * _SECOND
    shifted = np.empty_like(hashes)
    for column in range(columns):
        word = words[:, column]
        if shortest < (column + 1) * WORD:  # it can have bytes of what follows a name
            word &= _INSIDE[np.minimum(np.maximum(sizes - column * WORD, 0), WORD)]
        hashes ^= word
        hashes *= _FIRST
        hashes ^= np.right_shift(hashes, _SHIFT, out=shifted)
    hashes *= _SECOND
    hashes ^= np.right_shift(hashes, _HALF, out=shifted)
    hashes[hashes <= _REMOVED] = _REMOVED + 1
    return hashes
