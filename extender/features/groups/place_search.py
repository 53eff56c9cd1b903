"""Searches the cluster for places for the pods of a group: which nodes may have one, the best first, in steps.

Rules of this file
- A node has places of one group at a time: those of two groups might fit in only one order of bindings.
- A pod that has not come is what the template of the group's object says, if the object is watched. Otherwise it
  counts as a copy of those of the group that came, of the shape that most of them have.
- Places that pods of the group have are kept if there is room for the others beside them. If not, all are planned anew,
  except those of pods that are being bound.
- Which nodes kube-scheduler offers for a shape is known from the last pod of that shape that came.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final

import numpy as np

from extender.bounded import BoundedMap
from extender.features.groups.groups import Groups
from extender.features.groups.held_room import PLAN_STEPS, HeldRoom, WorkLimits
from extender.features.groups.planner import ONE_A_NODE, GangPlan, PlannedNode, PodKind, merit_of
from extender.features.groups.record import GroupRecord, HeldPlace, HeldPlan, Key, Member
from extender.kubelet.budget import Budget
from extender.questions.dra_rows import asked_by
from extender.scheduling.cached_judge import CachedJudge, NotReadyError
from extender.scheduling.objections import Filtered
from extender.scheduling.pod_shape import NodeAnswers, PodShape, ShapeJudgements
from extender.scheduling.reasons import RefusalReason

RESTS: Final = "places on the node were held and not used, so it rests"
MAX_CHUNK: Final = 512
"""Nodes that a plan looks at in one step. The first step has one for each pod: the best ones mostly suffice."""
MAX_OFFERED: Final = 256
"""For how many shapes of groups the nodes are kept that kube-scheduler offered last."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The pods of a group that need places. `own`: the pod that came now. `others`: the pods that came before.

    `to_come`: the pods that have not come. `guessed`: how many of these are copies, because nothing says what they are.
    """

    own: Member
    others: Sequence[Member]
    to_come: Sequence[Member]
    guessed: int = 0

    @property
    def shapes(self) -> frozenset[tuple[object, int]]:
        """How many other pods of each shape there are. Equal for equal plans on equal nodes."""
        counts: Counter[object] = Counter()
        for shape, count in Counter(each.shape for each in (*self.others, *self.to_come)).items():
            counts[shape.key] += count
        return frozenset(counts.items())


def wanted_of(
    record: GroupRecord,
    uid: str,
    count: int,
    templates: Sequence[tuple[int, Member]] = (),
    is_aligned: Callable[[PodShape], bool] = lambda _: True,
) -> Wanted:
    """The *count* pods of the group that need places; the pod with this UID is one of them, and has come.

    *templates*: how many pods of each role the group has. A pod to come that is not aligned needs no place.
    """
    own, members = record.members[uid], record.members.values()
    others = record.waiting(uid)[: count - 1]
    left, to_come = count - 1 - len(others), list[Member]()
    came, roles = Counter(each.role for each in members), {each.role: each for each in members}
    for number, template in templates:
        missing = max(0, min(left, number - came[template.role]))
        member = roles.get(template.role, template)
        to_come += [member] * missing if is_aligned(member.shape) else []
        left -= missing
    known = Counter(each.shape for each in members)
    likely = max(members, key=lambda each: (known[each.shape], each.seen_at, each is own))
    return Wanted(own, others, [*to_come, *[likely] * left], left)


@dataclass(frozen=True, slots=True)
class _Ranking:
    """The nodes for pods of one kind. `nodes`: the nodes with their merits, the best first; read once.

    `skipped`: counts the other nodes that admit such a pod, by the reason why they are left out.
    """

    entry: ShapeJudgements
    answers: NodeAnswers
    nodes: Iterator[tuple[str, int]]
    skipped: Counter[str]

    @property
    def refusals(self) -> Counter[str]:
        """How many nodes get no place, by reason."""
        counted: Counter[str] = Counter(self.skipped)
        judgements = self.answers.kinds.judgements
        counts = np.bincount(self.answers.codes, minlength=len(judgements))
        for judgement, count in zip(judgements, counts, strict=True):
            if count and judgement.refusal is not None:
                counted[judgement.refusal.text] += int(count)
        return counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a plan has found. `held`: the places; None if there are too few. `is_found`: there is one for each pod.

    `fit`: how many pods of the group have a place in it, or a node. `why`: how many nodes refuse one more, by reason.
    """

    held: HeldPlan | None
    is_found: bool
    fit: int
    why: Mapping[str, int]


