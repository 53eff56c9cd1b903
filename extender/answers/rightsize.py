"""The reply to rightsize."""

from collections.abc import Iterator
from operator import attrgetter
from typing import Annotated, Final

from pydantic import TypeAdapter

from extender.answers.advice_requests import RightsizeRequest
from extender.answers.finding import MAX_SHARE, OUT_OF_TIME, blind_spots, placed_by_kubelet, progress, subjects_of
from extender.answers.question import Asked
from extender.answers.reading import parse_question, read_question
from extender.answers.snapshot import Snapshot
from extender.answers.words import plural
from extender.questions.rightsize import MAX_SHAPES, Rightsize, Rightsizing
from extender.scheduling.judge import Judge
from extender.scheduling.totals import format_milli
from extender.wire.replies import Notes, ReplyBody, about

_REQUEST: Final = TypeAdapter(RightsizeRequest)
MAX_EXAMPLES: Final = 3


class RightsizeSuggestion(ReplyBody):
    """A smaller request of one shape of pods."""

    pods: Annotated[int, about("Pods of this shape.")]
    examples: Annotated[list[str], about("Some of them, NAMESPACE/NAME.")]
    nodes: Annotated[int, about("Nodes that they run on.")]
    container: Annotated[str, about("Name of the container.")]
    resource: Annotated[str, about("`cpu` or `memory`.")]
    before: Annotated[str, about("Its request now.")]
    after: Annotated[str, about("The request that reaches the boundary.")]
    boundary: Annotated[str, about("Which boundary, in words.")]
    copies_before: Annotated[int, about("Aligned copies on these nodes if they were empty, now.")]
    copies_after: Annotated[int, about("The same copies with the smaller request.")]
    freed: Annotated[str, about("How much less the pods would request in total.")]


class RightsizeReply(ReplyBody):
    """Suggestions, the most valuable first: by the share of copies won, times the pods."""

    suggestions: Annotated[list[RightsizeSuggestion], about("At most `limit`.")]
    shapes: Annotated[int, about("Shapes examined.")]
    found: Annotated[int, about("Suggestions found.")]
    notes: Notes


def rightsize_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """Progress, then one `RightsizeReply`."""
    question = parse_question(_REQUEST, read_question(asked))
    subjects, left_out = placed_by_kubelet(subjects_of(snapshot, question.nodes))
    search = Rightsize(subjects, judge)
    found: list[Rightsizing] = []
    done = 0
    for done, suggestions in enumerate(search.run(), start=1):
        found += suggestions
        yield from progress(done, search.shapes)
        if asked.spent() > MAX_SHARE:
            break
    notes = [*left_out, *blind_spots(subjects)]
    if done < search.shapes:
        notes.append(f"the time was over after {done} of {plural(search.shapes, 'shape')} of pods; {OUT_OF_TIME}")
    if search.shapes == MAX_SHAPES:
        notes.append(f"only the {MAX_SHAPES} shapes with the most pods were examined")
    found.sort(key=attrgetter("gain"), reverse=True)
    yield RightsizeReply(
        suggestions=[_suggestion(each) for each in found[: question.limit]],
        shapes=search.shapes,
        found=len(found),
        notes=notes,
    )


def _suggestion(each: Rightsizing) -> RightsizeSuggestion:
    return RightsizeSuggestion(
        pods=len(each.pods),
        examples=[pod.name for pod in each.pods[:MAX_EXAMPLES]],
        nodes=each.nodes,
        container=each.container,
        resource=each.resource,
        before=format_milli(each.resource, each.before),
        after=format_milli(each.resource, each.after),
        boundary=each.boundary,
        copies_before=each.copies_before,
        copies_after=each.copies_after,
        freed=format_milli(each.resource, (each.before - each.after) * len(each.pods)),
    )
