"""Answers any question: from the bytes of its body to the bytes of the reply. Pure, and may take long."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from extender.answers.capacity import capacity_document, capacity_lines, plan_lines, read_capacity, read_plan
from extender.answers.defragment import defragment_documents
from extender.answers.make_room import make_room_documents
from extender.answers.question import Asked, PastCall, QuestionKind
from extender.answers.resize_check import resize_check_documents
from extender.answers.restart_check import restart_check_documents
from extender.answers.rightsize import rightsize_documents
from extender.answers.snapshot import Snapshot
from extender.answers.tune import tune_documents
from extender.answers.what_if import what_if_document
from extender.kubelet.admission import admit
from extender.kubelet.resolve import resolve
from extender.replay.alignment import alignment_of_outcomes
from extender.scheduling.judge import Judge
from extender.scheduling.pod_shape import SHAPE_UID
from extender.wire.replies import ReplyBody
from extender.wire.verdicts import Verdict, explained

SINGLE_LINES: Final = 16
"""Lines sent one by one, so that progress is visible at once. Later lines are sent in groups."""
BATCH: Final = 16
MAX_PIECE_BYTES: Final = 1 << 18
"""Maximum size of a piece, which is copied between processes and sockets in one step."""

ADVICE: Final[Mapping[QuestionKind, Callable[[Asked, Snapshot, Judge], Iterator[ReplyBody]]]] = {
    QuestionKind.RESIZE_CHECK: resize_check_documents,
    QuestionKind.RESTART_CHECK: restart_check_documents,
    QuestionKind.MAKE_ROOM: make_room_documents,
    QuestionKind.DEFRAGMENT: defragment_documents,
    QuestionKind.TUNE: tune_documents,
    QuestionKind.RIGHTSIZE: rightsize_documents,
}
"""The last document is the answer. Those before it have only `progress`.

Reading a document may raise WireError or UnknownNodeError.
"""


def answer(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[bytes]:
    """The reply, in pieces as they become known.

    Raises:
        WireError: the question is malformed.
        UnknownNodeError: it names a node without a report.
    """
    if asked.kind is QuestionKind.WHAT_IF:
        return _whole(what_if_document(asked, snapshot, judge))
    if asked.kind is QuestionKind.CAPACITY:
        capacity, subjects = read_capacity(asked, snapshot, judge)
        if asked.lines:
            return _batches(capacity_lines(capacity, subjects))
        return _whole(capacity_document(capacity, subjects))
    if asked.kind is QuestionKind.PLAN:
        plan, entries, all_or_nothing = read_plan(asked, snapshot, judge)
        return _batches(plan_lines(plan, entries, all_or_nothing=all_or_nothing))
    if asked.kind in ADVICE:
        documents = ADVICE[asked.kind](asked, snapshot, judge)
        return map(_line, documents) if asked.lines else _whole(deque(documents, maxlen=1)[0])
    assert asked.past is not None
    return _whole(_past_verdict(asked.past))


def _past_verdict(past: PastCall) -> Verdict:
    """The verdict on the pod in the past state."""
    request = resolve(replace(past.pod, uid=SHAPE_UID), past.kubelet.rules)
    outcome = admit(past.kubelet, past.state, request)
    alignment = alignment_of_outcomes(past.kubelet, (outcome, *outcome.alternatives))
    return explained(outcome.verdict, alignment)


def _whole(document: ReplyBody) -> Iterator[bytes]:
    body = msgspec.json.encode(document)
    for start in range(0, len(body), MAX_PIECE_BYTES):
        yield body[start : start + MAX_PIECE_BYTES]


def _line(document: ReplyBody) -> bytes:
    return msgspec.json.encode(document) + b"\n"


def _batches(documents: Iterable[ReplyBody]) -> Iterator[bytes]:
    """The documents as lines: one by one at first, then in groups."""
    batch: list[bytes] = []
    sent = 0
    for document in documents:
        batch.append(_line(document))
        if sent < SINGLE_LINES or len(batch) >= BATCH:
            yield b"".join(batch)
            sent += len(batch)
            batch = []
    if batch:
        yield b"".join(batch)
