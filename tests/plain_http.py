"""Calls over plain HTTP.

`httpx.get` makes a client for each call, and a client reads the certificates of all public authorities: 40 ms of CPU.
"""

from typing import Final

import httpx

from tests.waiting import PATIENCE_SECONDS

HTTP: Final = httpx.Client(
    trust_env=False, timeout=PATIENCE_SECONDS, verify=False, limits=httpx.Limits(max_keepalive_connections=0)
)
"""Each call has a connection of its own: the other side may be killed. Threads may share it."""
