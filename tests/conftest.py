"""For all tests: how hypothesis draws, and settings that differ from their defaults.

Locally each run draws examples of its own, so that many runs see much. In CI (the environment has `CI=true`) the same
tests always draw the same examples: a failure there can be repeated, and a rare draw cannot stop a change that did not
cause it. `pytest --hypothesis-profile=ci` or `=local` chooses by hand. No example has a time limit: machines differ.

Python's cycle collector does not look at what importing and collecting has made: six thousand tests are 400 MB that
stay, and looking at them again and again was a seventh of all CPU time.

In a fresh clone one worker of `pytest -n` imports and collects before the others, which find all byte code made.
"""

import fcntl
import gc
import os
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# A client on loopback may report, because tests play exporters there; `tests/security` tests the default.
# Work that is bounded in time has more of it than on a cluster, so that a slow machine gives the same answers. A test
# of such a bound sets it itself.
SETTINGS = {
    "LOOPBACK_SCOPES": '["schedule", "read", "metrics", "report"]',
    "FILTER_SECONDS": "30",
    "PREEMPT_SECONDS": "30",
    "QUESTION_SECONDS": "240",
    "QUESTION_WAIT_SECONDS": "120",
    "ANSWER_SECONDS": "600",
}
for name, value in SETTINGS.items():
    os.environ.setdefault(f"NUMA_EXTENDER_{name}", value)

gc.disable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """The first worker holds the lock alone. Those that wait for it share it afterwards."""
    run = getattr(session.config, "workerinput", {}).get("testrunuid")
    if run is None or (Path(__file__).parent / "workers/__pycache__").exists():
        return (yield)
    with Path(tempfile.gettempdir(), f"numa-extender-{run}").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
        return (yield)


def pytest_collection_finish() -> None:
    """From here on the collector looks at what tests make, and at that less often than by default."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()
