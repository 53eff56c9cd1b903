"""The lease: which of several extenders may write.

Rules of this file
- A standby runs its watches. It forwards the scheduler's calls to the leader (`forwarding.py`), and answers
  filter and prioritize itself if the leader does not answer. It binds no pod and annotates no node.
- A write is sent only if the leadership lasts for the whole time that the write may take. Leadership ends at two thirds
  of `lease_seconds`, before any other extender can begin to lead. So no call of a former leader is in progress when the
  next one starts, even if their clocks differ in speed by half.
- Nothing is handed over. The new leader has its state from the watches and the reports. The bindings of the old leader
  are in the API server, and the scheduler repeats calls that got no answer.
- At shutdown the lease is released last, after the bindings in progress have ended.
"""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from extender.config.settings import Settings
from extender.kube.client import KubeClient
from extender.kube.leases import Elector, LeaseSettings
from extender.observability.lifecycle import Lifecycle
from extender.observability.metrics import Metrics
from extender.runtime.forwarding import Leader
from extender.scheduling.binder import Leadership, Unelected


def lease_settings(settings: Settings) -> LeaseSettings:
    """The durations of the lease, and an identity of this process.

    Renewal gets two thirds of the duration, as in client-go (10 s of 15 s). The time between two retries is a tenth of
    it. A standby sees the last renewal that much later.
    """
    return LeaseSettings(
        namespace=settings.lease_namespace,
        name=settings.lease_name,
        identity=f"{socket.gethostname()}_{uuid.uuid4()}",
        duration_seconds=settings.lease_seconds,
        renew_seconds=settings.lease_seconds * 2 / 3,
        retry_seconds=settings.lease_seconds / 10,
        url=settings.own_url,
    )


@asynccontextmanager
async def leadership(
    client: KubeClient, settings: Settings, lifecycle: Lifecycle, metrics: Metrics, clock: Callable[[], float]
) -> AsyncIterator[Leadership]:
    """The leadership by the settings, while the context lasts: an `Elector` with `lease: on`."""
    if settings.lease == "off":
        yield Unelected()
        return
    elector = Elector(client, lease_settings(settings))
    metrics.leader.set_function(lambda: float(elector.leads))
    lifecycle.leads = lambda: elector.leads
    async with contextlib.AsyncExitStack() as stack:
        if settings.own_url:
            lifecycle.leader = leader = Leader(settings, lambda: elector.leader_url, clock)
            stack.callback(leader.close)
        elector.start()
        stack.push_async_callback(asyncio.to_thread, elector.stop)
        yield elector
