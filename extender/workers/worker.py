"""`python -m extender.workers.worker FD`: the template of the processes that answer people's questions.

The template is a small process with one thread. It holds the snapshot of the nodes and forks a worker for each
question. The worker shares the snapshot's memory, answers, and ends, so nothing of a question remains.

Rules of this file
- The template is a new program, not a fork of the service: it has none of its threads, locks, TLS keys or sockets.
- Template and workers end when the service ends, however it ends: the template when its control socket closes, the
  workers by a signal of the kernel when the template ends, and by a timer of their own.
- The scheduler's calls have priority: template and workers have a lower CPU priority, and are the first that the kernel
  kills when memory runs out.
"""

import contextlib
import ctypes
import gc
import logging
import os
import pickle
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import orjson

from extender.cluster.node import UnknownNodeError
from extender.observability.logs import REQUEST_ID, set_up_logging
from extender.questions.answering import answer
from extender.questions.asked import Asked
from extender.questions.snapshot import Snapshot
from extender.scheduling.judge import BoundedJudge, Judge
from extender.scheduling.ranking.strategies import Weights, make_strategy
from extender.wire.errors import WireError
from extender.workers.frames import HEADER, Control, QuestionStart, ReplyFrame, WorkerSettings, frame

LOG: Final = logging.getLogger(__name__)
TEMPLATE_NICE: Final = 5
"""Lower priority than the service, higher than the workers, so that starts and stops do not wait for workers."""
WORKER_NICE: Final = 19
GRACE_SECONDS: Final = 2.0
"""A worker ends itself this long after the service should have stopped it."""
_PR_SET_PDEATHSIG: Final = 1
_RECEIVE_BYTES: Final = 1 << 18
_MAX_FDS: Final = 8


class TemplateServer:
    """Holds the snapshot, and starts and stops workers."""

    def __init__(self, control: socket.socket, settings: WorkerSettings) -> None:
        self._control, self._settings = control, settings
        self._judge = BoundedJudge(
            make_strategy(settings.strategy, Weights.parse(settings.resource_weights)), settings.uncertainty
        )
        self._snapshot = Snapshot()
        self._pids: dict[int, int] = {}
        """Running workers, by the number of their question."""
        self._received = bytearray()
        self._fds: list[int] = []

    def run(self) -> None:
        """Run until the service closes the control socket."""
        waker, wake = socket.socketpair()
        for end in (waker, wake):
            end.settimeout(0)
        signal.signal(
            signal.SIGCHLD, lambda _number, _frame: None
        )  # without a handler the wakeup socket is not written to
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        inherited = (self._control, waker, wake)
        try:
            while True:
                ready, _, _ = select.select((self._control, waker), (), ())
                if waker in ready:
                    waker.recv(4096)
                    self._reap()
                if self._control in ready and not self._receive():
                    return
                for kind, payload in self._frames():
                    self._handle(Control(kind), payload, inherited)
        finally:
            for pid in self._pids.values():
                os.kill(pid, signal.SIGKILL)

    def _receive(self) -> bool:
        """Read what has arrived. False: the service has ended."""
        try:
            data, fds, _, _ = socket.recv_fds(self._control, _RECEIVE_BYTES, _MAX_FDS)
        except ConnectionError:
            return False
        self._received += data
        self._fds += fds
        return bool(data)

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        """The complete frames received so far."""
        start = 0
        while len(self._received) - start >= HEADER.size:
            size, kind = HEADER.unpack_from(self._received, start)
            end = start + HEADER.size + size
            if len(self._received) < end:
                break
            yield kind, bytes(self._received[start + HEADER.size : end])
            start = end
        del self._received[:start]

    def _handle(self, kind: Control, payload: bytes, inherited: tuple[socket.socket, ...]) -> None:
        message = pickle.loads(payload)  # noqa: S301 - from our own parent, over a socket without a name
        if kind is Control.UPDATE:
            self._snapshot.apply(message)
        elif kind is Control.QUESTION:
            self._start(message, self._fds.pop(0), inherited)
        elif (pid := self._pids.get(message)) is not None:
            os.kill(pid, signal.SIGKILL)

    def _start(self, start: QuestionStart, fd: int, inherited: tuple[socket.socket, ...]) -> None:
        gc.freeze()  # objects that the garbage collector does not touch stay in shared memory
        template = os.getpid()
        pid = os.fork()
        if pid == 0:
            _work(start, fd, inherited, template, self._settings.max_bytes, self._snapshot, self._judge)
        os.close(fd)
        self._pids[start.number] = pid

    def _reap(self) -> None:
        """Remove workers that have ended."""
        numbers = {pid: number for number, pid in self._pids.items()}
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = ended
                self._pids.pop(numbers.get(pid, -1), None)
                if status and not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
                    LOG.warning("question worker ended pid=%d exit=%d", pid, os.waitstatus_to_exitcode(status))


