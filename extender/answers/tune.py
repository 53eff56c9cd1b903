"""The reply to tune: the configurations on the Pareto front, with what a change to each would do to running pods."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import yaml
from pydantic import TypeAdapter

from extender.answers.advice_requests import TuneRequest
from extender.answers.alignments import alignment_counts
from extender.answers.finding import pod_notes_of, progress, subjects_of
from extender.answers.question import Asked
from extender.answers.reading import parse_question, read_question, workload_of
from extender.answers.requests import MAX_PLANNED_PODS
from extender.answers.snapshot import Snapshot
from extender.questions.restart_check import restart_check
from extender.questions.tune import Change, Tune, Tuned
from extender.replay.alignment import Alignment
from extender.replay.pod import Pod
from extender.scheduling.judge import Judge
from extender.wire.errors import WireError

_REQUEST: Final = TypeAdapter(TuneRequest)
MAX_FRONT: Final = 6
Json = dict[str, object]


def tune_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[Json]:
    """Progress, then one `TuneReply`."""
    del judge  # no scheduler chooses here
    question = parse_question(_REQUEST, read_question(asked))
    pods = _pods(asked, question) if question.pods else None
    subjects = subjects_of(snapshot, question.nodes)
    search = Tune(subjects, pods, question.seed, question.configurations)
    found: Sequence[Tuned] = ()
    for done, so_far in enumerate(search.run(), start=1):
        found = so_far
        yield from progress(min(done, search.steps), search.steps)
    front = sorted((each for each in found if each.is_best), key=lambda each: each.rank, reverse=True)
    now = next(each for each in found if not each.change)
    notes = pod_notes_of(subjects) if pods is None else []
    if any("memoryManagerPolicy" in dict(each.change) for each in front):
        notes.append("with memoryManagerPolicy Static every node needs reservedMemory that equals its reservation")
    if len(front) > MAX_FRONT:
        notes.append(f"{len(front) - MAX_FRONT} more configurations of the front are not listed")
    listed = [now, *(each for each in front if each.change)]
    yield {
        "configurations": [_row(search, each) for each in listed[: MAX_FRONT + 1]],
        "pods": now.trials[0].admitted + now.trials[0].refused,
        "nodes": len(search.subjects),
        "tried": len(found),
        "seed": question.seed,
        "notes": notes,
    }


def _pods(asked: Asked, question: TuneRequest) -> list[Pod]:
    pods: list[Pod] = []
    for i, entry in enumerate(question.pods):
        workload = workload_of(asked, entry.pod, f"pods[{i}].pod")
        copies = workload.replicas if entry.copies is None else entry.copies
        if len(pods) + copies > MAX_PLANNED_PODS:
            raise WireError(f"pods[{i}]", f"more than {MAX_PLANNED_PODS} pods in one question")
        pods += [workload.copy(number) for number in range(copies)]
    return pods


def _row(search: Tune, each: Tuned) -> Json:
    count = len(each.trials)
    sums: Counter[Alignment] = Counter()
    for trial in each.trials:
        sums.update(trial.alignments)
    admitted = [trial.admitted for trial in each.trials]
    return {
        "current": not each.change,
        "best": each.is_best,
        "change": dict(each.change),
        "patch": _patch(each.change),
        "admitted": round(sum(admitted) / count),
        "admitted_least": min(admitted),
        "admitted_most": max(admitted),
        **{name: round(value / count) for name, value in alignment_counts(sums).items()},
        "refused": round(sum(trial.refused for trial in each.trials) / count),
        "stranded_cpus": round(sum(trial.stranded_cpus for trial in each.trials) / count),
        "failing_nodes": max(trial.failing_nodes for trial in each.trials),
        "restart": _restart(search, each.change) if each.change else None,
    }


def _patch(change: Change) -> str:
    """The change as KubeletConfiguration."""
    if not change:
        return ""
    document: Json = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    for name, value in change:
        is_option = name.endswith("Options")
        document[name] = ({value: "true"} if value else {}) if is_option else value
    return yaml.safe_dump(document, sort_keys=False)


def _restart(search: Tune, change: Change) -> Json:
    """What restart-check says of the change, counted."""
    results = [restart_check(subject, search.config(subject, change)) for subject in search.subjects]
    return {
        "files_refused": sum(bool(each.refused_files) for each in results),
        "not_starting": sum(bool(each.config_error) for each in results),
        "pods_failing": sum(len(each.failing) for each in results),
        "pods_to_drain": sum(len(each.drain_first) for each in results),
    }
