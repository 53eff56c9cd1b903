"""A question as it reaches whoever answers it, and the ways in which an answer can fail."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from extender.replay.kubelet import Kubelet
from extender.replay.pod import Pod
from extender.replay.state import ManagerState


class QuestionKind(StrEnum):
    """What is asked."""

    WHAT_IF = "what-if"
    CAPACITY = "capacity"
    PLAN = "plan"
    PAST = "past"
    """The verdict on a pod in a state of the past, for explaining a decision."""


@dataclass(frozen=True, slots=True)
class PastCall:
    """A pod, and the node as it was when the pod was judged."""

    kubelet: Kubelet
    state: ManagerState
    pod: Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question.

    `body` and `media_type` as they came, unread. `node`, `explain` and `max_copies` are the query's options: they count
    where the body is a bare manifest, `explain` always. `lines`: one JSON document a line, sent as soon as it is known.
    `past`: for `QuestionKind.PAST` only.
    """

    kind: QuestionKind
    body: bytes = b""
    media_type: str = ""
    node: tuple[str, ...] | None = None
    explain: bool = False
    max_copies: int = 1000
    lines: bool = False
    past: PastCall | None = None


class QuestionError(Exception):
    """The question was understood, or not yet read, and got no answer, or only a part of one."""


class BusyError(QuestionError):
    """Too many questions wait already, or this one waited too long."""

    def __init__(self, reason: str, retry_after_seconds: int, *, refused: bool) -> None:
        """*refused*: at once, because of too many; else after waiting."""
        super().__init__(reason)
        self.retry_after_seconds: Final = retry_after_seconds
        self.refused: Final = refused


class QuestionTimeoutError(QuestionError):
    """It took longer than `question_seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the question took longer than {seconds:g} s (NUMA_EXTENDER_QUESTION_SECONDS): ask about fewer nodes, "
            "pods or copies, or without explanations"
        )


class OutOfMemoryError(QuestionError):
    """It took more memory than `max_question_bytes`."""

    def __init__(self, size: int) -> None:
        super().__init__(
            f"the question took more than {size >> 20} MiB of memory (NUMA_EXTENDER_MAX_QUESTION_BYTES): ask about "
            "fewer nodes, pods or copies"
        )


class WorkerDiedError(QuestionError):
    """The process that answered it ended before the answer was complete."""

    def __init__(self) -> None:
        super().__init__("the process that answered the question ended before it was done; other questions go on")


class DefectError(QuestionError):
    """A defect of ours; it was logged."""

    def __init__(self) -> None:
        super().__init__("a defect of the service; its log tells more")


class Questions(Protocol):
    """Answers questions apart from the scheduler's verbs."""

    def ask(self, asked: Asked, caller: str) -> AsyncGenerator[bytes, None]:
        """The answer, in pieces. *caller* empty: cannot be told apart. Close it to end the work.

        Raises:
            WireError: the question cannot be understood.
            UnknownNodeError: it names a node that no report is held of.
            QuestionError: one of its kinds.
        """
