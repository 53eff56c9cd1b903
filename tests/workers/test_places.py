"""Places for questions, and who is served next."""

import asyncio
import contextlib
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.questions.asked import BusyError
from extender.workers.places import WorkerSlots


def _places(places: int, waiting: int = 8, wait_seconds: float = 30.0) -> WorkerSlots:
    return WorkerSlots(places, max_waiting=waiting, wait_seconds=wait_seconds, changed=lambda: None)


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class Holder:
    """Holds places until it is let go."""

    def __init__(self, places: WorkerSlots) -> None:
        self._places = places
        self.working: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.tasks: list[asyncio.Task[None]] = []
        self.order: list[str] = []

    async def ask(self, caller: str) -> asyncio.Event:
        done = asyncio.Event()

        async def hold() -> None:
            try:
                async with self._places.place(caller):
                    self.working[caller] += 1
                    self.order.append(caller)
                    try:
                        await done.wait()
                    finally:
                        self.working[caller] -= 1
            except BusyError:
                self.refused[caller] += 1

        self.tasks.append(asyncio.create_task(hold()))
        await _settle()
        return done


def test_one_caller_never_holds_the_last_place() -> None:
    async def story() -> None:
        holder = Holder(_places(3))
        for _ in range(5):
            await holder.ask("greedy")
        assert holder.working["greedy"] == 2
        await holder.ask("other")
        assert holder.working["other"] == 1
        for task in holder.tasks:
            task.cancel()

    asyncio.run(story())


def test_with_a_single_place_callers_take_turns() -> None:
    async def story() -> None:
        holder = Holder(_places(1))
        ends = [await holder.ask(caller) for caller in "aaabc"]
        for _ in range(5):
            for end in ends:
                end.set()
            await _settle()
        assert holder.order == ["a", "a", "b", "c", "a"]

    asyncio.run(story())


def test_a_full_queue_refuses_the_caller_that_fills_it() -> None:
    async def story() -> None:
        holder = Holder(_places(1, waiting=3))
        for _ in range(5):
            await holder.ask("greedy")
        assert holder.refused == {"greedy": 1}
        await holder.ask("other")
        assert holder.refused == {"greedy": 2}, "the last one in the longest queue makes room"
        await holder.ask("third")
        await holder.ask("fourth")
        assert holder.refused == {"greedy": 3, "fourth": 1}, "everybody has one that waits"
        for task in holder.tasks:
            task.cancel()

    asyncio.run(story())


def test_who_waits_too_long_is_told_so() -> None:
    async def story() -> None:
        places = _places(1, wait_seconds=0.01)
        async with places.place("a"):
            with pytest.raises(BusyError, match="no worker was free") as raised:
                async with places.place("b"):
                    pass
            assert raised.value.outcome == "queue_time"
            assert (places.working, places.waiting) == (1, 0)

    asyncio.run(story())


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_nothing_is_lost_whatever_comes_and_goes(seed: int, count: int, waiting: int) -> None:
    """Random arrivals, ends and cancellations: the bounds always hold, and in the end every place is free."""

    async def story() -> None:
        chance = random.Random(seed)
        places = _places(count, waiting=waiting)
        holder = Holder(places)
        ends: list[asyncio.Event] = []
        for _ in range(80):
            step = chance.random()
            if step < 0.5:
                ends.append(await holder.ask(chance.choice("abc")))
            elif step < 0.8 and ends:
                ends.pop(chance.randrange(len(ends))).set()
            elif holder.tasks:
                chance.choice(holder.tasks).cancel()
            if chance.random() < 0.5:
                await _settle()
            assert places.working <= count
            assert places.waiting <= waiting
            assert max(holder.working.values(), default=0) <= max(1, count - 1)
        await _settle()
        assert places.working == holder.working.total()
        for end in ends:
            end.set()
        for task in holder.tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*holder.tasks, return_exceptions=True)
        assert (places.working, places.waiting) == (0, 0)

    asyncio.run(story())
