"""The kubelet's random choices of devices, as data.

One replay follows one script of choices. `admission` runs the possible scripts. A choice is how many
devices of each kind to take from a tier that has more than needed. Kinds differ in NUMA set or health. Devices of one
kind are interchangeable.
"""

from collections.abc import Sequence
from typing import Final

from extender.kubelet.budget import UNLIMITED, Budget

MAX_ALTERNATIVES: Final = 65
"""How many alternatives are counted for one choice. More are never tried (`admission.MAX_OUTCOMES`)."""


class Choices:
    """Follows a script of choice numbers, with 0 beyond its end, and counts the alternatives of each choice."""

    __slots__ = ("alternatives", "random_picks", "script")

    def __init__(self, script: tuple[int, ...] = ()) -> None:
        self.script = script
        self.alternatives: list[int] = []
        self.random_picks: set[tuple[str, str]] = set()
        """(container, resource) pairs for which the kubelet had more devices to pick from than it needed."""

    def split(self, count: int, sizes: Sequence[int], budget: Budget = UNLIMITED) -> tuple[int, ...]:
        """How many to take from each kind, *count* in all; *sizes* is what each kind has, together more than that."""
        if len(sizes) == 1:
            return (count,)
        position = len(self.alternatives)
        wanted = self.script[position] if position < len(self.script) else 0
        budget.spend(len(sizes))
        chosen = split = first_split(count, sizes)
        found = 1
        while found < MAX_ALTERNATIVES:
            budget.spend(len(sizes))
            following = next_split(split, sizes)
            if following is None:
                break
            split = following
            if found == wanted:
                chosen = split
            found += 1
        assert wanted < found, "a script names a choice that does not exist"
        self.alternatives.append(found)
        return tuple(chosen)


def first_split(count: int, sizes: Sequence[int]) -> list[int]:
    """Takes *count* from kinds of the given sizes, as many as possible from the first ones."""
    split = []
    for size in sizes:
        split.append(min(count, size))
        count -= split[-1]
    return split


def next_split(split: Sequence[int], sizes: Sequence[int]) -> list[int] | None:
    """The next split after *split* if the first kinds give as many as possible. None after the last one.

    It takes one fewer from the last kind whose followers have room for one more, and fills these up from the left.
    """
    room = moved = 0
    for position in range(len(sizes) - 1, -1, -1):
        if room and split[position]:
            rest = first_split(moved + 1, sizes[position + 1 :])
            return [*split[:position], split[position] - 1, *rest]
        room += sizes[position] - split[position]
        moved += split[position]
    return None
