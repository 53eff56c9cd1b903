"""Advice: from the body of a question to its answer. A long answer is preceded by documents with its progress."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from extender.answers.defragment import defragment_documents
from extender.answers.make_room import make_room_documents
from extender.answers.question import Asked, QuestionKind
from extender.answers.resize_check import resize_check_documents
from extender.answers.restart_check import restart_check_documents
from extender.answers.rightsize import rightsize_documents
from extender.answers.snapshot import Snapshot
from extender.answers.tune import tune_documents
from extender.scheduling.judge import Judge
from extender.wire.replies import ReplyBody

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
