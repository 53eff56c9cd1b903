"""Examines wrong predictions in the background: which rule of the replay explains each."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from extender.api.service import Service
from extender.runtime import running
from extender.scheduling.records.kubelet_rules import agreeing_rules
from extender.scheduling.records.predictions import agrees

LOG: Final = logging.getLogger(__name__)


@asynccontextmanager
async def examining(service: Service) -> AsyncIterator[None]:
    """Examines wrong predictions one after another, off the event loop, while the context lasts."""
    wake = asyncio.Event()
    behaviours = service.audit.behaviours
    behaviours.wake = wake.set
    if behaviours.waiting:
        wake.set()
    async with running(_examine(service, wake)):
        yield


async def _examine(service: Service, wake: asyncio.Event) -> None:
    while True:
        await wake.wait()
        wake.clear()
        await examine_waiting(service)


async def examine_waiting(service: Service) -> None:
    """Examine every waiting disagreement. If the examination fails, no rule explains it."""
    waiting = service.audit.behaviours.waiting
    while waiting:
        settled = waiting.popleft()
        try:
            agreeing = await service.offload(agreeing_rules, settled, agrees)
        except Exception:
            LOG.exception("disagreement not examined node=%s pod=%s", settled.node_name, settled.pod.uid)
            agreeing = []
        for behaviour in service.audit.examined(settled, agreeing):
            LOG.warning("kubelet behaves as with %s node=%s", behaviour.setting, behaviour.node_name)
