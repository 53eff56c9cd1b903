"""The kernel's list format of CPUs ("0-3,8"), read with limits."""

from typing import Final

MAX_CPU_ID: Final = (1 << 14) - 1
"""The largest Linux has 8,192 CPUs (NR_CPUS)."""
MAX_CPUS_NAMED: Final = 1 << 16
"""How many CPUs one list may name, counting repetitions."""


def parse_cpu_list(text: str) -> frozenset[int]:
    """The CPUs of a list. The empty text is the empty set.

    Raises ValueError if it is malformed, or names a CPU above `MAX_CPU_ID` or more than `MAX_CPUS_NAMED`.
    """
    cpus: set[int] = set()
    named = 0
    for part in text.strip().split(","):
        if part:
            ids = _ids(part)
            named += len(ids)
            if named > MAX_CPUS_NAMED:
                raise ValueError(f"names more than {MAX_CPUS_NAMED} CPUs")
            cpus.update(ids)
    return frozenset(cpus)


def count_named(text: str) -> int:
    """How many CPUs a list names, counting repetitions. Does not build a set. Raises ValueError."""
    return sum(len(_ids(part)) for part in text.strip().split(",") if part)


def _ids(part: str) -> range:
    first, dash, last = part[:64].partition("-")
    low, high = int(first), int(last if dash else first)
    if not 0 <= low <= high <= MAX_CPU_ID:
        raise ValueError(f"not a range of CPU ids from 0 to {MAX_CPU_ID}: {low}-{high}")
    return range(low, high + 1)


def format_ids(ids: frozenset[int]) -> str:
    """The kernel's list format of *ids*, such as "0-3,8"."""
    parts: list[str] = []
    first = last = None
    for id_ in [*sorted(ids), None]:
        if id_ is not None and last is not None and id_ == last + 1:
            last = id_
            continue
        if first is not None:
            parts.append(str(first) if first == last else f"{first}-{last}")
        first = last = id_
    return ",".join(parts)
