"""Every order of a list is followed, equal states once, and within bounds."""

from collections.abc import Callable, Sequence
from itertools import permutations

from extender.kubelet.budget import MAX_STEPS, UNLIMITED, Budget
from extender.nri.admission import UnplacedContainer, place_pod
from extender.nri.objects import QoS
from extender.nri.orders import MAX_PLACEMENTS, MAX_RESULTS, MAX_SEARCH_STEPS, Results, explore
from extender.nri.reconfigure import restart
from tests.replay.nri.test_admission import node_of, pod_named


def append(state: str, id_: str) -> str:
    return state + id_


def search(
    ids: Sequence[str],
    step: Callable[[str, str], str | None],
    budget: Budget = UNLIMITED,
    is_over: Callable[[str], bool] = lambda _: False,
) -> Results[str]:
    return explore("", ids, step, lambda state: state, budget=budget, is_over=is_over)


def test_every_order_is_followed_and_the_given_one_comes_first() -> None:
    found = search("abcd", append)

    assert found.states[0] == "abcd"
    assert set(found.states) == {"".join(order) for order in permutations("abcd")}
    assert found.complete


def test_orders_that_lead_to_the_same_state_count_once() -> None:
    steps = []

    def step(state: frozenset[str], id_: str) -> frozenset[str]:
        steps.append(id_)
        return state | {id_}

    found = explore(frozenset[str](), "abcdefg", step, lambda state: state, budget=UNLIMITED)

    assert found.states == (frozenset("abcdefg"),)
    assert found.complete
    assert len(steps) == 7 * 2**6


def test_orders_of_no_interest_are_given_up() -> None:
    found = search("abc", lambda state, id_: state + id_ if id_ > state[-1:] else None)

    assert found.states == ("abc",)


def test_a_state_can_end_an_order_early() -> None:
    found = search("abc", append, is_over=lambda state: state.endswith("c"))

    assert set(found.states) == {"abc", "ac", "bac", "bc", "c"}


def test_a_search_that_is_cut_short_says_so() -> None:
    many_results = search("abcde", append)
    steps = []

    def reject(state: str, id_: str) -> str | None:
        steps.append(id_)
        return state + id_ if len(state) < 5 else None

    long = search("abcdefgh", reject)

    assert (len(many_results.states), many_results.complete) == (MAX_RESULTS, False)
    assert (len(steps), long.complete) == (MAX_PLACEMENTS, False)


def test_the_given_order_is_followed_to_its_end_first() -> None:
    """200 ids have 200 first steps; a search that took all of them before the second one would end without a result."""
    ids = [chr(1000 + i) for i in range(200)]

    found = search(ids, append)

    assert found.states[0] == "".join(ids)
    assert not found.complete


def test_all_orders_share_one_budget() -> None:
    found = search("abcdef", append, Budget(6 * 50))
    none = search("abcdef", append, Budget(5))

    assert 0 < len(found.states) < MAX_RESULTS
    assert not found.complete
    assert (none.states, none.complete) == ((), False)


def test_a_restart_with_many_containers_has_a_first_answer_within_its_steps() -> None:
    node = node_of()
    for number in range(60):
        pod, containers = pod_named(f"p{number}", QoS.BURSTABLE), [UnplacedContainer("app", cpu_request_milli=50)]
        node = place_pod(node, pod, containers, Budget(MAX_STEPS)).node
    budget = Budget(MAX_SEARCH_STEPS)

    found = restart(node, budget=budget)

    first, _ = found.states[0]
    assert first.books.grants.keys() == node.books.grants.keys()
    assert not found.complete
    assert budget.used < 1.01 * MAX_SEARCH_STEPS
