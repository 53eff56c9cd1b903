"""The reply to tune: the configurations on the Pareto front, with what a change to each would do to running pods."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Final

import yaml

from extender.answers.capacity import MAX_PLANNED_PODS, PlannedWorkload, entries_of
from extender.answers.finding import OUT_OF_TIME, blind_spots, placed_by_kubelet, progress, subjects_of
from extender.answers.question import Asked
from extender.answers.reading import LiveNodes, question_of
from extender.answers.snapshot import Snapshot
from extender.answers.words import plural
from extender.kubelet.config import KubeletConfig
from extender.kubelet.sets import format_list
from extender.questions.hypothetical import attributes_of
from extender.questions.node_pods import pods_of
from extender.questions.restart_check import restart_check
from extender.questions.tune import Tune
from extender.questions.tune_front import Change, Measures, Tuned
from extender.replay.alignment import Alignment
from extender.scheduling.judge import Judge
from extender.wire.questions import Question
from extender.wire.replies import Notes, ReplyBody, about
from extender.wire.verdicts import alignment_counts

MAX_FRONT: Final = 6
"""How many configurations of the front are listed."""
RESTART_SHARE: Final = 0.85
"""The share of the time after which no further configuration is checked for restarts."""


class TuneRequest(Question):
    """Pods and nodes for which kubelet configurations are compared."""

    pods: Annotated[
        list[PlannedWorkload],
        about("Pods to replay. Empty: the pods of each node.", max_length=MAX_PLANNED_PODS),
    ] = []
    nodes: LiveNodes = None
    seed: Annotated[int, about("Seed of the search and of the orders of arrival.", ge=0, lt=1 << 32)] = 1
    configurations: Annotated[int, about("Number of configurations to try.", ge=2, le=200)] = 32


class TuneRestart(ReplyBody):
    """What restart-check says of a change."""

    files_refused: Annotated[int, about("Nodes whose kubelets refuse a state file.")]
    not_starting: Annotated[int, about("Nodes whose kubelets do not start with the change.")]
    pods_failing: Annotated[int, about("Running pods that fail.")]
    pods_to_drain: Annotated[int, about("Running pods to evict before the restart.")]


class KubeletPatch(ReplyBody):
    """A change of the kubelet's configuration, for some nodes."""

    nodes: Annotated[list[str], about("The nodes that need it.")]
    patch: Annotated[str, about("The changed fields as KubeletConfiguration, YAML.")]


class TunedConfiguration(ReplyBody):
    """One configuration. Numbers of pods are means over the orders of arrival."""

    current: Annotated[bool, about("Whether this is the present configuration.")]
    best: Annotated[bool, about("Whether no other configuration surpasses this one.")]
    change: Annotated[
        dict[str, str],
        about(
            "Fields of KubeletConfiguration; options by name. `reservedSystemCPUs`: which NUMA nodes have the reserved "
            "CPUs."
        ),
    ]
    patches: Annotated[list[KubeletPatch], about("By node; without nodes that need no change.")]
    admitted: Annotated[int, about("Pods admitted.")]
    admitted_least: Annotated[int, about("At least so many in 19 of 20 orders of arrival.")]
    admitted_most: Annotated[int, about("At most so many in 19 of 20 orders of arrival.")]
    aligned: Annotated[int, about("Admitted pods that are on one NUMA node.")]
    aligned_least: Annotated[int, about("As `admitted_least`.")]
    aligned_most: Annotated[int, about("As `admitted_most`.")]
    split: Annotated[int, about("Admitted pods that are split over several NUMA nodes.")]
    not_managed: Annotated[int, about("Admitted pods that no manager places.")]
    refused: Annotated[int, about("Pods refused.")]
    stranded_cpus: Annotated[
        int,
        about(
            "Free CPUs of NUMA nodes that have too few for any pod that the node admits; all CPUs of a node that "
            "admits none of its pods."
        ),
    ]
    stranded_cpus_least: Annotated[int, about("As `admitted_least`.")]
    stranded_cpus_most: Annotated[int, about("As `admitted_most`.")]
    guarantee_ends: Annotated[
        int,
        about(
            "Nodes whose kubelets guarantee less alignment than now: after the change they may split a pod that they "
            "would refuse now."
        ),
    ]
    failing_nodes: Annotated[int, about("Nodes whose kubelets do not start with it.")]
    restart: Annotated[TuneRestart | None, about("What the change would do now; null: no change, or no time was left.")]


class TuneReply(ReplyBody):
    """The present configuration, then the Pareto front: those that keep the guarantee of alignment first."""

    configurations: Annotated[list[TunedConfiguration], about("The present one first; at most 7.")]
    pods: Annotated[int, about("Pods replayed.")]
    nodes: Annotated[int, about("Nodes replayed; a note says how many were left out.")]
    tried: Annotated[int, about("Configurations tried.")]
    complete: Annotated[bool, about("False: not every node and configuration was tried; see `notes`.")]
    seed: Annotated[int, about("Seed of the orders of arrival. The same seed gives the same answer.")]
    notes: Notes


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
