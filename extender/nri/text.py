"""Readers of the text forms that Go programs accept in annotations and settings.

They follow Go's standard library and `k8s.io/utils/cpuset`, because the plugin reads the same text with them.
"""

from typing import Final

from extender.kubelet.budget import remembered

MAX_ID: Final = 65_535
"""Limit on ids in a list, so that no annotation can create an enormous int. Larger ids count as one more."""

_LONG: Final = 100
"""Characters of a list of which few are remembered."""

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
    """The nanoseconds that Go's `time.ParseDuration` reads; None if it fails."""
    sign = -1 if text[:1] == "-" else 1
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total, at = 0, 0
    if not rest or len(rest) > 100:
        return None
    while at < len(rest):
        start = at
        while at < len(rest) and (rest[at].isdigit() or rest[at] == "."):
            at += 1
        number, unit_start = rest[start:at], at
        while at < len(rest) and not (rest[at].isdigit() or rest[at] == "."):
            at += 1
        scale = _NANOSECONDS.get(rest[unit_start:at])
        whole, _, part = number.partition(".")
        if scale is None or "." in part or not (whole or part) or not (whole + part).isascii():
            return None
        total += int(whole or "0") * scale + (int(part) * scale // 10 ** len(part) if part else 0)
    return sign * total if total < 2**63 else None
