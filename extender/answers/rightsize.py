"""The reply to rightsize."""

from collections.abc import Iterator
from operator import attrgetter

from extender.answers.finding import MAX_SHARE, OUT_OF_TIME, blind_spots, placed_by_kubelet, progress, subjects_of
from extender.answers.question import Asked
from extender.answers.reading import question_of
from extender.answers.snapshot import Snapshot
from extender.answers.words import plural
from extender.questions.rightsize import MAX_SHAPES, Rightsize, Rightsizing
from extender.scheduling.judge import Judge
from extender.wire.advice_replies import RightsizeReply
from extender.wire.questions import RightsizeRequest
from extender.wire.replies import ReplyBody


def rightsize_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """Progress, then one `RightsizeReply`."""
    question = question_of(asked, RightsizeRequest)
    subjects, left_out = placed_by_kubelet(subjects_of(snapshot, question.nodes))
    notes = [*left_out, *blind_spots(subjects)]
    search = Rightsize(subjects, judge)
    found: list[Rightsizing] = []
    done = 0
    for done, suggestions in enumerate(search.run(), start=1):
        found += suggestions
        yield from progress(done, search.shapes)
        if asked.spent() > MAX_SHARE:
            break
    if done < search.shapes:
        notes.append(f"the time was over after {done} of {plural(search.shapes, 'shape')} of pods; {OUT_OF_TIME}")
    if search.shapes == MAX_SHAPES:
        notes.append(f"only the {MAX_SHAPES} shapes with the most pods were examined")
    found.sort(key=attrgetter("gain"), reverse=True)
    yield RightsizeReply(
        suggestions=[each.suggestion for each in found[: question.limit]],
        shapes=search.shapes,
        found=len(found),
        notes=notes,
    )
