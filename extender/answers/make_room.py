"""The reply to make-room: plans, and what to apply."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from operator import itemgetter
from typing import Final

import yaml

from extender.answers.finding import MAX_SHARE, OUT_OF_TIME, blind_spots, limits_of, progress, subjects_of
from extender.answers.notes import all_notes
from extender.answers.pod_summary import pod_summary
from extender.answers.question import Asked
from extender.answers.reading import question_of, workload_of
from extender.answers.snapshot import Snapshot
from extender.answers.words import plural
from extender.kubelet.sets import iter_bits
from extender.questions.dra import with_forecast
from extender.questions.evictions import Evictions, Move
from extender.questions.make_room import MAX_ALTERNATIVES, MAX_TRIALS, MakeRoom, OpenedPlace
from extender.replay.creation import whole_placements
from extender.scheduling.judge import Judge
from extender.scheduling.node_totals import format_milli
from extender.wire.advice_replies import EvictedPod, MakeRoomReply, RoomPlan
from extender.wire.errors import WireError
from extender.wire.questions import MakeRoomRequest
from extender.wire.replies import ReplyBody
from extender.wire.templates import find_templates
from extender.wire.verdicts import container_placements

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}", re.ASCII)


def make_room_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """Progress, then one `MakeRoomReply`."""
    question = question_of(asked, MakeRoomRequest)
    workload = workload_of(asked, question.pod, "pod")
    spec = _spec(question.pod)
    subjects = with_forecast(asked.forecast, [workload.pod], subjects_of(snapshot, None))
    priority = _priority(spec) if question.priority is None else question.priority
    evictions = Evictions(
        subjects,
        asked.budgets,
        judge,
        max_priority=priority,
        max_trials=MAX_TRIALS,
        workload=workload,
        namespaces=question.namespaces,
    )
    evictions.is_late = lambda: asked.spent() > MAX_SHARE
    snapshot.subjects(question.nodes)  # raises UnknownNodeError
    room = MakeRoom(workload, evictions, question.nodes)
    notes = [*all_notes([workload], subjects, 0 if asked.forecast else None), *blind_spots(subjects)]
    if asked.budgets is None and all(subject.around.pods is not None for subject in subjects):
        notes.append("disruption budgets are not watched: they are not counted")
    plans = [place] if (place := room.now()) is not None else []
    if not plans and spec.get("preemptionPolicy") == "Never":
        notes.append("the pod's preemptionPolicy is Never: no pod is evicted for it")
    elif not plans:
        for done, found in enumerate(room.run(question.max_evictions), start=1):
            plans += [found] if found is not None else []
            yield from progress(done, room.steps)
            if asked.spent() > MAX_SHARE:
                notes.append(f"the time was over after {done} of {room.steps} searches of nodes; {OUT_OF_TIME}")
                break
        plans = _best(plans)
    incomplete = [f"the search ended early; {OUT_OF_TIME}"] if asked.spent() > MAX_SHARE else []
    incomplete += limits_of(evictions, MAX_TRIALS)
    is_now = bool(plans) and plans[0].eviction is None
    yield MakeRoomReply(
        pod=pod_summary(workload),
        result="fits" if is_now else "room" if plans else "none",
        plans=[_plan(plan) for plan in plans],
        searched=MAX_TRIALS - evictions.trials_left,
        complete=not incomplete,
        blocked=[] if plans else list(_blocked(room, evictions)),
        notes=[*notes, *incomplete],
    )


def _blocked(room: MakeRoom, evictions: Evictions) -> Iterator[str]:
    """Why there is no plan."""
    yield from (f"{plural(count, 'node')}: {reason}" for reason, count in room.blocked().most_common())
    yield from (
        f"{plural(count, 'pod')} may not be evicted: {reason}" for reason, count in evictions.why_kept().most_common()
    )


def _spec(document: Mapping[str, object]) -> Mapping[str, object]:
    """The pod's spec, as far as it can be found by structure."""
    templates = find_templates(document) if document.get("kind", "Pod") != "Pod" else []
    below: object = document
    for key in templates[0].keys if templates else ():
        below = below[key] if isinstance(below, dict) and isinstance(key, str) else {}
    spec = below.get("spec") if isinstance(below, dict) else None
    return spec if isinstance(spec, dict) else {}


def _priority(spec: Mapping[str, object]) -> int:
    value = spec.get("priority")
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError("pod.spec.priority", "an integer is expected")
    return value


def _best(plans: Iterable[OpenedPlace]) -> list[OpenedPlace]:
    """The cheapest plan of each node, cheapest first."""
    found: dict[str, OpenedPlace] = {}
    for _, plan in sorted(((p.eviction.cost, p) for p in plans if p.eviction is not None), key=itemgetter(0)):
        found.setdefault(plan.subject.name, plan)
    return list(found.values())[:MAX_ALTERNATIVES]


def _plan(plan: OpenedPlace) -> RoomPlan:
    moves = () if plan.eviction is None else plan.eviction.moves
    return RoomPlan(
        node=plan.subject.name,
        numa=list(iter_bits(plan.alignment.numa)),
        containers=container_placements(whole_placements(plan.admitted), plan.alignment),
        cordon=_cordoned(plan.subject.name, moves),
        evictions=[evicted(move) for move in moves],
        objects=eviction_objects(moves),
        script=script_of(plan.subject.name, moves),
    )


def evicted(move: Move) -> EvictedPod:
    """One pod to evict."""
    pod = move.pod
    return EvictedPod.filled(
        pod,
        pod=pod.name,
        node=move.source,
        requests={name: format_milli(name, milli) for name, milli in pod.requests_milli.items()},
        to=move.node,
        numa=list(iter_bits(move.numa)),
    )


def eviction_objects(moves: Sequence[Move]) -> str:
    """Eviction objects as YAML, for a descheduler or the API."""
    objects = [
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": move.pod.workload.namespace, "name": move.pod.workload.name},
        }
        for move in moves
    ]
    return yaml.safe_dump_all(objects, sort_keys=False) if objects else ""


def _cordoned(node: str, moves: Sequence[Move]) -> list[str]:
    """The nodes to cordon before the first eviction: the target, and every node that loses a pod."""
    return list(dict.fromkeys([node, *(move.source for move in moves)])) if moves else []


_FUNCTIONS: Final = files("extender.answers").joinpath("move.sh").read_text()


def script_of(node: str, moves: Sequence[Move]) -> str:
    """The moves as a shell script: one after another, and each waits until the replacement has a node.

    It ends if a replacement gets another node than the plan says, before any further pod is evicted. Nodes are cordoned
    while a pod has to leave them, and the target until all have left.

    Empty if Kubernetes does not allow one of the names: nodes report them, and a shell must not run them as code.
    """
    nodes = _cordoned(node, moves)
    names = [*nodes, *(n for m in moves for n in (m.pod.workload.namespace, m.pod.workload.name, m.node))]
    if not moves or not all(_NAME.fullmatch(name) for name in names):
        return ""
    every = " ".join(nodes)
    lines = ["#!/bin/sh", "set -eu", _FUNCTIONS.rstrip("\n")]
    lines += [f"kubectl cordon {every}", f"trap 'kubectl uncordon {every}' EXIT"]
    for number, move in enumerate(moves, start=1):
        lines.append(f"move {move.pod.workload.namespace} {move.pod.workload.name} {move.node}")
        if move.source != node and all(later.source != move.source for later in moves[number:]):
            lines.append(f"kubectl uncordon {move.source}")
    return "\n".join([*lines, ""])
