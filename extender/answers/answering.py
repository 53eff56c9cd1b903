"""Answers any question: from the bytes of its body to the bytes of the reply. Pure, and may take long."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import orjson

from extender.answers.advice import ADVICE
from extender.answers.capacity import capacity_document, capacity_lines, plan_lines, read_capacity, read_plan
from extender.answers.question import Asked, PastCall, QuestionKind
from extender.answers.snapshot import Snapshot
from extender.answers.what_if import what_if_document
from extender.kubelet.admission import admit
from extender.kubelet.resolve import resolve
from extender.replay.alignment import alignment_of_outcomes
from extender.scheduling.judge import Judge
from extender.scheduling.pod_shape import SHAPE_UID
from extender.wire.verdicts import explained_to_json

SINGLE_LINES: Final = 16
"""Lines sent one by one, so that progress is visible at once. Later lines are sent in groups."""
BATCH: Final = 16
MAX_PIECE_BYTES: Final = 1 << 18
"""Maximum size of a piece, which is copied between processes and sockets in one step."""
Json = Mapping[str, object]


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
        return _lines(documents) if asked.lines else _whole(deque(documents, maxlen=1)[0])
    assert asked.past is not None
    return _whole(_past_verdict(asked.past))


def _past_verdict(past: PastCall) -> Json:
    """The verdict on the pod in the past state, as a `Verdict` of the API."""
    request = resolve(replace(past.pod, uid=SHAPE_UID), past.kubelet.rules)
    outcome = admit(past.kubelet, past.state, request)
    alignment = alignment_of_outcomes(past.kubelet, (outcome, *outcome.alternatives))
    return explained_to_json(outcome.verdict, alignment)


def _whole(document: Json) -> Iterator[bytes]:
    body = orjson.dumps(document)
    for start in range(0, len(body), MAX_PIECE_BYTES):
        yield body[start : start + MAX_PIECE_BYTES]


def _lines(documents: Iterable[Json]) -> Iterator[bytes]:
    return (orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE) for document in documents)


def _batches(documents: Iterable[Json]) -> Iterator[bytes]:
    """The documents as lines: one by one at first, then in groups."""
    batch: list[bytes] = []
    sent = 0
    for document in documents:
        batch.append(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
        if sent < SINGLE_LINES or len(batch) >= BATCH:
            yield b"".join(batch)
            sent += len(batch)
            batch = []
    if batch:
        yield b"".join(batch)
