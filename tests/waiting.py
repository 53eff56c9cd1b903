"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable

PATIENCE_SECONDS = 180.0
"""After this time a test gives up. It is far more than any step takes, also on a slow machine that does other work."""

A_DAY = 86_400.0
"""For `stale_after_seconds`, where a report is sent once for many tests: they may take longer than it stays fresh."""


def until(condition: Callable[[], object], what: str = "it") -> float:
    """Wait until the condition holds; fails after `PATIENCE_SECONDS`. Returns how many seconds it took.

    It looks every 10 ms at first, and less often the longer it waits: a look may be a call over HTTP.
    """
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < PATIENCE_SECONDS, f"{what} did not happen within {PATIENCE_SECONDS:g} s"
        time.sleep(min(0.1, max(0.01, waited / 20)))
    return time.monotonic() - began
