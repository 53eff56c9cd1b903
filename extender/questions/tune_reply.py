"""The reply to tune: the configurations on the Pareto front, with what a change to each would do to running pods."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import yaml

from extender.kubelet.config import KubeletConfig
from extender.kubelet.sets import format_list
from extender.questions.asked import Asked
from extender.questions.finding import OUT_OF_TIME, blind_spots, placed_by_kubelet, progress, subjects_of
from extender.questions.hypothetical import attributes_of
from extender.questions.node_pods import pods_of
from extender.questions.plan import entries_of
from extender.questions.reading import question_of
from extender.questions.restart_check import restart_check
from extender.questions.snapshot import Snapshot
from extender.questions.tune import Tune
from extender.questions.tune_front import Change, Measures, Tuned
from extender.questions.words import plural
from extender.replay.alignment import Alignment
from extender.scheduling.judge import Judge
from extender.wire.advice_replies import KubeletPatch, TunedConfiguration, TuneReply, TuneRestart
from extender.wire.questions import TuneRequest
from extender.wire.replies import ReplyBody
from extender.wire.verdicts import alignment_counts

MAX_FRONT: Final = 6
"""How many configurations of the front are listed."""
RESTART_SHARE: Final = 0.85
"""The share of the time after which no further configuration is checked for restarts."""


def tune_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """Progress, then one `TuneReply`."""
    del judge  # no scheduler chooses here
    question = question_of(asked, TuneRequest)
    entries = entries_of(asked, question.pods, [f"pods[{i}].pod" for i in range(len(question.pods))])
    pods = [workload for workload, copies in entries for _ in range(copies)] if question.pods else None
    subjects, left_out = placed_by_kubelet(subjects_of(snapshot, question.nodes))
    search = Tune(subjects, pods, question.seed, question.configurations, asked.spent)
    drawn = {each.name for each in search.subjects}
    pods_on = (lambda each: pods_of(each) if each.name in drawn else []) if pods is None else None
    notes = [*left_out, *blind_spots(subjects, pods_on)]
    of = search.steps + MAX_FRONT + 1
    found: Sequence[Tuned] = ()
    for done, so_far in enumerate(search.run(), start=1):
        found = so_far
        yield from progress(min(done, search.steps), of)
    now = next(each for each in found if not each.change)
    front = sorted((e for e in found if e.is_best and e.change), key=lambda e: (e.is_weaker(now), [-v for v in e.rank]))
    rows = []
    for done, each in enumerate([now, *front[:MAX_FRONT]], start=search.steps + 1):
        rows.append(_row(search, each, now, is_late=lambda: asked.spent() > RESTART_SHARE))
        yield from progress(done, of)
    if search.nodes_left_out:
        count = len(search.subjects)
        notes.append(
            f"{plural(count, 'node')} of {count + search.nodes_left_out} {'was' if count == 1 else 'were'} replayed, "
            "drawn at random: all numbers are for these nodes only"
        )
    if search.is_late:
        notes.append(f"the time was over after {plural(len(found), 'configuration')}; {OUT_OF_TIME}")
    elif len(found) < search.configurations:
        notes.append(f"{len(found)} of {search.configurations} configurations were tried, fewer changes first")
    if len(front) > MAX_FRONT:
        notes.append(f"{len(front) - MAX_FRONT} more that no other one surpasses are not listed; these admit more pods")
    notes.append(
        "no scheduler is replayed: each node keeps its own pods, or gets its share of the list; a pod that one node "
        "refuses counts as refused, where a scheduler would look for another node"
    )
    yield TuneReply(
        configurations=rows,
        pods=search.pods,
        nodes=len(search.subjects),
        tried=len(found),
        complete=not search.is_late and not search.nodes_left_out and len(found) == search.configurations,
        seed=question.seed,
        notes=notes,
    )


def _row(search: Tune, each: Tuned, now: Tuned, *, is_late: Callable[[], bool]) -> TunedConfiguration:
    count = len(each.trials)
    sums: Counter[Alignment] = Counter()
    for trial in each.trials:
        sums.update(trial.alignments)
    spreads = {name: search.spread(each, name) for name in Measures._fields}
    return TunedConfiguration(
        current=not each.change,
        best=each.is_best,
        change=dict(each.change),
        patches=_patches(search, each.change),
        admitted=round(sum(trial.admitted for trial in each.trials) / count),
        **{f"{name}_least": least for name, (least, _) in spreads.items()},
        **{f"{name}_most": most for name, (_, most) in spreads.items()},
        guarantee_ends=search.nodes_weaker(each, now),
        **alignment_counts({alignment: round(value / count) for alignment, value in sums.items()}),
        refused=round(sum(search.pods - trial.admitted for trial in each.trials) / count),
        stranded_cpus=round(sum(trial.stranded_cpus for trial in each.trials) / count),
        failing_nodes=max(trial.failing_nodes for trial in each.trials),
        restart=_restart(search, each.change, is_late) if each.change else None,
    )


def _patches(search: Tune, change: Change) -> list[KubeletPatch]:
    """The change as KubeletConfiguration. Nodes with the same change are together; other nodes are left out."""
    found: dict[str, tuple[dict[str, object], list[str]]] = {}
    for subject in search.subjects:
        assert subject.kubelet is not None
        fields = _different(subject.kubelet.config, search.config(subject, change), change)
        if fields:
            found.setdefault(repr(fields), (fields, []))[1].append(subject.name)
    return [KubeletPatch(nodes=nodes, patch=_patch(fields)) for fields, nodes in found.values()]


def _patch(fields: dict[str, object]) -> str:
    document = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **fields}
    return str(yaml.safe_dump(document, sort_keys=False))


def _different(before: KubeletConfig, after: KubeletConfig, change: Change) -> dict[str, object]:
    """The fields of KubeletConfiguration that a node needs for a change; empty: it has them."""
    fields: dict[str, object] = {}
    for name, _ in change:
        (attribute,) = attributes_of(name)
        old, new = getattr(before, attribute), getattr(after, attribute)
        if old != new:
            fields[name] = format_list(new) if isinstance(new, int) else dict(new) if isinstance(new, Mapping) else new
    if fields.get("memoryManagerPolicy") == "Static":
        fields["reservedMemory"] = [
            {"numaNode": each.numa, "limits": {name: str(amount) for name, amount in each.limits_bytes.items()}}
            for each in after.reserved_memory
        ]
    return fields


def _restart(search: Tune, change: Change, is_late: Callable[[], bool]) -> TuneRestart | None:
    """What restart-check says of the change, counted; None if the time is over before all nodes are checked."""
    results = []
    for subject in search.subjects:
        if is_late():
            return None
        results.append(restart_check(subject, search.config(subject, change)))
    return TuneRestart(
        files_refused=sum(bool(each.refused_files) for each in results),
        not_starting=sum(bool(each.config_error) for each in results),
        pods_failing=sum(len(each.failing) for each in results),
        pods_to_drain=sum(len(each.drain_first) for each in results),
    )
