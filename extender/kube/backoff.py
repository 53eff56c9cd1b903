"""The delay before a retry, with full jitter so that many clients do not retry at the same time.

The delay is drawn uniformly between zero and a ceiling that doubles with each consecutive failure. A Retry-After of the
server is added as a minimum. It is capped, so that a server cannot stop us for long.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """`base_seconds`: the ceiling after the first failure. `cap_seconds`: the highest ceiling, also for Retry-After."""

    base_seconds: float = 0.5
    cap_seconds: float = 30.0

    def delay_seconds(
        self, failures: int, random: Callable[[], float], *, retry_after_seconds: float | None = None
    ) -> float:
        """The delay after *failures* consecutive failures (0: none). *random*: uniform in [0, 1)."""
        if failures <= 0:
            return 0.0
        ceiling = min(self.cap_seconds, self.base_seconds * 2.0 ** min(failures - 1, 30))
        floor = min(retry_after_seconds or 0.0, self.cap_seconds)
        return floor + random() * ceiling
