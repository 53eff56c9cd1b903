"""Answers people's questions in worker processes, with limits on concurrency and time. Replies are streamed."""

import asyncio
import logging
import pickle
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import orjson

from extender.cluster.node import NodeRecord, UnknownNodeError
from extender.observability.logs import REQUEST_ID
from extender.observability.metrics import Metrics
from extender.questions.answering import answer
from extender.questions.asked import (
    EVICTING,
    Asked,
    DefectError,
    OutOfMemoryError,
    QuestionError,
    QuestionKind,
    QuestionTimeoutError,
    WorkerDiedError,
)
from extender.questions.dra import ClaimForecast
from extender.questions.node_context import LookUp
from extender.questions.snapshot import Snapshot
from extender.replay.alignment_demand import Demand
from extender.scheduling.judge import Judge
from extender.scheduling.victims import DisruptionBudget
from extender.wire.documents import NotYAMLError
from extender.wire.errors import NotJSONError, WireError
from extender.workers.frames import HEADER, QuestionStart, ReplyFrame, WorkerSettings, frame
from extender.workers.places import WorkerSlots
from extender.workers.template import TemplateProcess

LOG: Final = logging.getLogger(__name__)
_WIRE_ERRORS: Final[dict[str, type[WireError]]] = {e.__name__: e for e in (WireError, NotJSONError, NotYAMLError)}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionLimits:
    """`workers` 0: no processes, see `AskedQuestions`.

    `seconds`: the longest time of one question after it got a worker.
    """

    workers: int
    max_waiting: int
    wait_seconds: float
    seconds: float


