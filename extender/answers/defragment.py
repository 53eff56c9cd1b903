"""The reply to defragment: how many copies each number of moves gains."""

from collections.abc import Iterator

from extender.answers.finding import OUT_OF_TIME, blind_spots, limits_of, progress, subjects_of
from extender.answers.make_room import evicted, eviction_objects
from extender.answers.notes import all_notes
from extender.answers.pod_summary import pod_summary
from extender.answers.question import Asked
from extender.answers.reading import question_of, workload_of
from extender.answers.snapshot import Snapshot
from extender.answers.words import plural
from extender.questions.defragment import MAX_TRIALS, CurvePoint, Defragment
from extender.questions.dra import with_forecast
from extender.questions.evictions import Evictions
from extender.scheduling.judge import Judge
from extender.wire.advice_replies import DefragmentPoint, DefragmentReply
from extender.wire.questions import DefragmentRequest
from extender.wire.replies import ReplyBody


def defragment_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """Progress, then one `DefragmentReply`."""
    question = question_of(asked, DefragmentRequest)
    workload = workload_of(asked, question.pod, "pod")
    subjects = with_forecast(asked.forecast, [workload.pod], subjects_of(snapshot, question.nodes))
    evictions = Evictions(
        subjects,
        asked.budgets,
        judge,
        max_priority=question.priority,
        max_trials=MAX_TRIALS,
        workload=workload,
        namespaces=question.namespaces,
    )
    notes = [*all_notes([workload], subjects, 0 if asked.forecast else None), *blind_spots(subjects)]
    search = Defragment(workload, evictions, judge, question.max_moves, asked.spent)
    of = len(evictions.subjects) + question.max_moves
    points: list[CurvePoint] = []
    for done, point in enumerate(search.run(), start=1):
        points += [point] if point is not None else []
        yield from progress(min(done, of), of)
    moves = [move for point in points if point.eviction is not None for move in point.eviction.moves]
    yield DefragmentReply(
        pod=pod_summary(workload),
        curve=[
            DefragmentPoint.filled(
                point, evictions=[] if point.eviction is None else [evicted(move) for move in point.eviction.moves]
            )
            for point in points
        ],
        objects=eviction_objects(moves),
        complete=not list(_left_out(search)),
        notes=[*notes, *_left_out(search)],
    )


def _left_out(search: Defragment) -> Iterator[str]:
    nodes = len(search.evictions.subjects)
    if search.nodes_left_out:
        yield f"{plural(search.nodes_left_out, 'node')} of {nodes + search.nodes_left_out} left out of all numbers"
    yield from limits_of(search.evictions, MAX_TRIALS)
    if search.is_late:
        yield f"the time was over: {search.nodes_searched} of {plural(nodes, 'node')} were searched; {OUT_OF_TIME}"
    elif search.nodes_searched < nodes:
        yield f"{search.nodes_searched} of {plural(nodes, 'node')} were searched, those with the most free CPUs first"
