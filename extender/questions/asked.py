"""A question, and the errors of answering it."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Final, Protocol

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.questions.dra import ClaimForecast
from extender.replay.alignment_demand import Demand
from extender.replay.pod import Pod
from extender.scheduling.victims import DisruptionBudget


class QuestionKind(StrEnum):
    """The kinds of questions."""

    WHAT_IF = "what-if"
    CAPACITY = "capacity"
    PLAN = "plan"
    RESIZE_CHECK = "resize-check"
    RESTART_CHECK = "restart-check"
    MAKE_ROOM = "make-room"
    DEFRAGMENT = "defragment"
    TUNE = "tune"
    RIGHTSIZE = "rightsize"
    PAST = "past"
    """The verdict on a pod for a past state, to explain a decision."""


EVICTING: Final = frozenset({QuestionKind.MAKE_ROOM, QuestionKind.DEFRAGMENT})
"""Questions that read disruption budgets."""


def no_time() -> float:
    """The time spent on a question without a limit."""
    return 0.0


@dataclass(frozen=True, slots=True)
class PastCall:
    """A pod, and the node's state when the pod was judged."""

    kubelet: Kubelet
    state: ManagerState
    pod: Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question.

    `body` and `media_type` as received, not parsed. `options`: fields of the question from query parameters; they apply
    if the body is a bare manifest, `explain` always. `compact`: nodes with equal answers are grouped. `lines`: one JSON
    document a line, sent as soon as it is known. `past` is set for `QuestionKind.PAST` only. `demands` are those that
    namespaces state for their pods. `forecast` predicts devices of claims; None: nothing does. `budgets`
    is set for `EVICTING` only; None: budgets are not watched. `spent`: the share of the question's time that has
    passed, from 0 to 1. Long searches end before that share is 1, with what they have found.
    """

    kind: QuestionKind
    body: bytes = b""
    media_type: str = ""
    options: Mapping[str, object] = field(default_factory=dict)
    compact: bool = False
    lines: bool = False
    past: PastCall | None = None
    demands: Mapping[str, Demand] = field(default_factory=dict)
    forecast: ClaimForecast | None = None
    budgets: Sequence[DisruptionBudget] | None = None
    spent: Callable[[], float] = no_time


class QuestionError(Exception):
    """The question got no reply, or only a part of one. `outcome`: its label in the metric `questions`.

    `status`: of the reply. `retry_after_seconds`: when the client may ask again; None: not said.
    """

    outcome = "failed"
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    retry_after_seconds: int | None = None


class BusyError(QuestionError):
    """Too many questions are waiting, or this one waited too long."""

    def __init__(self, reason: str, retry_after_seconds: int, *, refused: bool) -> None:
        """*refused*: at once, because too many were waiting; else after waiting."""
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds
        self.outcome = "refused" if refused else "queue_time"
        self.status = HTTPStatus.TOO_MANY_REQUESTS if refused else HTTPStatus.SERVICE_UNAVAILABLE


class QuestionTimeoutError(QuestionError):
    """The question took longer than `question_seconds`."""

    outcome, status = "time_limit", HTTPStatus.GATEWAY_TIMEOUT

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the question took longer than {seconds:g} s (NUMA_EXTENDER_QUESTION_SECONDS): ask about fewer nodes, "
            "pods or copies, or without explanations"
        )


class OutOfMemoryError(QuestionError):
    """The question took more memory than `max_question_bytes`."""

    outcome, status = "memory_limit", HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self, size: int) -> None:
        super().__init__(
            f"the question took more than {size >> 20} MiB of memory (NUMA_EXTENDER_MAX_QUESTION_BYTES): ask about "
            "fewer nodes, pods or copies"
        )


class WorkerDiedError(QuestionError):
    """The worker process ended before the reply was complete."""

    outcome, status, retry_after_seconds = "worker_died", HTTPStatus.SERVICE_UNAVAILABLE, 1

    def __init__(self) -> None:
        super().__init__("the worker process ended before the reply was complete; other questions are not affected")


class DefectError(QuestionError):
    """An internal error. It was logged."""

    def __init__(self) -> None:
        super().__init__("internal error; see the log of the service")


class Questions(Protocol):
    """Answers questions without delaying the scheduler's calls."""

    def ask(self, asked: Asked, caller: str) -> AsyncGenerator[bytes, None]:
        """The reply, in pieces. *caller* empty: not identified. Closing it ends the work.

        Raises:
            WireError: the question is malformed.
            UnknownNodeError: it names a node without a report.
            QuestionError: one of its subclasses.
        """
