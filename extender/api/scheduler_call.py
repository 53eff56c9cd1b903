"""One HTTP call of a scheduler verb: read the body, answer it, time it, and turn errors into replies."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from extender.api.access.limits import LimitError
from extender.api.http.bodies import BodyTooLargeError, read_body
from extender.observability.logs import FewWarnings
from extender.observability.metrics import Metrics, Stopwatch
from extender.scheduling.cached_judge import NotReadyError
from extender.wire.errors import WireError

LOG: Final = logging.getLogger(__name__)
LOG.addFilter(FewWarnings())  # when the service is overloaded, every call would log the same warning
DEFECT: Final = "internal error; see the log of the service"
Lap = Callable[[str], None]
"""Ends the phase of the call that it names."""


class CallOutcome(StrEnum):
    """The result of a call. The values are labels of `numa_extender_verb_seconds`."""

    ANSWERED = "answered"
    INVALID = "invalid"
    UNREADY = "unready"
    BUSY = "busy"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CallFailure:
    """Why a call got no answer."""

    outcome: CallOutcome
    status: HTTPStatus
    reason: str
    field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbCall:
    """How calls of one verb run.

    `answer` turns the body of a request into the body of its reply. `max_bytes` is the largest body. `failed`: makes
    the reply to a call that failed; None: the error handlers of the app do. `clock`: seconds of a monotonic clock.
    `phases`: whether the phases of a call are measured.
    """

    verb: str
    answer: Callable[[bytes, Lap], Awaitable[bytes]]
    max_bytes: int
    metrics: Metrics
    clock: Callable[[], float]
    failed: Callable[[CallFailure], Response] | None
    phases: bool = False

    async def run(self, request: Request) -> Response:
        """The response to *request*."""
        started = self.clock()
        watch = Stopwatch(self.metrics.phase_series, self.verb, self.clock)
        lap = watch.lap if self.phases else _unmeasured
        try:
            body = await read_body(request, self.max_bytes)
            lap("read")
            reply = await self.answer(body, lap)
            lap("reply")
        except ClientDisconnect:  # the client has closed the connection
            raise
        except Exception as error:
            failure = _failure(error)
            self._observe(failure.outcome, started)
            self._log(failure, error)
            if self.failed is None:
                raise
            return self.failed(failure)
        self._observe(CallOutcome.ANSWERED, started)
        return Response(reply, media_type="application/json")

    def _observe(self, outcome: CallOutcome, started: float) -> None:
        self.metrics.verb_series[self.verb, outcome.value].observe(self.clock() - started)

    def _log(self, failure: CallFailure, error: Exception) -> None:
        """Log why the call failed. A call over a limit is a metric only."""
        match failure.outcome:
            case CallOutcome.INVALID:
                LOG.warning("request not understood verb=%s reason=%r", self.verb, failure.reason)
            case CallOutcome.UNREADY:
                LOG.warning("request not answered verb=%s reason=%r", self.verb, failure.reason)
            case CallOutcome.FAILED if self.failed is not None:  # else the error handlers log it
                LOG.error("defect verb=%s", self.verb, exc_info=error)


def _failure(error: Exception) -> CallFailure:
    match error:
        case LimitError():
            return CallFailure(CallOutcome.BUSY, HTTPStatus.TOO_MANY_REQUESTS, str(error))
        case WireError():
            return CallFailure(CallOutcome.INVALID, HTTPStatus.UNPROCESSABLE_ENTITY, str(error), error.field)
        case BodyTooLargeError():
            return CallFailure(CallOutcome.INVALID, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error))
        case NotReadyError():
            return CallFailure(CallOutcome.UNREADY, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        case _:
            return CallFailure(CallOutcome.FAILED, HTTPStatus.INTERNAL_SERVER_ERROR, DEFECT)


def _unmeasured(_phase: str) -> None:
    """The phases of the call are not measured."""