def _work(
    start: QuestionStart,
    fd: int,
    inherited: tuple[socket.socket, ...],
    template: int,
    max_bytes: int,
    snapshot: Snapshot,
    judge: Judge,
) -> NoReturn:
    """Run a worker, in the process just forked."""
    status = 1
    try:
        _set_up_worker(inherited, template, start.seconds + GRACE_SECONDS)
        REQUEST_ID.set(start.request_id)
        with socket.socket(fileno=fd) as connection:
            asked = _read_frame(connection)
            assert isinstance(asked, Asked)
            asked = replace(asked, spent=lambda: (time.monotonic() - start.began) / start.seconds)
            _limit_memory(max_bytes)
            for piece in _pieces(asked, snapshot, judge, max_bytes):
                connection.sendall(piece)
        status = 0
    except (BrokenPipeError, ConnectionError, EOFError):
        status = 0  # the service no longer wants the reply
    except BaseException:  # whatever happened, this process must not continue as a second template
        LOG.exception("internal error in a question worker")
    finally:
        os._exit(status)


def _set_up_worker(inherited: tuple[socket.socket, ...], template: int, seconds: float) -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)  # SIGALRM ends the process
    for each in inherited:
        each.close()
    _die_with_parent(template)
    os.nice(WORKER_NICE - TEMPLATE_NICE)
    gc.enable()
    gc.set_threshold(100_000, 20, 100)


def _die_with_parent(parent: int) -> None:
    """Make the kernel kill this process when *parent* ends. Outside Linux only the timer does so."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _read_frame(connection: socket.socket) -> object:
    """The value in the next frame. Raises EOFError if the other side closes before its end."""
    size, _ = HEADER.unpack(_read(connection, HEADER.size))
    return pickle.loads(_read(connection, size))  # noqa: S301 - from our own service, over a socket without a name


def _read(connection: socket.socket, size: int) -> bytes:
    data = connection.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        raise EOFError
    return data


def _limit_memory(max_bytes: int) -> None:
    """Allow no more than *max_bytes* in addition to the memory mapped now."""
    with contextlib.suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + max_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _pieces(asked: Asked, snapshot: Snapshot, judge: Judge, max_bytes: int) -> Iterator[bytes]:
    """The frames of the reply."""
    try:
        for piece in answer(asked, snapshot, judge):
            yield frame(ReplyFrame.PIECE, piece)
        yield frame(ReplyFrame.END)
    except WireError as error:
        yield frame(ReplyFrame.NOT_UNDERSTOOD, orjson.dumps([type(error).__name__, error.field, error.reason]))
    except UnknownNodeError as error:
        yield frame(ReplyFrame.UNKNOWN_NODE, str(error.args[0]).encode())
    except MemoryError:
        LOG.warning("question out of memory max_bytes=%d", max_bytes)
        yield frame(ReplyFrame.OUT_OF_MEMORY)
    except Exception:
        LOG.exception("defect kind=%s", asked.kind)
        yield frame(ReplyFrame.DEFECT)


def main(fd: int) -> None:
    """Run the template."""
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # these go to all processes of a terminal or unit: the service decides
        signal.signal(number, signal.SIG_IGN)
    os.nice(TEMPLATE_NICE)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    gc.disable()  # the snapshot has no reference cycles
    with socket.socket(fileno=fd) as control:
        settings = _read_frame(control)
        assert isinstance(settings, WorkerSettings)
        set_up_logging(settings.log_level, settings.log_format)
        TemplateServer(control, settings).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
