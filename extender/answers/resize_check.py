"""The reply to resize-check."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from pydantic import TypeAdapter

from extender.answers.advice_requests import ResizeCheckRequest
from extender.answers.finding import find_pod
from extender.answers.notes import all_notes
from extender.answers.placements import placement_to_json
from extender.answers.question import Asked
from extender.answers.reading import parse_question, read_question
from extender.answers.snapshot import Snapshot
from extender.questions.resize_check import ResizeError, resize_check, resized
from extender.replay.sets import format_list
from extender.scheduling.judge import Judge
from extender.scheduling.totals import format_milli
from extender.wire.errors import WireError
from extender.wire.quantity import parse_milli

MAX_ELSEWHERE: Final = 5
"""Other nodes in one answer, the best first."""
Json = dict[str, object]


_REQUEST: Final = TypeAdapter(ResizeCheckRequest)


def resize_check_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[Json]:
    """One `ResizeCheckReply`."""
    question = parse_question(_REQUEST, read_question(asked))
    texts = {"cpu": question.cpu, "memory": question.memory}
    amounts = {name: parse_milli(text, name) for name, text in texts.items() if text is not None}
    if not amounts:
        raise WireError("cpu", "cpu, memory or both are expected")
    for name, milli in amounts.items():
        if not milli:
            raise WireError(name, "a resize cannot remove a request")
    subject, pod = find_pod(snapshot, question.pod, "pod")
    before = pod.workload.pod
    try:
        after = replace(pod.workload, pod=resized(before, question.container, amounts))
    except ResizeError as error:
        raise WireError(error.field, error.reason) from None
    changed = [(old, new) for old, new in zip(before.containers, after.pod.containers, strict=True) if old is not new]
    ((old, new),) = changed
    others = [other for other in snapshot.subjects(None) if other.name != subject.name]
    found = resize_check(subject, pod, after, new.name, others, judge)
    notes = all_notes([after], [subject, *others])
    if pod.is_rebuilt:
        notes.append("the pod's object is not watched: it is taken to request what it holds")
    if found.cpus_now and found.resize.result == "fits":
        notes.append("the container keeps the exclusive CPUs that it has, whatever it requests then")
    yield {
        "pod": pod.name,
        "node": subject.name,
        "container": new.name,
        "before": {name: format_milli(name, old.requests_milli.get(name, 0)) for name in amounts},
        "after": {name: format_milli(name, amount) for name, amount in amounts.items()},
        "result": found.resize.result.value,
        "reason": found.resize.reason,
        "exclusive_cpus": format_list(found.cpus_now),
        "shared_cpus": format_list(found.shared_cpus),
        "recreated": placement_to_json(found.own_node),
        "elsewhere": [placement_to_json(each) for each in found.elsewhere[:MAX_ELSEWHERE]],
        "other_nodes": len(found.elsewhere),
        "notes": notes,
    }
