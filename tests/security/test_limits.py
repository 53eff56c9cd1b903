"""Rates and bounds: by hand with a clock of their own, then at the gate."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.api.access.limits import PER_CALLER, BodyBudget, LimitError, Limits, Rates
from extender.config.settings import Settings
from extender.identity import AccessScope
from tests.fakes.apiserver import FakeApiServer
from tests.security.running import Files, Running, bearer, running
from tests.world.clock import Clock


def test_a_burst_and_then_the_rate() -> None:
    clock = Clock(0.0)
    rates = Rates(2.0, clock)

    assert [rates.take("a") for _ in range(21)] == [0.0] * 20 + [0.5]
    clock.now += 0.5
    assert rates.take("a") == 0.0
    assert rates.take("a") == 0.5
    assert rates.take("b") == 0.0


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 2)), max_size=200), st.floats(0.1, 50))
@settings(max_examples=100, deadline=None)
def test_nobody_gets_more_than_burst_and_rate(steps: list[tuple[int, float]], rate: float) -> None:
    clock = Clock(0.0)
    rates = Rates(rate, clock)
    taken = dict.fromkeys(range(4), 0)
    for caller, pause in steps:
        clock.now += pause
        taken[caller] += rates.take(str(caller)) == 0.0

    assert max(taken.values()) <= max(1.0, rate * 10) + clock.now * rate + 1e-6


def test_memory_of_callers_is_bounded() -> None:
    rates = Rates(1.0, Clock(0.0), size=10)
    for i in range(1000):
        rates.take(str(i))

    assert len(rates) == 10


def test_the_body_budget_balances() -> None:
    budget = BodyBudget(10)
    budget.take(7)
    with pytest.raises(LimitError):
        budget.take(4)
    assert budget.held == 7
    budget.give_back(7)
    budget.take(10)


def test_places_are_given_back_whatever_happens() -> None:
    limits = Limits(Settings(max_questions_at_once=1), Clock(0.0))
    for _ in range(3):
        with contextlib.suppress(ZeroDivisionError), limits.place(AccessScope.READ):
            with pytest.raises(LimitError), limits.place(AccessScope.READ):
                pass
            raise ZeroDivisionError


def test_one_caller_cannot_take_all_places() -> None:
    limits = Limits(Settings(), Clock(0.0))
    with contextlib.ExitStack() as stack:
        for _ in range(PER_CALLER):
            stack.enter_context(limits.place(AccessScope.REPORT, "a"))
        with pytest.raises(LimitError, match="4 requests of a are in progress"):
            stack.enter_context(limits.place(AccessScope.REPORT, "a"))
        stack.enter_context(limits.place(AccessScope.REPORT, "b"))
        stack.enter_context(limits.place(AccessScope.READ, "a"))
    assert len(limits._by_caller) == 0


def test_callers_that_cannot_be_told_apart_leave_places_to_the_others() -> None:
    limits = Limits(Settings(max_questions_at_once=16), Clock(0.0))
    with contextlib.ExitStack() as stack:
        for _ in range(16 - PER_CALLER):
            stack.enter_context(limits.place(AccessScope.READ))
        with pytest.raises(LimitError, match="12 requests of callers on loopback are in progress"):
            stack.enter_context(limits.place(AccessScope.READ))
        for _ in range(PER_CALLER):
            stack.enter_context(limits.place(AccessScope.READ, "a"))
    assert len(limits._by_caller) == 0


def test_the_scheduler_has_bodies_of_its_own() -> None:
    limits = Limits(Settings(max_buffered_bytes=1 << 20), Clock(0.0))
    limits.bodies[AccessScope.REPORT].take(1 << 20)

    limits.bodies[AccessScope.SCHEDULE].take(1 << 20)
    with pytest.raises(LimitError):
        limits.bodies[AccessScope.READ].take(1)


def test_who_asks_too_often_is_told_when_to_come_back(files: Files, api_server: FakeApiServer) -> None:
    with running(Settings(port=0, drain_seconds=0, read_rate=0.01, **files.settings), api_server) as service:
        replies = [service.call("GET", "/v1/nodes", context=files.client(), headers=bearer("reader")) for _ in range(3)]
        other = service.call("GET", "/v1/nodes", context=files.client(), headers=bearer("only-read"))

    assert [reply.status_code for reply in replies] == [200, 429, 429]
    assert 50 <= int(replies[-1].headers["retry-after"]) <= 100
    assert other.status_code == 200


def test_who_proves_nothing_too_often_is_not_asked_about(files: Files, api_server: FakeApiServer) -> None:
    with running(Settings(port=0, drain_seconds=0, refused_rate=0.01, **files.settings), api_server) as service:
        assert status_of(service, files, "reader") == 200
        before = reviews(api_server)
        statuses = [status_of(service, files, f"bad-{i}") for i in range(3)]
        assert statuses == [401, 429, 429]
        assert reviews(api_server) == before + 1
        assert status_of(service, files, "reader") == 200, "known already, whatever its neighbours at the address do"


def status_of(service: Running, files: Files, token: str) -> int:
    return service.call("GET", "/v1/nodes", context=files.client(), headers=bearer(token)).status_code


def reviews(server: FakeApiServer) -> int:
    return sum(count for call, count in server.access.calls.items() if call.resource.endswith("tokenreviews"))


def test_the_scheduler_over_the_bound_is_answered_in_its_own_form() -> None:
    with running(Settings(port=0, drain_seconds=0, max_scheduler_calls=2)) as service:
        limits = service.app.state.limits
        with limits.place(AccessScope.SCHEDULE), limits.place(AccessScope.SCHEDULE):
            reply = service.call("POST", "/scheduler/filter", content=b"{}")
        again = service.call("POST", "/scheduler/filter", content=b"{}")

    assert reply.status_code == 200
    assert reply.json()["Error"] == "numa-extender: 2 requests of this kind are in progress"
    assert "in progress" not in again.json()["Error"]


@pytest.mark.parametrize("verb", ["preempt", "prioritize"])
def test_a_verb_without_a_place_for_an_error_has_a_status_over_the_bound(verb: str) -> None:
    with running(Settings(port=0, drain_seconds=0, max_scheduler_calls=2)) as service:
        limits = service.app.state.limits
        with limits.place(AccessScope.SCHEDULE), limits.place(AccessScope.SCHEDULE):
            assert service.call("POST", f"/scheduler/{verb}", content=b"{}").status_code == 429
