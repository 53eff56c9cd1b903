"""For all tests: how hypothesis draws, and what exporters on loopback may do.

Locally each run draws examples of its own, so that many runs see much. In CI (the environment has `CI=true`) the same
tests always draw the same examples: a failure there can be repeated, and a rare draw cannot stop a change that did not
cause it. `pytest --hypothesis-profile=ci` or `=local` chooses by hand. No example has a time limit: machines differ.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# By default a client on loopback may not report; tests play exporters there. `tests/security` tests the default.
os.environ.setdefault("NUMA_EXTENDER_LOOPBACK_SCOPES", '["schedule", "read", "metrics", "report"]')
