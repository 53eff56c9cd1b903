"""For all tests: exporters are played on loopback, which by default may not report (`tests/security` tests that)."""

import os

os.environ.setdefault("NUMA_EXTENDER_LOOPBACK_SCOPES", '["schedule", "read", "metrics", "report"]')
