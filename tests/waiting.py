"""Waiting for what another thread or process does."""

import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 180.0
"""After this time a test gives up. It is far more than any step takes, also on a slow machine that does other work."""

PATIENT: dict[str, Any] = {
    "filter_seconds": 60.0, "question_seconds": 600.0, "answer_seconds": 1200.0, "stale_after_seconds": 86_400.0,
}  # fmt: skip
"""Settings of an extender whose answers are complete also on a slow machine, and whose nodes do not become stale."""


def until(condition: Callable[[], object], what: str = "it") -> float:
    """Wait until the condition holds; fails after `PATIENCE_SECONDS`. Returns how many seconds it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < PATIENCE_SECONDS, f"{what} did not happen within {PATIENCE_SECONDS:g} s"
        time.sleep(0.01)
    return time.monotonic() - began
