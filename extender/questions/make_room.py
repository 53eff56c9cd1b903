"""Make-room: the cheapest evictions that open an aligned place for a pod, node by node.

Rules of this file
- If a node aligns the pod now, no pod is evicted.
- A plan is proved by replay: without the evicted pods the node aligns the pod in every state that it can be in, and
  every evicted pod has a place on another node when its turn comes (`evictions`).
- Nodes are searched in the order of the fewest pods that could suffice by CPUs. Once there are some plans, a node that
  needs more pods than the best of them is skipped: alternatives are not complete.
"""

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from importlib.resources import files
from itertools import accumulate
from operator import itemgetter, or_
from typing import Final

import yaml

from extender.kubelet.admission import is_indifferent
from extender.kubelet.sets import iter_bits
from extender.kubelet.verdict import Admitted
from extender.questions.asked import Asked
from extender.questions.dra import why_no_devices, with_forecast
from extender.questions.evictions import Eviction, Evictions, Move
from extender.questions.finding import MAX_SHARE, OUT_OF_TIME, blind_spots, limits_of, progress, subjects_of
from extender.questions.node_context import Subject
from extender.questions.node_pods import place_of, pods_of, without
from extender.questions.notes import all_notes
from extender.questions.pod_summary import pod_summary
from extender.questions.reading import question_of, workload_of
from extender.questions.scheduler_checks import check_node
from extender.questions.snapshot import Snapshot
from extender.questions.words import plural
from extender.replay.alignment import Alignment, PodAlignment
from extender.replay.creation import whole_placements
from extender.scheduling.judge import Judge
from extender.scheduling.node_totals import format_milli, pod_requests
from extender.scheduling.pod_shape import SHAPE_UID, PodShape
from extender.scheduling.victims import RunningPod
from extender.wire.advice_replies import EvictedPod, MakeRoomReply, RoomPlan
from extender.wire.errors import WireError
from extender.wire.questions import MakeRoomRequest
from extender.wire.replies import ReplyBody
from extender.wire.templates import find_templates
from extender.wire.verdicts import container_placements
from extender.wire.workloads import PodWorkload

