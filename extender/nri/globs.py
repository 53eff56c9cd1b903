"""Glob patterns, as Go's `filepath.Match` decides them, in time that grows with the lengths and not with their product.

A pattern is read as parts between stars. Like Go, each part after a star is taken at the first place where it fits, and
a star matches no `/`, while a class may. So no place is tried twice, and a part with classes or `?` looks for all of
its places at once, as the bits of one int.

Text beyond ASCII is matched by characters. Go lets a star end within a character, which is not followed.
"""

from dataclasses import dataclass
from typing import Final

from extender.kubelet.budget import UNLIMITED, Budget

_READ_A_STEP: Final = 2
"""This many characters of a pattern are read in about the time of a step."""
_COMPARED_A_STEP: Final = 8
"""This many characters and ranges of a part are compared with one character in about the time of a step."""
_FOUND_A_STEP: Final = 1_024
"""This many characters that a search for plain text passes take at most as long as a step."""
_BITS_A_STEP: Final = 4_096
"""This many bits of the places of a part take about as long as a step for each character of the text."""

_Ranges = tuple[tuple[str, str], ...]
_Item = str | tuple[bool, _Ranges]
"""One character of the text: this one, or (negated, accepted ranges); no ranges: `?`."""


class PatternError(ValueError):
    """A glob pattern is malformed."""


@dataclass(frozen=True, slots=True)
class _GlobPart:
    """What is between two stars. `plain`: the text that it stands for; None if it has classes or `?`.

    `size`: its characters and ranges.
    """

    items: list[_Item]
    plain: str | None
    size: int


def glob_match(pattern: str, text: str, budget: Budget = UNLIMITED) -> bool:
    """Whether *text* matches, as Go's `filepath.Match` decides.

    Raises:
        PatternError: the pattern is malformed.
        BudgetError: matching takes more steps than *budget* has.
    """
    budget.spend(1 + len(pattern) // _READ_A_STEP)
    first, *others = _parts(pattern)
    if sum(len(part.items) for part in (first, *others)) > len(text) or not _fits(first, text, 0, budget):
        return False
    at = len(first.items)
    if not others:
        return at == len(text)
    slash = _next_slash(text, at)
    for part in others[:-1]:
        at = _end_of_next(part, text, at, slash, budget)
        if at < 0:
            return False
        slash = slash if at <= slash else _next_slash(text, at)
    start = len(text) - len(others[-1].items)
    return at <= start <= slash and _fits(others[-1], text, start, budget)


def _next_slash(text: str, at: int) -> int:
    """Where a part may start at most after a star at *at*."""
    slash = text.find("/", at)
    return len(text) if slash < 0 else slash


def _fits(part: _GlobPart, text: str, start: int, budget: Budget) -> bool:
    """Whether the part is in *text* at *start*; the text is long enough."""
    budget.spend(part.size // _COMPARED_A_STEP)
    if part.plain is not None:
        return text.startswith(part.plain, start)
    return all(map(_accepts, part.items, text[start:]))


def _end_of_next(part: _GlobPart, text: str, at: int, slash: int, budget: Budget) -> int:
    """The end of the part's first place after a star at *at*, which starts at *slash* at most; -1 if there is none."""
    length = len(part.items)
    stop = min(slash + length, len(text))
    if part.plain is not None:
        start = text.find(part.plain, at, stop)
        end = start if start < 0 else start + length
        budget.spend(1 + ((stop if end < 0 else end) - at) // _FOUND_A_STEP)
        return end
    accepting: dict[str, int] = {}
    begun, is_end = 0, 1 << (length - 1)
    for position in range(at, stop):
        char = text[position]
        budget.spend(1 + length // _BITS_A_STEP)
        bits = accepting.get(char)
        if bits is None:
            budget.spend(part.size // _COMPARED_A_STEP)
            accepted = "".join("1" if _accepts(item, char) else "0" for item in reversed(part.items))
            bits = accepting[char] = int(accepted, 2)
        begun = (begun << 1 | 1) & bits
        if begun & is_end:
            return position + 1
    return -1


def _accepts(item: _Item, char: str) -> bool:
    if isinstance(item, str):
        return item == char
    negated, ranges = item
    if not ranges:
        return char != "/"
    return any(low <= char <= high for low, high in ranges) != negated


def _parts(pattern: str) -> list[_GlobPart]:
    """The parts between stars, one more than there are stars in a row; each can be empty only at the ends."""
    parts: list[list[_Item]] = [[]]
    at, was_star = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            if not was_star:
                parts.append([])
            was_star, at = True, at + 1
            continue
        was_star = False
        if char == "?":
            item: _Item = (False, ())
            at += 1
        elif char == "[":
            item, at = _char_class(pattern, at + 1)
        else:
            item, at = _literal(pattern, at, in_class=False)
        parts[-1].append(item)
    return list(map(_part, parts))


def _part(items: list[_Item]) -> _GlobPart:
    plain = [item for item in items if isinstance(item, str)]
    size = sum(1 if isinstance(item, str) else 1 + len(item[1]) for item in items)
    return _GlobPart(items, "".join(plain) if len(plain) == len(items) else None, size)


def _char_class(pattern: str, at: int) -> tuple[tuple[bool, _Ranges], int]:
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[tuple[str, str]] = []
    while True:
        if pattern[at : at + 1] == "]" and ranges:
            return (negated, tuple(ranges)), at + 1
        low, at = _literal(pattern, at, in_class=True)
        high = low
        if pattern[at : at + 1] == "-":
            high, at = _literal(pattern, at + 1, in_class=True)
        ranges.append((low, high))


def _literal(pattern: str, at: int, *, in_class: bool) -> tuple[str, int]:
    if at >= len(pattern) or (in_class and pattern[at] in "-]"):
        raise PatternError(pattern)
    if pattern[at] == "\\":
        at += 1
        if at >= len(pattern):
            raise PatternError(pattern)
    if in_class and at + 1 >= len(pattern):
        raise PatternError(pattern)
    return pattern[at], at + 1
