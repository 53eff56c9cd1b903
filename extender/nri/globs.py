"""Glob patterns, as Go's `filepath.Match` decides them, by way of regular expressions.

Like Go, each part between two stars is taken at the first place where it fits, and never tried at a later one: it is an
atomic group. A star matches no `/`, while a class may.

Text beyond ASCII is matched by characters. Go lets a star end within a character, which is not followed.
"""

import re
from typing import Final

from extender.kubelet.budget import UNLIMITED, Budget, remembered

_STEPS_A_CHARACTER: Final = 2
"""Of a pattern, which is remembered once it was read."""
_STEPS_A_CHARACTER_OF_A_LONG_ONE: Final = 32
_COMPARED_A_STEP: Final = 256
"""This many comparisons take at most as long as a step. There are at most as many as the product of the lengths."""
_LONG: Final = 256
"""Characters of a pattern of which few are remembered."""
_STAR: Final = "[^/]*"


class PatternError(ValueError):
    """A glob pattern is malformed."""


def glob_match(pattern: str, text: str, budget: Budget = UNLIMITED) -> bool:
    """Whether *text* matches, as Go's `filepath.Match` decides.

    Raises:
        PatternError: the pattern is malformed.
        BudgetError: matching can take more steps than *budget* has.
    """
    steps = _STEPS_A_CHARACTER if len(pattern) <= _LONG else _STEPS_A_CHARACTER_OF_A_LONG_ONE
    budget.spend(1 + len(pattern) * steps + len(pattern) * len(text) // _COMPARED_A_STEP)
    return _compiled(pattern).fullmatch(text) is not None


@remembered(512, 16, lambda pattern: len(pattern) > _LONG)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(regex_of(pattern))


def regex_of(pattern: str) -> str:
    """The regular expression of a glob; raises PatternError."""
    parts: list[list[str]] = [[]]
    at = 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            parts.append([])
            at += 1
        elif char == "?":
            parts[-1].append("[^/]")
            at += 1
        elif char == "[":
            item, at = _char_class(pattern, at + 1)
            parts[-1].append(item)
        else:
            literal, at = _literal(pattern, at, in_class=False)
            parts[-1].append(re.escape(literal))
    first, *others = map("".join, parts)
    if not others:
        return first
    between = "".join(f"(?>{_STAR}?{part})" for part in others[:-1] if part)
    return f"{first}{between}{_STAR}{others[-1]}"


def _char_class(pattern: str, at: int) -> tuple[str, int]:
    """The regular expression of a class, and where the pattern goes on; *at*: after its bracket."""
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[tuple[str, str]] = []
    while pattern[at : at + 1] != "]" or not ranges:
        low, at = _literal(pattern, at, in_class=True)
        high = low
        if pattern[at : at + 1] == "-":
            high, at = _literal(pattern, at + 1, in_class=True)
        ranges.append((low, high))
    accepted = "".join(f"{re.escape(low)}-{re.escape(high)}" for low, high in ranges if low <= high)
    if not accepted:
        return r"[\s\S]" if negated else r"[^\s\S]", at + 1
    return f"[{'^' if negated else ''}{accepted}]", at + 1


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
