"""The reply to tune: the configurations on the Pareto front, with what a change to each would do to running pods."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import yaml
from pydantic import TypeAdapter

from extender.answers.advice_requests import TuneRequest
from extender.answers.alignments import alignment_counts
from extender.answers.finding import OUT_OF_TIME, blind_spots, placed_by_kubelet, progress, subjects_of
from extender.answers.question import Asked
from extender.answers.reading import parse_question, read_question, workload_of
from extender.answers.requests import MAX_PLANNED_PODS
from extender.answers.snapshot import Snapshot
from extender.answers.words import plural
from extender.kubelet.config import KubeletConfig
from extender.kubelet.sets import format_list
from extender.questions.restart_check import restart_check
from extender.questions.tune import MAX_FRONT, Tune
from extender.questions.tune_front import Change, Measures, Tuned
from extender.replay.alignment import Alignment
from extender.scheduling.judge import Judge
from extender.wire.errors import WireError
from extender.wire.workloads import PodWorkload

_REQUEST: Final = TypeAdapter(TuneRequest)
RESTART_SHARE: Final = 0.85
"""The share of the time after which no further configuration is checked for restarts."""
Json = dict[str, object]


def tune_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[Json]:
    """Progress, then one `TuneReply`."""
    del judge  # no scheduler chooses here
    question = parse_question(_REQUEST, read_question(asked))
    pods = _pods(asked, question) if question.pods else None
    subjects, left_out = placed_by_kubelet(subjects_of(snapshot, question.nodes))
    search = Tune(subjects, pods, question.seed, question.configurations, asked.spent)
    of = search.steps + MAX_FRONT + 1
    found: Sequence[Tuned] = ()
    for done, so_far in enumerate(search.run(), start=1):
        found = so_far
        yield from progress(min(done, search.steps), of)
    now = next(each for each in found if not each.change)
    front = sorted((e for e in found if e.is_best and e.change), key=lambda e: (e.is_weaker(now), [-v for v in e.rank]))
    rows = []
    for done, each in enumerate([now, *front], start=search.steps + 1):
        rows.append(_row(search, each, now, is_late=lambda: asked.spent() > RESTART_SHARE))
        yield from progress(done, of)
    notes = [*left_out, *blind_spots(subjects, reads_pods=pods is None)]
    if search.nodes_left_out:
        drawn = len(search.subjects)
        notes.append(
            f"{plural(drawn, 'node')} of {drawn + search.nodes_left_out} {'was' if drawn == 1 else 'were'} replayed, "
            "drawn at random: all numbers are for these nodes only"
        )
    if search.is_late:
        notes.append(f"the time was over after {plural(len(found), 'configuration')}; {OUT_OF_TIME}")
    elif len(found) < search.configurations:
        notes.append(f"{len(found)} of {search.configurations} configurations were tried, fewer changes first")
    notes.append(
        "no scheduler is replayed: each node keeps its own pods, or gets its share of the list; a pod that one node "
        "refuses counts as refused, where a scheduler would look for another node"
    )
    yield {
        "configurations": rows,
        "pods": search.pods,
        "nodes": len(search.subjects),
        "tried": len(found),
        "complete": not search.is_late and not search.nodes_left_out and len(found) == search.configurations,
        "seed": question.seed,
        "notes": notes,
    }


def _pods(asked: Asked, question: TuneRequest) -> list[PodWorkload]:
    pods: list[PodWorkload] = []
    for i, entry in enumerate(question.pods):
        workload = workload_of(asked, entry.pod, f"pods[{i}].pod")
        copies = workload.replicas if entry.copies is None else entry.copies
        if len(pods) + copies > MAX_PLANNED_PODS:
            raise WireError(f"pods[{i}]", f"more than {MAX_PLANNED_PODS} pods in one question")
        pods += [workload] * copies
    return pods


def _row(search: Tune, each: Tuned, now: Tuned, *, is_late: Callable[[], bool]) -> Json:
    count = len(each.trials)
    sums: Counter[Alignment] = Counter()
    for trial in each.trials:
        sums.update(trial.alignments)
    ranges = {name: search.spread(each, name) for name in Measures._fields}
    return {
        "current": not each.change,
        "best": each.is_best,
        "change": dict(each.change),
        "patches": _patches(search, each.change),
        "admitted": round(sum(trial.admitted for trial in each.trials) / count),
        **{f"{name}_least": least for name, (least, _) in ranges.items()},
        **{f"{name}_most": most for name, (_, most) in ranges.items()},
        "guarantee_ends": search.nodes_weaker(each, now),
        **{name: round(value / count) for name, value in alignment_counts(sums).items()},
        "refused": round(sum(trial.refused for trial in each.trials) / count),
        "stranded_cpus": round(sum(trial.stranded_cpus for trial in each.trials) / count),
        "failing_nodes": max(trial.failing_nodes for trial in each.trials),
        "restart": _restart(search, each.change, is_late) if each.change else None,
    }


def _patches(search: Tune, change: Change) -> list[Json]:
    """The change as KubeletConfiguration. Nodes with the same one are together; those that need none are left out."""
    found: dict[str, tuple[Json, list[str]]] = {}
    for subject in search.subjects:
        assert subject.kubelet is not None
        fields = _different(subject.kubelet.config, search.config(subject, change), change)
        if fields:
            found.setdefault(repr(fields), (fields, []))[1].append(subject.name)
    return [{"nodes": nodes, "patch": _patch(fields)} for fields, nodes in found.values()]


def _patch(fields: Json) -> str:
    document = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **fields}
    return str(yaml.safe_dump(document, sort_keys=False))


def _different(before: KubeletConfig, after: KubeletConfig, change: Change) -> Json:
    """The fields of KubeletConfiguration that a node needs for a change; empty: it has them."""
    fields: Json = {}
    for name, value in change:
        if name == "reservedSystemCPUs":
            if after.reserved_system_cpus != before.reserved_system_cpus:
                fields[name] = format_list(after.reserved_system_cpus)
        elif name.endswith("Options"):
            is_cpu = name == "cpuManagerPolicyOptions"
            old, new = (
                dict(c.cpu_manager_policy_options if is_cpu else c.topology_manager_policy_options)
                for c in (before, after)
            )
            if old != new:
                fields[name] = new
        else:
            old_value = {
                "topologyManagerPolicy": before.topology_manager_policy,
                "topologyManagerScope": before.topology_manager_scope,
                "memoryManagerPolicy": before.memory_manager_policy,
            }[name]
            if old_value != value:
                fields[name] = value
    if fields.get("memoryManagerPolicy") == "Static":
        fields["reservedMemory"] = [
            {"numaNode": each.numa, "limits": {name: str(amount) for name, amount in each.limits_bytes.items()}}
            for each in after.reserved_memory
        ]
    return fields


def _restart(search: Tune, change: Change, is_late: Callable[[], bool]) -> Json | None:
    """What restart-check says of the change, counted; None if the time is over before all nodes are checked."""
    results = []
    for subject in search.subjects:
        if is_late():
            return None
        results.append(restart_check(subject, search.config(subject, change)))
    return {
        "files_refused": sum(bool(each.refused_files) for each in results),
        "not_starting": sum(bool(each.config_error) for each in results),
        "pods_failing": sum(len(each.failing) for each in results),
        "pods_to_drain": sum(len(each.drain_first) for each in results),
    }