MAX_ALTERNATIVES: Final = 3
MAX_TRIALS: Final = 20_000
"""How many sets of pods one question tries at most; each takes about 0.2 ms."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}", re.ASCII)
_FUNCTIONS: Final = files("extender.questions").joinpath("move.sh").read_text()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedPlace:
    """A node that aligns the pod once the pods of `eviction` have left; None: it aligns the pod now."""

    subject: Subject
    admitted: Admitted
    alignment: PodAlignment
    eviction: Eviction | None = None


class MakeRoom:
    """The search for one pod."""

    def __init__(self, workload: PodWorkload, evictions: Evictions, targets: Container[str] | None = None) -> None:
        """*targets*: the nodes that may get the pod; None: all of them."""
        self._workload, self._evictions = workload, evictions
        self._shape: Final = PodShape(replace(workload.pod, uid=SHAPE_UID))
        self._wanted: Final = pod_requests(workload.pod, workload.rules.overhead_milli)
        self.subjects: Final = [s for s in evictions.subjects if targets is None or s.name in targets]
        self.steps: Final = 2 * len(self.subjects)
        """Values of `run`."""

    def now(self) -> OpenedPlace | None:
        """The first node that aligns the pod without any eviction."""
        return next(filter(None, map(self.place, self.subjects)), None)

    def run(self, max_evictions: int) -> Iterator[OpenedPlace | None]:
        """Search the nodes; None for a node without a plan. Plans that move pods of other nodes as well come last."""
        bounds: Mapping[str, tuple[int, list[RunningPod]]] = {s.name: self._bound(s) for s in self.subjects}
        targets = sorted(self.subjects, key=lambda s: bounds[s.name][0])
        sizes: list[int] = []
        for chains in (False, True):
            if chains and sizes and sizes[0] == 1:
                return  # a plan with pods of other nodes has at least two
            for subject in targets:
                bound, candidates = bounds[subject.name]
                most = max_evictions if len(sizes) < MAX_ALTERNATIVES else sizes[0]
                if chains and sizes:
                    most = min(max_evictions, sizes[0])
                found = None
                if bound <= min(most, len(candidates)):
                    found = self._search(subject, candidates, most, chains=chains)
                if found is not None and found.eviction is not None:
                    sizes = sorted([*sizes, found.eviction.cost.size])
                yield found

    def place(self, subject: Subject) -> OpenedPlace | None:
        """The pod's place on a node as it is now; None: it may not be aligned there, or the node is not offered."""
        place = place_of(subject, self._shape, self._workload)
        if place is None or place.alignment is None or place.alignment.alignment is not Alignment.ALIGNED:
            return None
        if self._evictions.is_kept_away(subject, self._workload):
            return None
        return OpenedPlace(subject=subject, admitted=place.admitted, alignment=place.alignment)

    def blocked(self) -> Counter[str]:
        """What keeps the nodes from opening a place, for an answer without a plan: how many nodes, by reason."""
        counts: Counter[str] = Counter()
        for subject in self.subjects:
            movable = {running.uid for running in self._evictions.candidates(subject)}
            pods = pods_of(subject)
            empty = without(subject, pods, 1)
            check = check_node(subject.name, self._wanted, self._workload.rules, empty.around).first_failure
            if check is not None:
                counts[f"kube-scheduler would not choose the node even if it were empty: {check.check}"] += 1
            elif self._evictions.is_kept_away(subject, self._workload):
                counts["a pod there keeps the pod away by required anti-affinity"] += 1
            elif why := why_no_devices(self._shape.pod, empty):
                counts[why] += 1
            elif self.place(empty) is None:
                counts["the pod would not be aligned there even if the node were empty"] += 1
            elif self.place(without(subject, [pod for pod in pods if pod.uid in movable], 1)) is None:
                counts["pods that may not be evicted are in the way"] += 1
            else:
                counts["too many pods would have to leave, or one of them would find no place elsewhere"] += 1
        return counts

    def _search(self, subject: Subject, candidates: list[RunningPod], most: int, *, chains: bool) -> OpenedPlace | None:
        eviction = self._evictions.cheapest(
            subject, candidates, lambda left: self.place(left) is not None, most=most, chains=chains
        )
        if eviction is None:
            return None
        place = self.place(without(subject, [m.pod for m in eviction.moves if m.source == subject.name], 1))
        return None if place is None else replace(place, eviction=eviction)

    def _bound(self, subject: Subject) -> tuple[int, list[RunningPod]]:
        """How many pods must leave at least, by the CPUs of the largest container, and which may.

        A number above that of the node's pods: no eviction helps, for example because the kubelet places no part of the
        pod.
        """
        candidates = self._evictions.candidates(subject)
        kubelet, state = subject.kubelet, subject.states[0]
        assert kubelet is not None
        request = self._shape.request(kubelet.rules)
        if is_indifferent(kubelet, request):
            return len(candidates) + 1, candidates
        if not kubelet.cpu_static:
            return 1, candidates
        need = max((c.cpus for c in request.containers), default=0)
        fewest = len(candidates) + 1
        for numa in kubelet.machine.numa_cpus.values():
            free = (state.cpu.default & ~kubelet.reserved_cpus & numa).bit_count()
            held = (reduce(or_, state.cpu.entries.get(pod.uid, {}).values(), 0) & numa for pod in candidates)
            largest_first = sorted(map(int.bit_count, held), reverse=True)
            enough = (n for n, cpus in enumerate(accumulate(largest_first, initial=free)) if cpus >= need)
            fewest = min(fewest, max(1, next(enough, fewest)))
        return fewest, candidates


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
    evictions = list(map(evicted, moves))
    return RoomPlan(
        node=plan.subject.name,
        numa=list(iter_bits(plan.alignment.numa)),
        containers=container_placements(whole_placements(plan.admitted), plan.alignment),
        cordon=_cordoned(plan.subject.name, moves),
        evictions=evictions,
        objects=eviction_objects(evictions),
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


def eviction_objects(evictions: Sequence[EvictedPod]) -> str:
    """Eviction objects as YAML, for a descheduler or the API."""
    names = (each.pod.split("/", 1) for each in evictions)
    objects = [
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": name}}
        for namespace, name in names
    ]
    return yaml.safe_dump_all(objects, sort_keys=False) if objects else ""


def _cordoned(node: str, moves: Sequence[Move]) -> list[str]:
    """The nodes to cordon before the first eviction: the target, and every node that loses a pod."""
    return list(dict.fromkeys([node, *(move.source for move in moves)])) if moves else []


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
