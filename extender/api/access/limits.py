"""Limits on requests: for each caller, and for all callers together. At most `MAX_CALLERS` callers are tracked.

Rules of this file
- The scheduler has no rate limit. Its concurrent calls are limited, because each of them holds memory. A call over that
  limit is answered in the scheduler's own format.
- Callers on loopback have no rate limit: they cannot be told apart, and one of them is the scheduler.
- A limit is checked before anything is read or computed, and costs one dictionary lookup.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from extender.bounded import BoundedMap
from extender.config.settings import Settings
from extender.identity import AccessScope

MAX_CALLERS: Final = 20_000
PER_CALLER: Final = 4
"""Concurrent requests of one caller, so that a slow caller does not take all places."""
BURST: Final = 10.0
"""A bucket holds the requests of this many seconds."""


class LimitError(Exception):
    """A limit is exceeded. `limit` is its label in the metric `limited`. `retry_after_seconds`: when to try again."""

    def __init__(self, limit: str, reason: str, retry_after_seconds: float) -> None:
        super().__init__(reason)
        self.limit: Final = limit
        self.retry_after_seconds: Final = max(1, math.ceil(retry_after_seconds))


class Rates:
    """Token buckets by caller. *rate*: requests a second; *clock*: monotonic seconds."""

    def __init__(self, rate: float, clock: Callable[[], float], *, size: int = MAX_CALLERS) -> None:
        self._rate, self._clock = rate, clock
        self._buckets: BoundedMap[str, tuple[float, float]] = BoundedMap(size)

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, caller: str) -> float:
        """Count one request and return 0, or return the seconds until one more request is allowed."""
        wait = self.wait_seconds(caller)
        if not wait:
            self._buckets[caller] = (self._level(caller) - 1.0, self._clock())
        return wait

    def wait_seconds(self, caller: str) -> float:
        """As `take`, but nothing is counted."""
        return max(0.0, 1.0 - self._level(caller)) / self._rate

    def _level(self, caller: str) -> float:
        level, at = self._buckets.get(caller, (math.inf, 0.0))
        return min(max(1.0, self._rate * BURST), level + (self._clock() - at) * self._rate)


class BodyBudget:
    """Limits the bytes of request bodies in memory, over all requests."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self.held = 0

    def take(self, size: int) -> None:
        """Count *size* more bytes.

        Raises:
            LimitError: the budget has no room for them. Nothing was counted.
        """
        if self.held + size > self._max:
            raise LimitError("body", "too many request bodies are in memory", 1)
        self.held += size

    def give_back(self, size: int) -> None:
        """Return the bytes of a request that has ended."""
        self.held -= size


class Limits:
    """All limits of one service."""

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        others = BodyBudget(settings.max_buffered_bytes)
        self.bodies: Final = dict.fromkeys(AccessScope, others) | {
            AccessScope.SCHEDULE: BodyBudget(settings.max_buffered_bytes)
        }
        """The scheduler has a budget of its own, which reports and questions cannot use up."""
        self._rates: Final = {
            AccessScope.REPORT: Rates(settings.report_rate, clock),
            AccessScope.READ: Rates(settings.read_rate, clock),
            AccessScope.METRICS: Rates(settings.read_rate, clock),
        }
        self._refused: Final = Rates(settings.refused_rate, clock)
        self._at_once: Final = {
            AccessScope.SCHEDULE: settings.max_scheduler_calls,
            AccessScope.REPORT: settings.max_reports_at_once,
            AccessScope.READ: settings.max_questions_at_once,
            AccessScope.METRICS: settings.max_questions_at_once,
        }
        self._now: Final[Counter[AccessScope]] = Counter()
        self._by_caller: Final[Counter[tuple[AccessScope, str]]] = Counter()

    def check_rate(self, scope: AccessScope, caller: str) -> None:
        """Count one request of *caller*.

        Raises:
            LimitError: the caller sends requests too often.
        """
        rates = self._rates.get(scope)
        if rates is not None and (wait := rates.take(caller)):
            raise LimitError("rate", f"{caller} sends requests too often", wait)

    def check_refused(self, address: str) -> None:
        """Check that *address* has not failed to authenticate too often. `note_refused` counts the failures.

        Raises:
            LimitError: it failed too often.
        """
        if wait := self._refused.wait_seconds(address):
            raise LimitError("rate", "too many failed authentications", wait)

    def note_refused(self, address: str) -> None:
        """Count a failed authentication from *address*."""
        self._refused.take(address)

    @contextmanager
    def place(self, scope: AccessScope, caller: str = "") -> Iterator[None]:
        """Occupy one of the places for requests with *scope* while the context lasts.

        *caller* empty: the caller cannot be identified. Such callers leave `PER_CALLER` places to the others.

        Raises:
            LimitError: all places are taken, or this caller has as many as it may have.
        """
        key = (scope, caller)
        if self._now[scope] >= self._at_once[scope]:
            raise LimitError("concurrency", f"{self._at_once[scope]} requests of this kind are in progress", 1)
        most = PER_CALLER if caller else max(1, self._at_once[scope] - PER_CALLER)
        if scope is not AccessScope.SCHEDULE and self._by_caller[key] >= most:
            who = caller or "callers on loopback"
            raise LimitError("concurrency", f"{most} requests of {who} are in progress", 1)
        self._now[scope] += 1
        self._by_caller[key] += 1
        try:
            yield
        finally:
            self._now[scope] -= 1
            self._by_caller[key] -= 1
            if not self._by_caller[key]:
                del self._by_caller[key]
