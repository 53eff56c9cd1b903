"""The node names of a scheduler's request: JSON as it came, and strings only for those who need strings.

Rules of this file
- `spans` are given only where they are proven: every name is ASCII without escapes, and nothing but `","` is between
  two names, as Go writes it. Any other list of names is parsed like the rest of a request.
- Names of thousands of nodes are never parsed one by one where the packed form is enough.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple, overload

import numpy as np
import orjson
from numpy.typing import NDArray

_QUOTE, _COMMA, _FIRST_PRINTABLE = 0x22, 0x2C, 0x20
_BLANK = _FIRST_PRINTABLE
_AROUND = len('"",')
_SHORT_RUN: Final = 16
"""Names are copied one by one where fewer than twice as many follow one another, and run by run where more do."""
_MAX_WIDTH: Final = 320
"""Bytes of a padded name. Kubernetes allows names of 253."""


@lru_cache(maxsize=8)
def _masks(width: int) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """For each size of a name, below *width*: 0xff for each byte of the name and its quote; blanks for the rest."""
    is_inside = np.tri(width, width, 0, dtype=np.uint8)
    inside, blanks = is_inside * np.uint8(0xFF), (1 - is_inside) * np.uint8(_BLANK)
    return inside.view(f"V{width}").reshape(-1), blanks.view(f"V{width}").reshape(-1)


class Spans(NamedTuple):
    """Where each name begins in the packed form, and how many bytes it has."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


class NodeNames(Sequence[str]):
    """Node names in the order of a request.

    `packed`: the names as a JSON array. `spans`: see the rules; None if they are not proven.
    """

    __slots__ = ("_count", "_parsed", "packed", "slots", "spans")

    def __init__(self, packed: bytes, spans: Spans | None, parsed: list[str] | None = None) -> None:
        self.packed: Final = packed
        self.spans: Final = spans
        self.slots: tuple[int, NDArray[np.int64]] | None = None
        """The number of each name in the table of nodes, and the version of that table; None: not looked up yet."""
        self._parsed = parsed
        self._count = len(parsed) if parsed is not None else 0 if spans is None else len(spans.starts)

    @classmethod
    def of(cls, names: Sequence[str]) -> "NodeNames":
        """These names."""
        parsed = list(names)
        return cls(orjson.dumps(parsed), None, parsed)

    @classmethod
    def proven(cls, packed: bytes) -> "NodeNames | None":
        """The names in a JSON array of at least one name; None if *packed* is not in the form of the rules."""
        if not packed.startswith(b'["') or not packed.endswith(b'"]') or b"\\" in packed:
            return None
        characters = np.frombuffer(packed, np.uint8)
        if characters.view(np.int8).min() < _FIRST_PRINTABLE:  # what is not ASCII is negative
            return None
        quotes = np.flatnonzero(characters == _QUOTE)
        if len(quotes) % 2:
            return None
        ends, next_starts = quotes[1:-1:2], quotes[2::2]
        if quotes[-1] != len(packed) - 2 or (next_starts - ends != 2).any() or (characters[ends + 1] != _COMMA).any():
            return None
        starts = quotes[::2] + 1
        return cls(packed, Spans(starts, quotes[1::2] - starts))

    def kept(self, is_kept: NDArray[np.bool_]) -> "NodeNames":
        """The names where *is_kept*, in the same order. `spans` are given."""
        assert self.spans is not None
        if not is_kept.any():
            return self.of([])
        sizes = self.spans.sizes
        inner_ends = np.flatnonzero(is_kept[1:] != is_kept[:-1]) + 1
        first, last = [0] if is_kept[0] else [], [len(is_kept)] if is_kept[-1] else []
        ends = np.concatenate((first, inner_ends, last)).astype(np.int64)  # where runs of kept names begin and end
        if len(ends) * _SHORT_RUN < len(is_kept):
            inner = self._between(ends)
        else:
            names = np.frombuffer(self.packed, np.uint8)[1:]  # each with its quotes, and a comma or the bracket
            inner = names[np.repeat(is_kept, sizes + _AROUND)][:-1].tobytes()
        sizes = sizes[is_kept]
        kept = type(self)(b"[%b]" % inner, Spans(np.cumsum(sizes + _AROUND) - sizes - 1, sizes))
        if self.slots is not None:
            kept.slots = self.slots[0], self.slots[1][is_kept]
        return kept

    def _between(self, ends: NDArray[np.int64]) -> bytes:
        """The JSON of runs of names, without brackets. *ends*: the first position of each run, and the one after it."""
        assert self.spans is not None
        places = np.append(self.spans.starts - 1, len(self.packed))[ends].reshape(-1, 2).tolist()
        return b",".join([self.packed[first : after - 1] for first, after in places])

    def padded(self, positions: NDArray[np.int64] | None = None) -> NDArray[np.void] | None:
        """Each name with its closing quote, and blanks up to a common width. `spans` are given.

        *positions*: of some names; None: all. Returns None if a name is too long, or if this would be much longer than
        the JSON.
        """
        assert self.spans is not None
        starts, sizes = self.spans
        if positions is not None:
            starts, sizes = starts[positions], sizes[positions]
        width = int(sizes.max()) + 1
        if width > _MAX_WIDTH or width * len(sizes) > 2 * (int(sizes.sum()) + _AROUND * len(sizes)):
            return None
        windows = np.ndarray((len(self.packed),), f"V{width}", self.packed + bytes(width), strides=(1,))
        names = windows[starts]
        rows, (inside, blanks) = names.view(np.uint8).reshape(-1, width), _masks(width)
        rows &= inside[sizes].view(np.uint8).reshape(-1, width)
        rows |= blanks[sizes].view(np.uint8).reshape(-1, width)
        return names

    @property
    def is_parsed(self) -> bool:
        """Whether the strings exist already."""
        return self._parsed is not None

    @property
    def parsed(self) -> list[str]:
        """The names as strings."""
        if self._parsed is None:
            self._parsed = orjson.loads(self.packed)
        return self._parsed

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.parsed[index]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parsed)

    def __contains__(self, name: object) -> bool:
        return name in self.parsed


