"""Watches the event loop from another thread: how late it is, and for which node or pod it works meanwhile.

Rules of this file
- What one node or pod costs the event loop is limited in counted steps (`cluster.steps`). The watchdog is for
  what was not foreseen.
- The event loop notes every `PERIOD_SECONDS` that it is alive. If it is late, the thread looks at what it does: the
  names come from the values of its functions. A node is the cause if it is found both after half of `LATE_SECONDS` and
  at their end. Otherwise another process may have made the event loop late.
- Such a node is left out: what it changes to next is computed beside the event loop.
"""

import asyncio
import contextlib
import logging
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from types import FrameType
from typing import Final, NamedTuple

from extender.api.service import Service
from extender.cluster.node import NodeRecord, Observation
from extender.cluster.pod_tracker import PodTracker
from extender.replay.pod import Pod
from extender.runtime import running

LOG: Final = logging.getLogger(__name__)
PERIOD_SECONDS: Final = 0.1
LATE_SECONDS: Final = 0.5


class Blamed(NamedTuple):
    """The node and the pod that the event loop works for, "" if there is none. `place`: the function, for people."""

    node: str
    pod: str
    place: str


class _Watchdog:
    """Runs from `start` to `stop`, on the event loop's thread and on one of its own."""

    def __init__(self, service: Service) -> None:
        self._service: Final = service
        self._loop: Final = asyncio.get_running_loop()
        self._watched: Final = threading.get_ident()
        self._alive_at = self._loop.time()
        self._blamed: Blamed | None = None
        self._stopped: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    async def beat(self) -> None:
        """Note that the event loop is alive, again and again."""
        self._thread.start()
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            late = max(0.0, self._loop.time() - self._alive_at - PERIOD_SECONDS)
            self._service.metrics.loop_lag.observe(late)
            self._alive_at = self._loop.time()
            if (blamed := self._blamed) is not None:
                self._blamed = None
                self._note(blamed, late)

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()

    def _watch(self) -> None:
        seen, first = 0.0, ""
        while not self._stopped.wait(PERIOD_SECONDS):
            alive_at = self._alive_at
            late = self._loop.time() - alive_at - PERIOD_SECONDS
            if alive_at == seen or late < LATE_SECONDS / 2:
                continue
            found = blamed_by(sys._current_frames().get(self._watched))  # noqa: SLF001 - documented, for such watchdogs
            if late < LATE_SECONDS:
                first = found.node
                continue
            seen = alive_at
            self._blamed = found if found.node == first else found._replace(node="")

    def _note(self, blamed: Blamed, late: float) -> None:
        kind = "node" if blamed.node else "pod" if blamed.pod else "other"
        self._service.metrics.loop_blocked.labels(kind).inc()
        level = logging.INFO if kind == "other" else logging.WARNING  # other programs can be the cause
        LOG.log(level, "event loop late seconds=%.1f node=%s pod=%s at=%s", late, blamed.node, blamed.pod, blamed.place)
        if blamed.node:
            self._service.known.nodes.pods_of(blamed.node).projection.leave_out()


@asynccontextmanager
async def watched(service: Service) -> AsyncIterator[None]:
    """The event loop is watched while the context lasts."""
    watchdog = _Watchdog(service)
    async with running(watchdog.beat(), "watchdog"):
        try:
            yield
        finally:
            watchdog.stop()


def blamed_by(frame: FrameType | None) -> Blamed:
    """The node and the pod that the functions from *frame* outwards work for, the innermost of each."""
    node = pod = ""
    place = "" if frame is None else f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_name}"
    while frame is not None and not (node and pod):
        for value in _locals(frame):
            with contextlib.suppress(AttributeError):  # the value is being made
                node = node or _node_of(value)
                pod = pod or (f"{value.namespace}/{value.name}" if isinstance(value, Pod) else "")
        frame = frame.f_back
    return Blamed(node, pod, place)


def _locals(frame: FrameType) -> Iterator[object]:
    with contextlib.suppress(RuntimeError):  # it goes on while it is read
        yield from list(frame.f_locals.values())


def _node_of(value: object) -> str:
    if isinstance(value, Observation):
        return value.node_name
    return value.name if isinstance(value, NodeRecord | PodTracker) else ""
