"""The reply to make-room: plans, and what to apply."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final

import yaml
from pydantic import TypeAdapter

from extender.answers.advice_requests import MakeRoomRequest
from extender.answers.finding import MAX_SHARE, OUT_OF_TIME, blind_spots, progress, subjects_of
from extender.answers.notes import all_notes
from extender.answers.pod_summary import pod_summary
from extender.answers.question import Asked
from extender.answers.reading import parse_question, read_question, workload_of
from extender.answers.snapshot import Snapshot
from extender.questions.evictions import Evictions, Move
from extender.questions.make_room import MAX_ALTERNATIVES, MAX_TRIALS, MakeRoom, OpenedPlace
from extender.replay.sets import iter_bits
from extender.scheduling.judge import Judge
from extender.scheduling.totals import format_milli
from extender.wire.errors import WireError
from extender.wire.templates import find_templates
from extender.wire.verdicts import aligned_placements_to_json

_REQUEST: Final = TypeAdapter(MakeRoomRequest)
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}", re.ASCII)
Json = dict[str, object]


def make_room_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[Json]:
    """Progress, then one `MakeRoomReply`."""
    question = parse_question(_REQUEST, read_question(asked))
    workload = workload_of(asked, question.pod, "pod")
    spec = _spec(question.pod)
    subjects = subjects_of(snapshot, None)
    priority = _priority(spec) if question.priority is None else question.priority
    evictions = Evictions(subjects, asked.budgets, judge, max_priority=priority, max_trials=MAX_TRIALS)
    evictions.is_late = lambda: asked.spent() > MAX_SHARE
    snapshot.subjects(question.nodes)  # raises UnknownNodeError
    room = MakeRoom(workload, evictions, question.nodes)
    notes = [*all_notes([workload], subjects), *blind_spots(subjects)]
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
    is_now = bool(plans) and plans[0].eviction is None
    yield {
        "pod": pod_summary(workload),
        "result": "fits" if is_now else "room" if plans else "none",
        "plans": [_plan(plan) for plan in plans],
        "searched": MAX_TRIALS - evictions.trials_left,
        "complete": evictions.trials_left > 0 and asked.spent() <= MAX_SHARE,
        "notes": notes,
    }


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


def _plan(plan: OpenedPlace) -> Json:
    moves = () if plan.eviction is None else plan.eviction.moves
    return {
        "node": plan.subject.name,
        "numa": list(iter_bits(plan.alignment.numa)),
        "containers": aligned_placements_to_json(plan.admitted.whole_placements, plan.alignment),
        "evictions": [move_to_json(move) for move in moves],
        "objects": eviction_objects(moves),
        "script": _script(plan.subject.name, moves),
    }


def move_to_json(move: Move) -> Json:
    """One `EvictedPod`."""
    pod, placed = move.pod, move.placed
    assert placed.node is not None
    assert placed.alignment is not None
    return {
        "pod": pod.name,
        "node": move.source,
        "priority": pod.priority,
        "owner": pod.owner,
        "requests": {name: format_milli(name, milli) for name, milli in pod.requests_milli.items()},
        "to": placed.node,
        "numa": list(iter_bits(placed.alignment.numa)),
    }


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


def _script(node: str, moves: Sequence[Move]) -> str:
    """The evictions as a shell script. It cordons the node, so that the replacements do not come back to it.

    A controller may create a replacement only when the old pod is gone, so a person ends the cordon.

    Empty if Kubernetes does not allow one of the names: nodes report them, and a shell must not run them as code.
    """
    names = [node, *(n for m in moves for n in (m.pod.workload.namespace, m.pod.workload.name, m.placed.node or ""))]
    if not moves or not all(_NAME.fullmatch(name) for name in names):
        return ""
    lines = ["#!/bin/sh", "set -eu", f"kubectl cordon {node}"]
    for move in moves:
        namespace, name = move.pod.workload.namespace, move.pod.workload.name
        lines += [
            f"# its replacement fits on {move.placed.node}",
            f"kubectl create --raw /api/v1/namespaces/{namespace}/pods/{name}/eviction -f - <<'END'",
            f'{{"apiVersion":"policy/v1","kind":"Eviction","metadata":{{"namespace":"{namespace}","name":"{name}"}}}}',
            "END",
        ]
    for move in moves:
        lines.append(
            f"kubectl wait --for=delete pod/{move.pod.workload.name} -n {move.pod.workload.namespace} --timeout=5m"
        )
    return "\n".join([*lines, f"echo 'once the replacements are scheduled, run: kubectl uncordon {node}'", ""])
