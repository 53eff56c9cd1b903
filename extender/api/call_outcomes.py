"""How a call of kube-scheduler can end, and what is logged of one that failed."""

import logging
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from extender.api.access.limits import LimitError
from extender.api.http.bodies import BodyTooLargeError
from extender.observability.logs import FewWarnings
from extender.scheduling.cached_judge import NotReadyError
from extender.wire.errors import WireError

LOG: Final = logging.getLogger(__name__)
LOG.addFilter(FewWarnings())  # when the service is overloaded, every call would log the same warning
DEFECT: Final = "internal error; see the log of the service"


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


def failure_of(error: Exception) -> CallFailure:
    """Why the call that raised *error* got no answer."""
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


def log_failure(verb: str, failure: CallFailure, error: Exception, *, is_handled: bool) -> None:
    """Log why a call failed. A call over a limit is a metric only. *is_handled*: no error handler logs a defect."""
    match failure.outcome:
        case CallOutcome.INVALID:
            LOG.warning("request not understood verb=%s reason=%r", verb, failure.reason)
        case CallOutcome.UNREADY:
            LOG.warning("request not answered verb=%s reason=%r", verb, failure.reason)
        case CallOutcome.FAILED if is_handled:
            LOG.error("defect verb=%s", verb, exc_info=error)
