"""The service's handle of the template process: starts it when needed, sends it changes, replaces it when it dies."""

import asyncio
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from extender.cluster.node import NodeRecord
from extender.questions.asked import WorkerDiedError
from extender.questions.node_context import LookUp
from extender.questions.snapshot import SnapshotSender
from extender.workers.frames import Control, QuestionStart, WorkerSettings, frame

T = TypeVar("T")
LOG: Final = logging.getLogger(__name__)
SLICE_SECONDS: Final = 0.001
"""The event loop works on an update for this long before it handles other events."""
END_SECONDS: Final = 2.0
"""Time for the template to end after its socket is closed, before it is killed."""
_PROGRAM: Final = "extender.workers.worker"


class TemplateProcess:
    """A running template. Belongs to the event loop that started it."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket) -> None:
        self._process, self._control = process, control
        self._sender = SnapshotSender()
        self._updating = asyncio.Lock()
        self._sending = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._last_number = 0
        self.ended = asyncio.Event()
        """Set when the template has ended or is about to."""
        self._note_end = asyncio.create_task(self._watch())

    @classmethod
    async def start(cls, settings: WorkerSettings) -> "TemplateProcess":
        """Start a template without nodes."""
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        with theirs:
            process = await asyncio.to_thread(_run, theirs.fileno())
        template = cls(process, ours)
        await template._send(0, settings)
        LOG.info("question template started pid=%d", process.pid)
        return template

    async def begin(
        self,
        start: Callable[[int], QuestionStart],
        worker_end: socket.socket,
        records: Callable[[], Sequence[NodeRecord]],
        look_up: LookUp,
    ) -> int:
        """Update the snapshot and start a worker that replies on *worker_end*. Returns the question's number.

        *worker_end* is closed. A message is sent whole even if the caller is cancelled: half a message would make the
        rest unreadable, and nodes that were not sent would be missing for good.

        Raises:
            WorkerDiedError: the template has ended.
        """

        async def begin() -> int:
            with worker_end:
                async with self._updating:
                    await self._update(records(), look_up)
                    self._last_number += 1
                    number = self._last_number
                    await self._send(Control.QUESTION, start(number), worker_end.fileno())
                    return number

        return await asyncio.shield(self._keep(begin()))

    def _keep(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """A task that only `close` ends."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_look_at)
        return task

    def stop(self, number: int) -> None:
        """Stop the worker of this question."""
        if not self.ended.is_set():
            self._keep(self._stop(number))

    async def close(self) -> None:
        """End the template and its workers."""
        self._note_end.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(self._note_end, *self._tasks, return_exceptions=True)
        self.ended.set()
        self._control.close()
        await asyncio.to_thread(_end, self._process)

    async def _update(self, records: Sequence[NodeRecord], look_up: LookUp) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time()
        for update in self._sender.updates(records, look_up):
            if update is not None:
                await self._send(Control.UPDATE, update)
            if loop.time() - since > SLICE_SECONDS:
                await asyncio.sleep(0)
                since = loop.time()

    async def _stop(self, number: int) -> None:
        try:
            await self._send(Control.STOP, number)
        except WorkerDiedError:
            LOG.debug("the template ended before the question number=%d", number)

    async def _send(self, kind: int, message: object, fd: int | None = None) -> None:
        data = frame(kind, pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        loop = asyncio.get_running_loop()
        async with self._sending:
            if self.ended.is_set():
                raise WorkerDiedError
            try:
                if fd is not None:
                    data = data[await self._send_with(data, fd) :]
                await loop.sock_sendall(self._control, data)
            except OSError:
                self.ended.set()
                raise WorkerDiedError from None

    async def _send_with(self, data: bytes, fd: int) -> int:
        """Send a file descriptor with the first bytes of *data*. Returns how many bytes were sent."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                return socket.send_fds(self._control, [data], [fd])
            except BlockingIOError:
                writable = loop.create_future()
                loop.add_writer(self._control, _set_done, writable)
                try:
                    await writable
                finally:
                    loop.remove_writer(self._control)

    async def _watch(self) -> None:
        """Wait for the template's end. It sends nothing, so a readable socket means that it has ended."""
        try:
            await asyncio.get_running_loop().sock_recv(self._control, 1)
        except OSError:
            LOG.debug("the control socket failed", exc_info=True)
        LOG.error(
            "the question template ended unexpectedly pid=%d; the next question starts a new one", self._process.pid
        )
        self.ended.set()


def _look_at(task: "asyncio.Task[Any]") -> None:
    """Retrieve the error of a task that is no longer awaited. The template's end is logged elsewhere."""
    if not task.cancelled():
        task.exception()


def _set_done(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _run(fd: int) -> subprocess.Popen[bytes]:
    """Start the program, with our own code first on its path and no file descriptor but *fd*."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(dict.fromkeys((root, *filter(None, sys.path))))
    return subprocess.Popen(  # noqa: S603 - our own interpreter and module
        [sys.executable, "-P", "-m", _PROGRAM, str(fd)],
        env={**os.environ, "PYTHONPATH": path},
        pass_fds=(fd,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
