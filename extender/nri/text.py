"""Readers of the text forms that Go programs accept in annotations and settings, and glob patterns.

They follow Go's standard library and `k8s.io/utils/cpuset`, because the plugin reads the same text with them.

Globs are decided as by `filepath.Match`, by way of regular expressions. Like Go, each part between two stars is taken
at the first place where it fits, and never tried at a later one: it is an atomic group. A star matches no `/`, while a
class may. Text beyond ASCII is matched by characters. In Go a star can end within a character. Here it cannot.
"""

import re
from typing import Final

from extender.kubelet.budget import UNLIMITED, Budget, remembered

MAX_ID: Final = 65_535
"""Limit on ids in a list, so that no annotation can create an enormous int. Larger ids count as one more."""

_LONG: Final = 100
"""A list with more characters than this is long. Of long lists only a few are cached."""

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_NUMBER: Final = rf"(\d+(?:\.\d*)?|\.\d+)({'|'.join(_NANOSECONDS)})"
_DURATION: Final = re.compile(rf"([+-]?)(0|(?:{_NUMBER})+)", re.ASCII)
_MAX_DURATION: Final = 100

_STEPS_A_CHARACTER: Final = 2
"""Steps for each character of a pattern. A pattern that was read is cached."""
_STEPS_A_CHARACTER_OF_A_LONG_ONE: Final = 32
_COMPARED_A_STEP: Final = 256
"""This many comparisons take at most as long as a step. There are at most as many as the product of the lengths."""
_LONG_PATTERN: Final = 256
"""A pattern with more characters than this is long. Of long patterns only a few are cached."""
_STAR: Final = "[^/]*"


def as_text(value: object) -> str | None:
    """A YAML scalar in a place where the plugin expects a text (`sigs.k8s.io/yaml`). None: it is a map or a list."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() else repr(value)
    return "" if value is None else str(value) if isinstance(value, str | int) else None


def as_texts(value: object) -> list[str] | None:
    """A YAML list of texts; null is an empty one. None: it is not a list of scalars."""
    texts = [as_text(one) for one in value] if isinstance(value, list) else [] if value is None else [None]
    return None if None in texts else [text for text in texts if text is not None]


def json_fields(value: object) -> dict[str, object] | None:
    """The fields of an object by their names in lower case, as Go's JSON reader matches them; None if it is no object.

    The plugin reads YAML by way of JSON with sorted keys. So of names that differ only in case, the last one counts.
    """
    if not isinstance(value, dict):
        return None
    return {str(key).lower(): value[key] for key in sorted(value, key=str)}


def parse_bool(text: str) -> bool | None:
    """The bool that Go's `strconv.ParseBool` reads; None if it fails."""
    return True if text in _TRUE else False if text in _FALSE else None


def parse_int(text: str) -> int | None:
    """The int that Go's `strconv.ParseInt(text, 0, 0)` reads; None if it fails."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits.isascii() or not digits or len(digits) > 70:
        return None
    if len(digits) > 1 and digits[0] == "0" and digits[1] not in "xXbBoO_":
        digits = "0o" + digits[1:]
    try:
        value = int(digits, 0)
    except ValueError:
        return None
    value = -value if text[0] == "-" else value
    return value if -(2**63) <= value < 2**63 else None


def _atoi(text: str) -> int | None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        return None
    return -int(digits) if text[0] == "-" else int(digits)


@remembered(512, 16, lambda text: len(text) > _LONG)
def parse_id_list(text: str) -> int | None:
    """The bits of a list such as `0-3,8`, as `cpuset.Parse` reads it; None if it fails. `""` is the empty set."""
    bits = 0
    for part in text.split(",") if text else ():
        first_text, dash, last_text = part.partition("-")
        first = _atoi(first_text)
        last = _atoi(last_text) if dash else first
        if first is None or last is None or not 0 <= first <= last:
            return None
        first, last = min(first, MAX_ID + 1), min(last, MAX_ID + 1)
        bits |= ((1 << (last - first + 1)) - 1) << first
    return bits


def parse_duration(text: str) -> int | None:
    """The nanoseconds that Go's `time.ParseDuration` reads, such as of `1h2.5s`; None if it fails."""
    match = _DURATION.fullmatch(text[: _MAX_DURATION + 2])
    if match is None or len(match[2]) > _MAX_DURATION:
        return None
    total = 0
    for number, unit in re.findall(_NUMBER, match[2]):
        whole, _, part = number.partition(".")
        total += int(whole or "0") * _NANOSECONDS[unit]
        total += int(part or "0") * _NANOSECONDS[unit] // 10 ** len(part)
    if total >= 2**63:
        return None
    return -total if match[1] == "-" else total


class PatternError(ValueError):
    """A glob pattern is malformed."""


def glob_match(pattern: str, text: str, budget: Budget = UNLIMITED) -> bool:
    """Whether *text* matches, as Go's `filepath.Match` decides.

    Raises:
        PatternError: the pattern is malformed.
        BudgetError: matching can take more steps than *budget* has.
    """
    steps = _STEPS_A_CHARACTER if len(pattern) <= _LONG_PATTERN else _STEPS_A_CHARACTER_OF_A_LONG_ONE
    budget.spend(1 + len(pattern) * steps + len(pattern) * len(text) // _COMPARED_A_STEP)
    return _compiled(pattern).fullmatch(text) is not None


@remembered(512, 16, lambda pattern: len(pattern) > _LONG_PATTERN)
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
