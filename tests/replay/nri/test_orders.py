"""Every order of a list is followed, equal states once, and within bounds."""

from itertools import permutations

from extender.replay.nri.orders import MAX_PLACEMENTS, MAX_RESULTS, explore


def test_every_order_is_followed_and_the_given_one_comes_first() -> None:
    found = explore("", "abcd", lambda state, id_: state + id_, lambda state: state)

    assert found.states[0] == "abcd"
    assert set(found.states) == {"".join(order) for order in permutations("abcd")}
    assert found.complete


def test_orders_that_lead_to_the_same_state_count_once() -> None:
    steps = []

    def step(state: frozenset[str], id_: str) -> frozenset[str]:
        steps.append(id_)
        return state | {id_}

    found = explore(frozenset[str](), "abcdefg", step, lambda state: state)

    assert found.states == (frozenset("abcdefg"),)
    assert found.complete
    assert len(steps) == 7 * 2**6


def test_orders_of_no_interest_are_given_up() -> None:
    found = explore("", "abc", lambda state, id_: state + id_ if id_ > state[-1:] else None, lambda state: state)

    assert found.states == ("abc",)


def test_a_state_can_end_an_order_early() -> None:
    found = explore("", "abc", lambda state, id_: state + id_, lambda state: state, is_over=lambda s: s.endswith("c"))

    assert set(found.states) == {"abc", "ac", "bac", "bc", "c"}


def test_a_search_that_is_cut_short_says_so() -> None:
    many_results = explore("", "abcde", lambda state, id_: state + id_, lambda state: state)
    steps = []

    def reject(state: str, id_: str) -> str | None:
        steps.append(id_)
        return state + id_ if len(state) < 5 else None

    long = explore("", "abcdefgh", reject, lambda state: state)

    assert (len(many_results.states), many_results.complete) == (MAX_RESULTS, False)
    assert (len(steps), long.complete) == (MAX_PLACEMENTS, False)
