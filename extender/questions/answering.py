"""Answers any question: from the bytes of its body to the bytes of the reply. Pure, and may take long."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import msgspec

from extender.kubelet.admission import admit
from extender.kubelet.resolve import resolve
from extender.questions.asked import Asked, PastCall, QuestionKind
from extender.questions.capacity import capacity_documents
from extender.questions.defragment import defragment_documents
from extender.questions.finding import ProgressLine
from extender.questions.make_room import make_room_documents
from extender.questions.plan import plan_documents
from extender.questions.resize_check import resize_check_documents
from extender.questions.restart_check import restart_check_documents
from extender.questions.rightsize import rightsize_documents
from extender.questions.snapshot import Snapshot
from extender.questions.tune import tune_documents
from extender.questions.what_if import what_if_documents
from extender.replay.alignment import alignment_of_outcomes
from extender.scheduling.judge import Judge
from extender.scheduling.pod_shape import SHAPE_UID
from extender.wire import advice_replies as advice
from extender.wire import pod_replies as pods
from extender.wire import questions as asks
from extender.wire.replies import ReplyBody
from extender.wire.verdicts import Verdict, explained

SINGLE_LINES: Final = 16
"""Lines sent one by one, so that progress is visible at once. Later lines are sent in groups."""
BATCH: Final = 16
MAX_PIECE_BYTES: Final = 1 << 18
"""Maximum size of a piece, which is copied between processes and sockets in one step."""


class AskedRoute(NamedTuple):
    """One question, its reply, and what answers it.

    `documents`: the last one is the answer, and the earlier ones have only `progress`. If the caller asks for lines,
    all documents together are the answer to capacity and to plan. Reading a document may raise WireError or
    UnknownNodeError. `reply` None: the answer is always sent as lines. `lines` False: the answer is never sent as
    lines.
    """

    kind: QuestionKind
    question: type[asks.Question]
    reply: type[ReplyBody] | None
    documents: Callable[[Asked, Snapshot, Judge], Iterator[ReplyBody]]
    tag: str = "advice"
    lines: bool = True

    @property
    def path(self) -> str:
        """The route's path."""
        return f"/v1/advice/{self.kind.value}" if self.tag == "advice" else f"/v1/{self.kind.value}"


_ROUTES: Final = (
    AskedRoute(
        QuestionKind.WHAT_IF, asks.WhatIfRequest, pods.WhatIfReply, what_if_documents, tag="what-if", lines=False
    ),
    AskedRoute(QuestionKind.CAPACITY, asks.CapacityRequest, pods.CapacityReply, capacity_documents, tag="what-if"),
    AskedRoute(QuestionKind.PLAN, asks.PlanRequest, None, plan_documents, tag="what-if"),
    AskedRoute(QuestionKind.RESIZE_CHECK, asks.ResizeCheckRequest, advice.ResizeCheckReply, resize_check_documents),
    AskedRoute(QuestionKind.RESTART_CHECK, asks.RestartCheckRequest, advice.RestartCheckReply, restart_check_documents),
    AskedRoute(QuestionKind.MAKE_ROOM, asks.MakeRoomRequest, advice.MakeRoomReply, make_room_documents),
    AskedRoute(QuestionKind.DEFRAGMENT, asks.DefragmentRequest, advice.DefragmentReply, defragment_documents),
    AskedRoute(QuestionKind.TUNE, asks.TuneRequest, advice.TuneReply, tune_documents),
    AskedRoute(QuestionKind.RIGHTSIZE, asks.RightsizeRequest, advice.RightsizeReply, rightsize_documents),
)
TABLE: Final = {route.kind: route for route in _ROUTES}
"""The questions of people. That about a past call has no route."""


def answer(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[bytes]:
    """The reply, in pieces as they become known.

    Raises:
        WireError: the question is malformed.
        UnknownNodeError: it names a node without a report.
    """
    if asked.past is not None:
        return _whole(_past_verdict(asked.past))
    documents = TABLE[asked.kind].documents(asked, snapshot, judge)
    return _batches(documents) if asked.lines else _whole(deque(documents, maxlen=1)[0])


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


def _batches(documents: Iterable[ReplyBody]) -> Iterator[bytes]:
    """The documents as lines: one by one at first, then in groups. Progress is not held back."""
    batch: list[bytes] = []
    sent = 0
    for document in documents:
        batch.append(msgspec.json.encode(document) + b"\n")
        if sent < SINGLE_LINES or len(batch) >= BATCH or isinstance(document, ProgressLine):
            yield b"".join(batch)
            sent += len(batch)
            batch = []
    if batch:
        yield b"".join(batch)
