"""All orders in which the plugin may take a list of containers.

The plugin walks Go maps when it restarts and when its configuration changes, so their order is random. Orders that lead
to the same state are followed once.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

S = TypeVar("S")

MAX_RESULTS: Final = 64
"""Results of one search; with more of them nobody can act on any."""
MAX_PLACEMENTS: Final = 1_000
"""Containers that one search places; about half a second of work."""


@dataclass(frozen=True, slots=True)
class Results(Generic[S]):
    """What the orders lead to, the given order's result first. `complete`: False where the search was cut short."""

    states: tuple[S, ...]
    complete: bool


def explore(
    start: S,
    ids: Sequence[str],
    step: Callable[[S, str], S | None],
    key: Callable[[S], Hashable],
    *,
    is_over: Callable[[S], bool] = lambda _state: False,
) -> Results[S]:
    """Apply *step* for each of *ids* to *start*, in every order.

    *step* makes a new state, or None where that order is of no interest. States with equal *key* and the same ids left
    have the same results. *is_over*: whether a state ends its order early. Results with equal *key* count once.
    """
    results: list[S] = []
    seen: set[Hashable] = set()
    stack = [(start, tuple(ids))]
    placements = 0
    while stack:
        state, left = stack.pop()
        if not left or is_over(state):
            end = ("end", key(state))
            if end not in seen:
                seen.add(end)
                results.append(state)
            if len(results) == MAX_RESULTS and stack:
                return Results(tuple(results), complete=False)
            continue
        following = []
        for position, id_ in enumerate(left):
            if placements == MAX_PLACEMENTS:
                return Results(tuple(results), complete=False)
            placements += 1
            after = step(state, id_)
            if after is None:
                continue
            rest = left[:position] + left[position + 1 :]
            place = (frozenset(rest), key(after))
            if place not in seen:
                seen.add(place)
                following.append((after, rest))
        stack += reversed(following)
    return Results(tuple(results), complete=True)