class GroupedReasons(Mapping[str, str]):
    """The reason by node name, kept as the positions of the names of each reason.

    Thousands of names become strings and a mapping only if needed. `spans` of *names* are given. No position has two
    reasons. *earlier*: the reasons of other names, which belong to this mapping too.
    """

    def __init__(
        self,
        names: NodeNames,
        positions_by_reason: Mapping[str, NDArray[np.int64]],
        *,
        earlier: "GroupedReasons | None" = None,
    ) -> None:
        self._names: Final = names
        self._positions: Final = positions_by_reason
        self._earlier: Final = earlier

    @property
    def reasons(self) -> frozenset[str]:
        """The different reasons."""
        return frozenset(self._positions).union(self._earlier.reasons if self._earlier is not None else ())

    @cached_property
    def packed(self) -> bytes:
        """The mapping as a JSON object, with blanks after names."""
        before = b"{" if self._earlier is None else memoryview(self._earlier.packed)[:-1]
        members = b"".join(self._members())
        return b"".join((before, b"," if len(before) > 1 else b"", memoryview(members)[:-1], b"}"))

    def _members(self) -> Iterator[bytes]:
        """The members of each reason, with a comma after each member.

        The rows of an array: names that are strings are anywhere in memory, and joining them takes twice as long.
        """
        for reason, positions in self._positions.items():
            after = b":%b," % orjson.dumps(reason)
            padded = self._names.padded(positions)
            if padded is None:
                names = map(self._names.parsed.__getitem__, positions.tolist())
                yield b"".join(b'"%b"%b' % (name.encode(), after) for name in names)
                continue
            rows = np.empty(len(padded), [("before", "V1"), ("name", padded.dtype), ("after", f"V{len(after)}")])
            rows["before"], rows["name"], rows["after"] = np.void(b'"'), padded, np.void(after)
            yield rows.tobytes()

    def since(self, earlier: Mapping[str, str]) -> dict[str, str]:
        """The reasons that were added to *earlier*, which is empty, this mapping, or one that it was made from."""
        if earlier is self:
            return {}
        added = self._added
        return {**self._earlier.since(earlier), **added} if self._earlier is not None else added

    def __getitem__(self, name: str) -> str:
        return self._all[name]

    def __contains__(self, name: object) -> bool:
        return name in self._all

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return sum(map(len, self._positions.values())) + (0 if self._earlier is None else len(self._earlier))

    @cached_property
    def _all(self) -> Mapping[str, str]:
        return self._added if self._earlier is None else {**self._earlier, **self._added}

    @cached_property
    def _added(self) -> dict[str, str]:
        reasons: dict[str, str] = {}
        name_at = self._names.parsed.__getitem__
        for reason, positions in self._positions.items():
            reasons.update(dict.fromkeys(map(name_at, positions.tolist()), reason))
        return reasons