class AskedQuestions:
    """Answers questions in workers while `open`; before that, or without workers, in threads of this process.

    Threads are for commands that answer from files, where no scheduler waits. A thread cannot be stopped, so the time
    limit is checked only between two parts of a reply.
    """

    def __init__(
        self,
        limits: QuestionLimits,
        settings: WorkerSettings,
        *,
        records: Callable[[], Sequence[NodeRecord]],
        look_up: LookUp,
        demands: Callable[[], Mapping[str, Demand]],
        judge: Judge,
        budgets: Callable[[], Sequence[DisruptionBudget] | None],
        forecast: Callable[[], ClaimForecast | None] = lambda: None,
        metrics: Metrics,
    ) -> None:
        """*records*: returns the current record of every node. *demands*: the demands of namespaces. *budgets*: all.

        *forecast*: predicts devices of claims.
        """
        self._limits, self._settings, self._metrics = limits, settings, metrics
        self._records, self._look_up, self._judge = records, look_up, judge
        self._demands, self._budgets, self._forecast = demands, budgets, forecast
        self._places: WorkerSlots | None = None
        self._template: TemplateProcess | None = None
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Use worker processes until the context ends; then end them."""
        if self._limits.workers:
            self._starting = asyncio.Lock()
            self._places = WorkerSlots(
                self._limits.workers,
                max_waiting=self._limits.max_waiting,
                wait_seconds=self._limits.wait_seconds,
                changed=self._count,
            )
        try:
            yield
        finally:
            self._places = None
            if self._template is not None:
                await self._template.close()
                self._template = None

    async def ask(self, asked: Asked, caller: str) -> AsyncGenerator[bytes, None]:
        """The lines of the answer, from a worker process, as soon as each is known."""
        began = time.monotonic()
        forecast = None if asked.kind is QuestionKind.PAST else self._forecast()
        asked = replace(asked, demands=self._demands(), forecast=forecast)
        if asked.kind in EVICTING:
            asked = replace(asked, budgets=self._budgets())
        with self._counted(asked, began):
            if self._places is None:
                async with aclosing(self._in_threads(asked)) as pieces:
                    async for piece in pieces:
                        yield piece
                return
            async with self._places.place(caller), aclosing(self._in_worker(asked)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _in_worker(self, asked: Asked) -> AsyncGenerator[bytes, None]:
        deadline, began = asyncio.get_running_loop().time() + self._limits.seconds, time.monotonic()
        ours, theirs = socket.socketpair()
        ours.settimeout(0)
        template, number, writer = None, 0, None
        try:
            async with asyncio.timeout_at(deadline):
                template = await self._running()
                number = await template.begin(partial(self._start, began), theirs, self._records, self._look_up)
                reader, writer = await asyncio.open_unix_connection(sock=ours)
                writer.write(frame(0, pickle.dumps(asked, pickle.HIGHEST_PROTOCOL)))
                await writer.drain()
            async for piece in self._pieces(reader, deadline):
                yield piece
            number = 0
        except TimeoutError:
            raise QuestionTimeoutError(self._limits.seconds) from None
        except (ConnectionError, asyncio.IncompleteReadError):
            raise WorkerDiedError from None
        finally:
            if template is None:
                theirs.close()
            elif number:
                template.stop(number)
            if writer is None:
                ours.close()
            else:
                writer.transport.abort()

    def _start(self, began: float, number: int) -> QuestionStart:
        return QuestionStart(number, REQUEST_ID.get(), self._limits.seconds, began)

    async def _running(self) -> TemplateProcess:
        """The template process. A new one if the last has died."""
        async with self._starting:
            if self._template is not None and self._template.ended.is_set():
                await self._template.close()
                self._template = None
            if self._template is None:
                self._template = await TemplateProcess.start(self._settings)
            return self._template

    async def _pieces(self, reader: asyncio.StreamReader, deadline: float) -> AsyncIterator[bytes]:
        while True:
            async with asyncio.timeout_at(deadline):
                size, kind = HEADER.unpack(await reader.readexactly(HEADER.size))
                payload = await reader.readexactly(size)
            if kind == ReplyFrame.PIECE:
                yield payload
            elif kind == ReplyFrame.END:
                return
            else:
                raise self._error(ReplyFrame(kind), payload)

    def _error(self, kind: ReplyFrame, payload: bytes) -> Exception:
        if kind is ReplyFrame.NOT_UNDERSTOOD:
            name, path, reason = orjson.loads(payload)
            error = _WIRE_ERRORS[name].__new__(_WIRE_ERRORS[name])
            WireError.__init__(error, path, reason)
            return error
        if kind is ReplyFrame.UNKNOWN_NODE:
            return UnknownNodeError(payload.decode())
        if kind is ReplyFrame.OUT_OF_MEMORY:
            return OutOfMemoryError(self._settings.max_bytes)
        return DefectError()

    async def _in_threads(self, asked: Asked) -> AsyncGenerator[bytes, None]:
        began = time.monotonic()
        deadline = began + self._limits.seconds
        asked = replace(asked, spent=lambda: (time.monotonic() - began) / self._limits.seconds)
        snapshot = Snapshot.of(self._records(), self._look_up)
        pieces = await asyncio.to_thread(answer, asked, snapshot, self._judge)
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece
            if time.monotonic() > deadline:
                raise QuestionTimeoutError(self._limits.seconds)

    @contextmanager
    def _counted(self, asked: Asked, began: float) -> Iterator[None]:
        outcome = "failed"
        try:
            yield
            outcome = "answered"
        except (GeneratorExit, asyncio.CancelledError):
            outcome = "client_left"
            raise
        except (WireError, UnknownNodeError):
            outcome = "invalid"
            raise
        except QuestionError as error:
            outcome = error.outcome
            if isinstance(error, WorkerDiedError):  # elsewhere: there is nothing to trace
                LOG.error("question worker died kind=%s", asked.kind)  # noqa: TRY400
            raise
        finally:
            self._metrics.questions.labels(asked.kind.value, outcome).inc()
            self._metrics.question_seconds.labels(asked.kind.value).observe(time.monotonic() - began)

    def _count(self) -> None:
        if self._places is not None:
            self._metrics.questions_now.labels("working").set(self._places.working)
            self._metrics.questions_now.labels("waiting").set(self._places.waiting)