class PlaceSearch:
    """Finds places for the pods of a group. *seconds*: the most for one plan, on the monotonic *clock*."""

    def __init__(
        self, groups: Groups, room: HeldRoom, judge: CachedJudge, *, seconds: float, clock: Callable[[], float]
    ) -> None:
        self._groups, self._room, self._judge, self._seconds, self._clock = groups, room, judge, seconds, clock
        self._offered: BoundedMap[tuple[Key, object], Sequence[str]] = BoundedMap(MAX_OFFERED)

    async def plan(
        self, uid: str, record: GroupRecord, wanted: Wanted, filtered: Filtered, answers: NodeAnswers
    ) -> Found:
        """Places for the pod and for the others, on nodes that may hold one.

        For an open group as many as there are.
        """
        until = self._clock() + self._seconds
        limits = WorkLimits(beside=Budget(PLAN_STEPS, lambda: self._clock() > until), until=until)
        self._offered[record.key, wanted.own.shape.key] = answers.names
        kept = {each: place for each, place in record.claims.items() if place.node_name and each != uid}
        fixed = {each: place for each, place in kept.items() if each in record.sending}
        found = await self._beside(record, wanted, kept, kept, filtered, answers, limits)
        if found.is_found or len(fixed) == len(kept):
            return found
        moved = await self._beside(record, wanted, fixed, kept, filtered, answers, limits)
        return moved if moved.is_found or (moved.fit > found.fit and not record.is_open) else found

    async def _beside(
        self,
        record: GroupRecord,
        wanted: Wanted,
        fixed: Mapping[str, HeldPlace],
        kept: Mapping[str, HeldPlace],
        filtered: Filtered,
        answers: NodeAnswers,
        limits: WorkLimits,
    ) -> Found:
        """Places beside the *fixed* ones. Pods whose place in *kept* is not fixed get a new place as well."""
        moved = [_member(record, each, place) for each, place in kept.items() if each not in fixed]
        others = (*wanted.others, *moved)
        members = (wanted.own, *others, *wanted.to_come)
        pods = _Numbered()
        numbers = [pods.number(each) for each in members]
        nodes: dict[str, PlannedNode] = {}
        for each, place in sorted(fixed.items(), key=lambda item: item[1].rank):
            node = self._node(nodes, place.node_name)
            node.fixed = (*node.fixed, pods.number(_member(record, each, place)))
        plan = GangPlan(judge=self._judge.ranking.judge, kinds=pods.kinds, wanted=Counter(numbers), nodes=nodes)
        plan.devices = self._room.devices_for(record, [each.shape for each in pods.kinds])
        rankings = {
            number: await self._ranking(record, plan.kinds[number], answers, None if number else filtered, limits.until)
            for number in range(max(numbers) + 1)
        }
        if record.is_open or await self._room.work(plan.keeps, len(fixed), limits):
            await self._run(plan, rankings, limits)
        why = plan.why + (rankings[plan.short].refusals if plan.short in rankings else Counter())
        fit = record.size - sum(plan.wanted.values()) + len(plan.places)
        held = None
        if plan.is_found or record.is_open:
            held = _held_plan(record, plan, kept, pods, Counter(numbers[1 : 1 + len(others)]))
        return Found(held=held, is_found=plan.is_found, fit=fit, why=why)

    async def _run(self, plan: GangPlan, rankings: Mapping[int, _Ranking], limits: WorkLimits) -> None:
        """Look for places on more and more nodes until all are found."""
        size, is_last = dict(plan.wanted), False
        while not (plan.is_found or limits.beside.is_used_up or self._clock() > limits.until or is_last):
            is_last = True
            for number, ranking in rankings.items():
                for name, merit in islice(ranking.nodes, size[number]):
                    node, is_last = self._node(plan.nodes, name), False
                    node.merits[number] = merit
                    judgement = ranking.entry.get(node.node_class.id)
                    if judgement is not None and judgement.refusal is None:
                        node.judged.add(number)
                size[number] = min(2 * size[number], MAX_CHUNK)
            await self._room.work(partial(plan.run, is_last=is_last), sum(plan.wanted.values()), limits)

    def _node(self, nodes: dict[str, PlannedNode], name: str) -> PlannedNode:
        node = nodes.get(name)
        if node is None:
            found = self._room.candidate(name)
            node = nodes[name] = PlannedNode(name=name, node_class=found.node_class, left_milli=found.left_milli)
        return node

    def _left_out(self, record: GroupRecord, kind: PodKind) -> dict[str, str]:
        """The nodes that may hold no place for a pod of the kind now, and why."""
        left_out = {} if record.is_open else dict.fromkeys(self._groups.resting(self._clock()), RESTS)
        for name, holds in self._groups.held.items():
            if any(hold.key != record.key and hold.precedes(record.priority or 0) for hold in holds):
                left_out[name] = RefusalReason.HELD.text
        if kind.is_alone:
            for uid, node_name in record.bound.items():
                member = record.members.get(uid)
                if member is None or member.shape.key == kind.shape.key:
                    left_out[node_name] = ONE_A_NODE
        return left_out

    async def _ranking(
        self, record: GroupRecord, kind: PodKind, answers: NodeAnswers, filtered: Filtered | None, until: float
    ) -> _Ranking:
        """The nodes for pods of the kind, of those that kube-scheduler offered last for it.

        *answers*, *filtered*: those of the pod that came now. *filtered* None: it is of another kind.
        """
        judge, counted = self._judge.ranking, answers
        entry = judge.entry(kind.shape.pod)
        if filtered is None or judge is not self._judge:
            names = self._offered.get((record.key, kind.shape.key), answers.names)
            try:
                answers = await judge.answer_nodes(entry, names, self._clock(), until)
            except NotReadyError:
                if filtered is not None:
                    raise
                return _Ranking(entry, answers, iter(()), Counter())
        skipped: Counter[str] = Counter()
        nodes = _passing(answers, self._left_out(record, kind), filtered, skipped)
        return _Ranking(entry, answers if filtered is None else counted, nodes, skipped)


