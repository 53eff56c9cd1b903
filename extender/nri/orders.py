"""All orders in which the plugin may take a list of containers.

The plugin walks Go maps when it restarts and when its configuration changes, so their order is random. Orders that lead
to the same state are followed once.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError

S = TypeVar("S")

MAX_RESULTS: Final = 64
"""Limit on the results of one search."""
MAX_PLACEMENTS: Final = 1_000
"""Limit on containers that one search places: half a second of work on machines with few pools."""
MAX_SEARCH_STEPS: Final = 500_000
"""Limit on the steps of one search: at most two seconds of work, also on large machines."""


@dataclass(frozen=True, slots=True)
class Results(Generic[S]):
    """The results of the orders, that of the given order first. `complete`: False if the search was stopped early.

    A search that was stopped early may have no result.
    """

    states: tuple[S, ...]
    complete: bool


def explore(
    start: S,
    ids: Sequence[str],
    step: Callable[[S, str], S | None],
    key: Callable[[S], Hashable],
    *,
    budget: Budget,
    is_over: Callable[[S], bool] = lambda _state: False,
) -> Results[S]:
    """Apply *step* for each of *ids* to *start*, in every order; the given order is followed first.

    *step* returns a new state, or None if that order is not needed; it may raise BudgetError. States with equal
    *key* and the same ids left have the same results. *is_over*: whether an order ends early at a state. Results with
    equal *key* count once.
    """
    results: dict[Hashable, S] = {}
    seen: set[Hashable] = set()
    placements = 0

    def followed(state: S, left: tuple[str, ...]) -> Iterator[tuple[S, tuple[str, ...]]]:
        nonlocal placements
        for position, id_ in enumerate(left):
            if placements == MAX_PLACEMENTS:
                raise BudgetError
            placements += 1
            budget.spend(len(ids))
            after = step(state, id_)
            if after is None:
                continue
            rest = left[:position] + left[position + 1 :]
            place = (frozenset(rest), key(after))
            if place not in seen:
                seen.add(place)
                yield after, rest

    under_way = [iter([(start, tuple(ids))])]
    try:
        while under_way:
            found = next(under_way[-1], None)
            if found is None:
                under_way.pop()
                continue
            state, left = found
            if left and not is_over(state):
                under_way.append(followed(state, left))
                continue
            if len(results) == MAX_RESULTS and key(state) not in results:
                return Results(tuple(results.values()), complete=False)
            results.setdefault(key(state), state)
    except BudgetError:
        return Results(tuple(results.values()), complete=False)
    return Results(tuple(results.values()), complete=True)
