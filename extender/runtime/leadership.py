"""What a service does of its own accord where there is an API server: leads or stands by, wakes pods, proves tokens.

Laws of this file
- A standby is warm: its watches run. It passes the scheduler's calls on to the leader (`forwarding.py`), and answers
  filter and prioritize itself when the leader does not. It binds nothing and touches nothing.
- Leadership is checked at the last moment before a binding is sent, and must last for the whole time that the binding
  may take (`Settings.binding_seconds`). It ends at two thirds of `lease_seconds`, before anybody else's can begin, so
  no call of a former leader is under way when the next one starts, also if clocks differ in speed by up to a half.
- Nothing is handed over: the new leader has what it needs from the pods' watch and the reports. What the old one had
  bound is in the API server; what it had not is asked again by the scheduler.
"""

import asyncio
import contextlib
import logging
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from extender.api.service import Service
from extender.config.settings import Settings
from extender.kube.access import Access, discover
from extender.kube.client import KubeClient
from extender.kube.leases import Elector, LeaseSettings
from extender.kube.node_annotations import NodeToucher
from extender.runtime.forwarding import Leader
from extender.runtime.requeue import Requeuer
from extender.runtime.server import make_authority
from extender.scheduling.bind import AGAIN, BindOutcome, Binds, Unbound

LOG: Final = logging.getLogger(__name__)
BINDS_AT_ONCE: Final = 16
"""As many as `AsyncBinder` has threads."""


class LeaderBinds:
    """`Binds` for the leader only: of a standby every call is refused and nothing is sent.

    *bind_seconds*: the longest that one of *binds* takes to send a binding.

    No more calls are let through than *binds* makes at once: a call that waited behind others could be sent when the
    leadership that it was let through with is over.
    """

    def __init__(self, binds: Binds, elector: Elector, bind_seconds: float, *, at_once: int = BINDS_AT_ONCE) -> None:
        self._binds, self._elector, self._seconds = binds, elector, bind_seconds
        self._places = asyncio.Semaphore(at_once)

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> BindOutcome:
        """See `Binds`."""
        async with self._places:
            if not self._elector.leads:
                holder = self._elector.holder or "nobody yet"
                return Unbound(f"this extender stands by, {holder} leads; {AGAIN}", "standby")
            if not self._elector.leads_for(self._seconds):
                return Unbound(f"the lease is not renewed: the API server does not answer in time; {AGAIN}", "standby")
            return await self._binds.bind(namespace, name, uid, node_name)


def lease_settings(settings: Settings) -> LeaseSettings:
    """The times of the lease; the identity is another one for each process.

    Two thirds, as in client-go (10 s of 15 s). A tenth: a standby sees the last renewal late by that much.
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
async def on_duty(service: Service, access: Access | None = None) -> AsyncIterator[None]:
    """The duties, for as long as the context lasts. Inside of `live.connected`, whose binder it puts behind the lease.

    Raises:
        AccessError: there is no way to the API server.
    """
    settings = service.settings
    client = KubeClient(access or discover(settings.kubeconfig))
    authority = make_authority(client, settings, service.metrics, service.clock)
    service.authority.use(authority)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(client.close)
        stack.callback(authority.close)
        can_write = _lead(service, client, stack)
        if settings.wake_up:
            requeue = asyncio.create_task(Requeuer(service, NodeToucher(client), can_write).run())
            stack.push_async_callback(_cancelled, requeue)
        yield


def _lead(service: Service, client: KubeClient, stack: contextlib.AsyncExitStack) -> Callable[[], bool]:
    """Stand for election if set so; returns whether we may write."""
    if service.settings.lease == "off":
        return lambda: True
    elector = Elector(client, lease_settings(service.settings))
    service.metrics.leader.set_function(lambda: float(elector.leads))
    service.lifecycle.leads = lambda: elector.leads
    if service.link.binder is not None:
        service.link.binder = LeaderBinds(service.link.binder, elector, service.settings.binding_seconds)
    if service.settings.own_url:
        leader = Leader(service.settings, lambda: elector.leader_url, service.clock)
        service.lifecycle.leader = leader
        stack.callback(leader.close)
    elector.start()
    stack.push_async_callback(asyncio.to_thread, elector.stop)
    return lambda: elector.leads


async def _cancelled(task: "asyncio.Task[None]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