def _passing(
    answers: NodeAnswers, left_out: Mapping[str, str], filtered: Filtered | None, skipped: Counter[str]
) -> Iterator[tuple[str, int]]:
    """The nodes that admit a pod and are not left out, with their merits, the best first.

    *filtered*: only those that are feasible; None: all. *skipped*: counts the others that admit the pod, by reason.
    """
    judgements = answers.kinds.judgements
    counts = np.bincount(answers.codes, minlength=len(judgements)).tolist()
    passing = [code for code, count in enumerate(counts) if count and judgements[code].refusal is None]
    is_whole = filtered is None or sum(counts[code] for code in passing) == len(filtered.feasible)
    feasible = frozenset() if is_whole or filtered is None else frozenset(filtered.feasible)
    for merit, code in sorted([(merit_of(judgements[code]), code) for code in passing], reverse=True):
        for name in answers.names_at(np.flatnonzero(answers.codes == code)):
            why = left_out.get(name)
            if why is None and (is_whole or name in feasible):
                yield name, merit
            elif why is not None or filtered is None:
                skipped[why or ""] += 1
            else:
                skipped[filtered.refused.get(name) or filtered.resolvable.get(name, "")] += 1


class _Numbered:
    """Numbers for the kinds of pods."""

    def __init__(self) -> None:
        self.kinds: list[PodKind] = []
        self._numbers: dict[object, int] = {}

    def number(self, member: Member) -> int:
        """The number of the pod's kind."""
        key = asked_by(member.shape)
        if key not in self._numbers:
            self._numbers[key] = len(self.kinds)
            self.kinds.append(PodKind(member.shape, member.is_alone))
        return self._numbers[key]


def _member(record: GroupRecord, uid: str, place: HeldPlace) -> Member:
    return record.members.get(uid) or Member(place.shape, is_alone=False, seen_at=place.seen_at)


def _held_plan(
    record: GroupRecord, plan: GangPlan, kept: Mapping[str, HeldPlace], pods: _Numbered, others: Mapping[int, int]
) -> HeldPlan | None:
    """The places of a plan; None if there is none for the pod that came now. *others*: pods that came, by kind.

    *kept*: places of pods, which they keep if the plan has them as well.
    """
    free: dict[tuple[str, int], list[int]] = {}
    for node in plan.nodes.values():
        for rank, number in enumerate(node.row):
            free.setdefault((node.name, number), []).append(rank)
    places = list(plan.places)
    own = next((name for name, number in places if number == 0), None)
    if own is None:
        return None
    places.remove((own, 0))
    own_rank = free[own, 0].pop(0)
    claims = {uid: place for uid, place in record.claims.items() if not place.node_name}
    for uid, place in kept.items():
        if ranks := free.get((place.node_name, pods.number(_member(record, uid, place)))):
            claims[uid] = replace(place, rank=ranks.pop(0))
    left, first, last = Counter(others), list[HeldPlace](), list[HeldPlace]()
    for name, number in places:
        if ranks := free.get((name, number)):  # those that pods keep are taken
            left[number] -= 1
            place = HeldPlace(name, plan.kinds[number].shape, ranks.pop(0))
            (first if left[number] >= 0 else last).append(place)
    return HeldPlan(HeldPlace(own, plan.kinds[0].shape, own_rank), claims, [*first, *last])
