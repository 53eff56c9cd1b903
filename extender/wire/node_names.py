"""The node names of a scheduler's request: JSON as it came, and strings only for those who need strings.

Rules of this file
- `spans` are given only where they are proven: every name is ASCII without escapes, and nothing but `","` is between
  two names, as Go writes it. Any other list of names is parsed like the rest of a request.
- Names of thousands of nodes are never parsed one by one where the packed form is enough.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, overload

import numpy as np
import orjson
from numpy.typing import NDArray

_QUOTE, _COMMA, _FIRST_PRINTABLE = 0x22, 0x2C, 0x20


class Spans(NamedTuple):
    """Where each name begins in the packed form, and how many bytes it has."""

    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


class NodeNames(Sequence[str]):
    """Node names in the order of a request.

    `packed`: the names as a JSON array. `spans`: see the rules; None if they are not proven.
    """

    __slots__ = ("_count", "_parsed", "is_plain", "packed", "slots", "spans")

    def __init__(
        self, packed: bytes, spans: Spans | None, parsed: list[str] | None = None, *, is_plain: bool = False
    ) -> None:
        self.packed: Final = packed
        self.spans: Final = spans
        self.is_plain: Final = is_plain
        """Whether no name needs an escape in JSON; False if that is not known."""
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
    def plain(cls, names: list[str]) -> "NodeNames":
        """These names, none of which needs an escape in JSON."""
        inner = '","'.join(names)
        return cls(f'["{inner}"]'.encode() if names else b"[]", None, names, is_plain=True)

    @classmethod
    def proven(cls, packed: bytes) -> "NodeNames | None":
        """The names in a JSON array of at least one name; None if *packed* is not in the form of the rules."""
        if not packed.startswith(b'["') or not packed.endswith(b'"]') or b"\\" in packed or not packed.isascii():
            return None
        characters = np.frombuffer(packed, np.uint8)
        quotes = np.flatnonzero(characters == _QUOTE)
        if len(quotes) % 2 or characters.min() < _FIRST_PRINTABLE:
            return None
        ends, next_starts = quotes[1:-1:2], quotes[2::2]
        if quotes[-1] != len(packed) - 2 or np.any(next_starts - ends != 2) or np.any(characters[ends + 1] != _COMMA):
            return None
        starts = quotes[::2] + 1
        return cls(packed, Spans(starts, quotes[1::2] - starts), is_plain=True)

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
    """The reason by node name, kept as the names of each reason: thousands of names become a mapping only if needed.

    *names_by_reason*: names without escapes in JSON. No name has two reasons.
    """

    def __init__(self, names_by_reason: Mapping[str, Sequence[str]]) -> None:
        self._names_by_reason: Final = names_by_reason
        self._by_name: dict[str, str] | None = None

    @property
    def reasons(self) -> frozenset[str]:
        """The different reasons."""
        return frozenset(self._names_by_reason)

    @property
    def packed(self) -> bytes:
        """The mapping as a JSON object."""
        members = []
        for reason, names in self._names_by_reason.items():
            after = f'":{orjson.dumps(reason).decode()},"'
            members.append(f'"{after.join(names)}{after[:-2]}')
        return f"{{{','.join(members)}}}".encode()

    def __getitem__(self, name: str) -> str:
        return self._all[name]

    def __contains__(self, name: object) -> bool:
        return name in self._all

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def __len__(self) -> int:
        return sum(map(len, self._names_by_reason.values()))

    @property
    def _all(self) -> Mapping[str, str]:
        if self._by_name is None:
            self._by_name = {}
            for reason, names in self._names_by_reason.items():
                self._by_name.update(dict.fromkeys(names, reason))
        return self._by_name
