"""The connection with the API server: watches in, bindings and leadership out.

One client serves watches, bindings, token reviews, the lease and the annotations.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from extender.api.service import Service
from extender.config.settings import Settings
from extender.kube.access import Access, discover
from extender.kube.binder import AsyncBinder, Binder
from extender.kube.client import KubeClient
from extender.kube.watch import WatchSettings
from extender.runtime import running
from extender.runtime.connection import ApiConnection
from extender.runtime.leadership import leadership
from extender.runtime.server import make_authority
from extender.scheduling.binder import GatedBinder, Leadership

LOG: Final = logging.getLogger(__name__)
IDLE_SHARE: Final = 0.8
"""Share of the silence that makes nodes stale. A quiet stream is reopened after it, to show that the server runs."""


def watch_settings(settings: Settings) -> WatchSettings:
    """The timeouts of the watches."""
    return WatchSettings(idle_seconds=min(120.0, IDLE_SHARE * settings.watch_silent_seconds))


@asynccontextmanager
async def connected(
    service: Service, access: Access | None = None, settings: WatchSettings | None = None
) -> AsyncIterator[None]:
    """Runs everything that needs the API server while the context lasts.

    Each part gets the parts that it depends on as arguments. So a binder needs a leadership, and a leadership needs a
    client.

    Raises:
        ClientConfigError: there is no usable configuration for the API server.
    """
    access = access or discover(service.settings.kubeconfig)
    if access.configuration.host.startswith("https:") and not access.configuration.verify_ssl:
        LOG.warning(
            "the API server's certificate is not verified (insecure-skip-tls-verify): anyone on the network path "
            "can read the token and answer in its place; set its CA in the kubeconfig"
        )
    async with AsyncExitStack() as stack:
        client = KubeClient(access)
        stack.callback(client.close)
        authority = make_authority(client, service.settings, service.metrics, service.clock)
        stack.callback(authority.close)
        service.authority.use(authority)
        leads = await stack.enter_async_context(
            leadership(client, service.settings, service.lifecycle, service.metrics, service.clock)
        )
        await stack.enter_async_context(_binding(service, client, leads))
        connection = ApiConnection(service, client, settings or watch_settings(service.settings), lambda: leads.leads)
        await stack.enter_async_context(_watching(connection))
        for work in connection.tasks:
            await stack.enter_async_context(running(work()))
        yield


@asynccontextmanager
async def _binding(service: Service, client: KubeClient, leads: Leadership) -> AsyncIterator[None]:
    """Writes bindings while this process leads. At the end it waits for bindings in progress."""
    seconds = service.settings.binding_seconds
    calls = AsyncBinder(Binder(client, timeout_seconds=seconds), clock=service.clock)
    service.known.link.binder = GatedBinder(calls, leads, seconds=seconds)
    try:
        yield
    finally:
        service.known.link.binder = None
        await asyncio.to_thread(calls.close)


@asynccontextmanager
async def _watching(connection: ApiConnection) -> AsyncIterator[None]:
    """Runs the watches and checks their health."""
    connection.start()
    try:
        async with running(connection.keep_checking()):
            yield
    finally:
        await connection.stop()
