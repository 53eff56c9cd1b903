"""How long to wait before trying again: full jitter, so that a thousand clients do not come back in step.

The wait is drawn uniformly from zero to a ceiling that doubles with each failure in a row. A Retry-After of the server
is a floor under it (with some jitter on top), itself capped so that no server can put us to sleep.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """`base_seconds`: the ceiling after the first failure. `cap_seconds`: the highest ceiling, also of Retry-After."""

    base_seconds: float = 0.5
    cap_seconds: float = 30.0

    def delay_seconds(
        self, failures: int, random: Callable[[], float], *, retry_after_seconds: float | None = None
    ) -> float:
        """The wait after *failures* failures in a row (0: none). *random*: uniform in [0, 1)."""
        if failures <= 0:
            return 0.0
        ceiling = min(self.cap_seconds, self.base_seconds * 2.0 ** min(failures - 1, 30))
        floor = min(retry_after_seconds or 0.0, self.cap_seconds)
        return floor + random() * ceiling
