"""The limits on the work of one replay, and on what is kept of replays.

A node's report decides how large the sets are that a replay iterates over, so every loop over them counts its steps. A
replay that has used up its steps, or has reached its deadline, ends with a verdict that says so.

Rules of this file
- No clock here: the caller passes a function that says whether the time is over. It is called once in `LOOK_EVERY`
  steps.
- Steps are counted in the same way on every machine: the same replay always ends at the same step. Only a verdict that
  ended because of steps may be cached. One that ended because of time says nothing about the node.
- The limit is far above what a real machine needs: see docs/decisions.md for the counts.
- Results are kept because many nodes and pods are alike, bounded in bytes whatever is reported or written. Large values
  are kept by those who use them, never by a cache: `Shared` gives equal users one object. A cache that is limited by
  count keeps only small results (`remembered`).
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from math import inf
from typing import Final, Generic, TypeVar, TypeVarTuple
from weakref import WeakValueDictionary

from extender.kubelet.errors import OutOfStepsError, OutOfTimeError

MAX_STEPS: Final = 5_000_000
"""Steps of one admission and its alternatives, up to `REPLAYS` replays; about a microsecond each.

The most that a recorded admission takes is 181,000, and 3 of 14,981 take more than 100,000 (docs/decisions.md)."""

REPLAYS: Final = 64
"""Replays that share `MAX_STEPS`. A caller that allows more of them gets more steps, see `for_replays`."""

LOOK_EVERY: Final = 2_000
"""Steps between two checks of the deadline: about a millisecond."""


class Budget:
    """Counts the steps of one replay.

    *out_of_time* says whether the caller's deadline has passed; it must be cheap and have no effects.
    """

    __slots__ = ("_left", "_look_at", "_out_of_time", "steps")

    def __init__(self, steps: float = MAX_STEPS, out_of_time: Callable[[], bool] = lambda: False) -> None:
        self.steps = steps
        self._out_of_time = out_of_time
        self._left = steps
        self._look_at = steps - LOOK_EVERY if steps > LOOK_EVERY else 0

    @property
    def used(self) -> float:
        """Steps taken so far."""
        return self.steps - self._left

    @property
    def is_used_up(self) -> bool:
        """Whether more steps were needed than there were."""
        return self._left < 0

    def spend(self, steps: int = 1) -> None:
        """Count *steps* more.

        Raises:
            OutOfStepsError: there were fewer left.
            OutOfTimeError: the deadline has passed.
        """
        self._left = left = self._left - steps
        if left < self._look_at:
            self._look()

    def _look(self) -> None:
        if self._left < 0:
            raise OutOfStepsError(self.steps)
        if self._out_of_time():
            raise OutOfTimeError
        self._look_at = self._left - LOOK_EVERY if self._left > LOOK_EVERY else 0


def for_replays(replays: int) -> Budget:
    """The budget for this many replays: `MAX_STEPS` for each `REPLAYS` of them, and no deadline."""
    return Budget(MAX_STEPS if replays <= REPLAYS else MAX_STEPS * (replays // REPLAYS))


UNLIMITED: Final = Budget(inf)
"""For parts of the replay that are used alone. `admit` and `start` always have a limit."""


Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Shared(Generic[K, V]):
    """One object for each key, which lives as long as something else refers to it.

    Any thread may call it. If two threads call `of` with a new key at the same time, both may call *make*, and both get
    the same object.
    """

    def __init__(self) -> None:
        self._known: Final[WeakValueDictionary[K, V]] = WeakValueDictionary()

    def get(self, key: K) -> V | None:
        """The object of the key; None if nothing refers to one."""
        return self._known.get(key)

    def of(self, key: K, make: Callable[[], V]) -> V:
        """The object of the key; if there is none, the one that *make* returns."""
        found = self._known.get(key)
        return self._known.setdefault(key, make()) if found is None else found


def remembered(
    small: int, large: int, is_large: Callable[[*Arguments], bool]
) -> Callable[[Callable[[*Arguments], T]], Callable[[*Arguments], T]]:
    """A decorator: the function remembers its last *small* results, and *large* ones of arguments that are large."""

    def wrap(function: Callable[[*Arguments], T]) -> Callable[[*Arguments], T]:
        of_small, of_large = lru_cache(small)(function), lru_cache(large)(function)

        @wraps(function)
        def call(*args: *Arguments) -> T:
            return (of_large if is_large(*args) else of_small)(*args)

        return call

    return wrap
