"""Groups of pods in filter and bind: plan all pods of a group, hold their places, and offer each pod its own place.

Rules of this file
- The first pod of a group that comes to filter plans places for all of them. Pods that have not come yet count as
  copies of it. If not all fit, nothing is held and every node is refused; the reason says how many fit.
- A pod with a place is offered the node of its place only. If that node is no longer feasible, new places are planned.
  If kube-scheduler does not show that node, the place is kept until there is another one.
- A pod is bound only when all pods of its group have come and have places that still fit together. So a group of which
  not all pods exist is never half placed. After the first binding the group is open. Then places are held for as many
  of the other pods as fit, and a pod keeps its place until it has another one. A pod without a place is offered every
  feasible node.
- Any other pod is refused on a node where a held place would no longer fit beside it. `groups` states the limits.
- A node has places of one group at a time: places of two groups could fit in one order of their bindings only.
- One plan at a time. The event loop reads and changes the groups; replays run elsewhere. For a group that did not fit,
  long plans take at most a fifth of the time.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final, TypeVar

import numpy as np

from extender.bounded import BoundedMap
from extender.cluster.node_class import UNKNOWN
from extender.cluster.pods import KnownPod
from extender.cluster.store import NodeStore
from extender.replay.budget import Budget
from extender.replay.pod import Pod
from extender.scheduling.binder import (
    BY_ADMISSION_CHECK,
    RETRY,
    BindFailure,
    BindOutcome,
    MaybeBound,
    NotBound,
    PodBound,
)
from extender.scheduling.cached_judge import MAX_AT_ONCE, CachedJudge, NodeAnswers, Offload
from extender.scheduling.feasibility import Filtered, without
from extender.scheduling.gangs.groups import Groups
from extender.scheduling.gangs.planner import Candidate, GangPlan, merit_of, outlast_exits, takes_room
from extender.scheduling.gangs.record import GangSettings, GroupRecord, HeldPlace, Hold, Key, Unfit
from extender.scheduling.node_totals import NodeTotals
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.replays import LOOP_STEPS
from extender.wire.groups import Group
from extender.wire.node_names import NodeNames
from extender.wire.scheduler import SchedulerArgs

T = TypeVar("T")
MAX_KNOWN: Final = 4_096
"""How many answers to "does this pod take held room on such a node" are kept."""
MAX_CHECKED: Final = 256
"""How many nodes with held places one filter call checks at most. Bind checks the chosen node in any case."""
REPLAN_SECONDS: Final = 1.0
"""How long it counts that a group does not fit, as long as no node changes."""
PAUSE_SHARE: Final = 4.0
"""After a long plan that found too few places, the group is not planned again for this many times as long."""
LONG_SHARE: Final = 0.25
"""A plan is long if it takes more than this part of the time that it may take."""
MAX_CHUNK: Final = 512
"""Nodes that a plan looks at in one step. The first step has one for each pod: the best ones mostly suffice."""
HELD: Final = NotBound(f"{RefusalReason.HELD.text}; {RETRY}", BindFailure.HELD)
INCOMPLETE: Final = NotBound(f"other pods of the pod's group are still to come; {RETRY}", BindFailure.GROUP)
NO_PLACE: Final = NotBound(f"the place of the pod in its group was given back; {RETRY}", BindFailure.GROUP)
UNFIT: Final = NotBound(f"{RefusalReason.GROUP_UNFIT.text}; {RETRY}", BindFailure.GROUP)
UNSETTLED: Final = NotBound(f"{RefusalReason.UNSETTLED.text}; {RETRY}", BindFailure.UNSETTLED)
NOT_READY: Final = NotBound(f"the kubelet of another pod of the group is starting; {RETRY}", BindFailure.GROUP)
KEEPING: Final = frozenset(
    {BindFailure.CLAIMS, BindFailure.GROUP, BindFailure.STARTING, BindFailure.TOTALS, BindFailure.UNSETTLED}
)
"""The refusals of bind after which a pod of a group keeps its place: they are likely to pass."""


class Gangs:
    """See the file's rules. *clock*: seconds of a monotonic clock."""

    def __init__(
        self,
        settings: GangSettings,
        cluster: NodeStore,
        judge: CachedJudge,
        totals: NodeTotals,
        *,
        clock: Callable[[], float],
        offload: Offload,
    ) -> None:
        self.groups: Final = Groups(settings)
        self._settings, self._cluster, self._judge, self._totals = settings, cluster, judge, totals
        self._clock, self._offload = clock, offload
        self._known: BoundedMap[Hashable, bool] = BoundedMap(MAX_KNOWN)
        self._planning = asyncio.Lock()

    async def filter(self, args: SchedulerArgs, filtered: Filtered, answers: NodeAnswers | None) -> Filtered:
        """The result of filter without nodes where held room is needed. A pod of a group is offered only its own place.

        *answers*: those of the nodes; None if no kubelet aligns the pod.
        """
        filtered = await self._without_held(args, filtered)
        return filtered if args.group is None else await self._steer(args, args.group, filtered, answers)

    async def _without_held(self, args: SchedulerArgs, filtered: Filtered) -> Filtered:
        """The result of filter without the nodes on which the pod would take held room."""
        groups, now = self.groups, self._clock()
        groups.expire(now)
        if not groups.held or not filtered.feasible:
            return filtered
        key = None if args.group is None else args.group.key
        checks = {}
        for name, held in islice(groups.held.items(), MAX_CHECKED):
            holds = [each for each in held if each.key != key and each.precedes(args.priority)]
            if holds and _is_feasible(filtered, name):
                checks[name] = holds
        if not checks:
            return filtered
        taken = await self._taking(PodShape(args.pod), checks)
        return without(filtered, taken, RefusalReason.HELD) if taken else filtered

    async def takes_held_room(self, pod: Pod, priority: int, group: Key | None, node_name: str) -> bool:
        """Whether the pod, of this group, would take held room on the node."""
        self.groups.expire(self._clock())
        holds = self._against(pod, priority, group, node_name)
        return bool(await self._taking(PodShape(pod), {node_name: holds} if holds else {}))

    def holds_on(self, node_name: str) -> Sequence[Hold]:
        """The places on the node. Another object after each change."""
        return self.groups.held.get(node_name, ())

    def _against(self, pod: Pod, priority: int, key: Key | None, name: str) -> list[Hold]:
        """The places on the node that the pod must leave free. *key*: the pod's group."""
        holds = self.groups.held.get(name, ())
        return [each for each in holds if each.uid != pod.uid and (each.key == key or each.precedes(priority))]

    async def _taking(self, shape: PodShape, checks: Mapping[str, Sequence[Hold]]) -> frozenset[str]:
        """The nodes on which a pod of the shape would take room that a held place needs."""
        wanted: dict[Hashable, tuple[list[str], Candidate, list[PodShape]]] = {}
        for name, holds in checks.items():
            candidate = self._candidate(name)
            held = [each.shape for each in holds]
            left = None if candidate.left_milli is None else tuple(sorted(candidate.left_milli.items()))
            key: Hashable = (shape.pod.shape, candidate.node_class.id, left, tuple(each.pod.shape for each in held))
            wanted.setdefault(key, ([], candidate, held))[0].append(name)
        takes = {key: self._known[key] for key in wanted if key in self._known}
        missing = {key: each for key, each in wanted.items() if key not in takes}

        def find(budget: Budget | None) -> list[bool]:
            judge = self._judge.judge
            return [takes_room(judge, [shape], held, candidate, budget) for _, candidate, held in missing.values()]

        if missing:
            found = dict(zip(missing, await self._work(find, len(missing)), strict=True))
            takes |= found
            self._known.update(found)
        return frozenset(name for key, (names, *_) in wanted.items() if takes[key] for name in names)

    def _candidate(self, name: str) -> Candidate:
        """The node as it is now."""
        record = self._cluster.get(name)
        node_class = UNKNOWN if record is None else record.node_class
        return Candidate(name=name, node_class=node_class, left_milli=self._totals.left(name))

    async def _steer(
        self, args: SchedulerArgs, group: Group, filtered: Filtered, answers: NodeAnswers | None
    ) -> Filtered:
        groups, now, uid = self.groups, self._clock(), args.pod.uid
        if not uid:
            return filtered
        groups.expire(now)
        record = groups.join(group, uid, args.priority, now)
        if record.size < 2 or uid in record.bound or record.is_full:
            return filtered
        place = record.claims.get(uid)
        if place is not None and (not place.node_name or _is_feasible(filtered, place.node_name)):
            groups.claim(record, uid, place, now)
            return _only(filtered, place.node_name)
        if place is not None and not record.is_open and _has(args.names, place.node_name):
            groups.lose(record, uid, now)
        elif place is not None:
            groups.claim(record, uid, place, now)
        spare = groups.take_spare(record, args.pod, partial(_is_feasible, filtered))
        if spare is not None:
            groups.claim(record, uid, replace(spare, leads=group.leads), now)
            return _only(filtered, spare.node_name)
        if record.is_open and (answers is None or not filtered.feasible):
            return filtered
        async with self._planning:
            return await self._place(args, group, filtered, answers)

    async def _place(
        self, args: SchedulerArgs, group: Group, filtered: Filtered, answers: NodeAnswers | None
    ) -> Filtered:
        """The result of filter for a pod without a place that is feasible. Others may have changed the group."""
        groups, now, uid = self.groups, self._clock(), args.pod.uid
        record = groups.join(group, uid, args.priority, now)
        if record.missing(uid) <= 0:
            groups.forget_unseen(record, now)
        wanted, place = record.missing(uid), record.claims.get(uid)
        if record.is_open and (answers is None or wanted <= 0 or now < record.rests_until):
            return filtered
        if wanted <= 0:
            return _refused(filtered, RefusalReason.GROUP_FULL.text)
        if answers is None:
            groups.claim(record, uid, HeldPlace("", PodShape(args.pod), leads=group.leads), now)
            return filtered
        if place is not None and _is_feasible(filtered, place.node_name):  # another call of this pod was faster
            return _only(filtered, place.node_name)
        if not record.is_open and now < record.rests_until:
            return _refused(filtered, RefusalReason.GROUP_WAITS.text)
        if not record.is_open and not groups.may_hold(record):
            return _refused(filtered, RefusalReason.GROUP_TURN.text)
        what = args.pod.shape, answers.snapshot, hash(args.names.packed)
        if record.is_open or record.unfit is None or not record.unfit.holds(what, now):
            nodes = await self._planned(args.pod, group, record, wanted, what, filtered, answers)
            if nodes or record.is_open:
                return _only(filtered, nodes[0]) if nodes else filtered
        fit = 0 if record.unfit is None else record.unfit.fit
        return _refused(filtered, f"{RefusalReason.GROUP_UNFIT.text}: {fit} of {record.size} pods fit")

    async def _planned(
        self,
        pod: Pod,
        group: Group,
        record: GroupRecord,
        wanted: int,
        what: object,
        filtered: Filtered,
        answers: NodeAnswers,
    ) -> Sequence[str]:
        """The nodes of places for the pod and for those that have none, which are held now; empty if they do not fit.

        For an open group there may be places for some of them only.
        """
        groups, started = self.groups, self._clock()
        plan = await self._plan(pod, group, record, wanted, filtered, answers)
        now = self._clock()
        record = groups.join(group, pod.uid, record.priority or 0, now)
        if plan.is_found or (plan.nodes and record.is_open):
            shape = PodShape(pod)
            first, *others = plan.nodes
            places = [HeldPlace(first, shape, leads=group.leads), *(HeldPlace(name, shape) for name in others)]
            groups.hold(record, pod.uid, places, now)
            return plan.nodes
        if not record.is_open:
            if pod.uid not in record.claims:
                groups.give_back(record, now)
            seconds = now - started
            pause = PAUSE_SHARE * seconds if seconds > LONG_SHARE * self._settings.plan_seconds else 0.0
            record.unfit = Unfit(
                fit=record.size - wanted + len(plan.nodes),
                why=dict(plan.why),
                of=what,
                same_until=now + REPLAN_SECONDS,
                any_until=now + pause,
            )
        return ()

    async def _plan(
        self, pod: Pod, group: Group, record: GroupRecord, wanted: int, filtered: Filtered, answers: NodeAnswers
    ) -> GangPlan:
        """Places for *wanted* copies of the pod; only those on nodes that may hold one."""
        until, entry = self._clock() + self._settings.plan_seconds, self._judge.entry(pod)
        plan = GangPlan(
            judge=self._judge.judge,
            shape=entry.shape,
            wanted=wanted,
            one_a_node=group.one_a_node,
            out_of_time=lambda: self._clock() > until,
        )
        nodes, size = self._ranked(group, record, filtered, answers), wanted
        while not plan.is_found and not plan.out_of_time():
            chunk = []
            for name, merit in islice(nodes, size):
                node = self._candidate(name)
                held = [each.shape for each in self._beside(pod, record, name)]
                judgement = entry.judgements.get(node.node_class.id)
                is_judged = judgement is not None and judgement.refusal is None
                chunk.append(replace(node, held=held, merit=merit, is_judged=is_judged))
            if not chunk:
                break
            plan = await self._work(partial(plan.run, chunk), wanted)
            size = min(2 * size, MAX_CHUNK)
        if not plan.is_found:
            plan.why.update(self._refusals(answers))
        return plan

    def _beside(self, pod: Pod, record: GroupRecord, name: str) -> list[Hold]:
        """The places on the node that the plan for the pod must leave free. It replaces the group's spare places."""
        against = self._against(pod, record.priority or 0, record.key, name)
        return [each for each in against if each.uid or each.key != record.key]

    def _ranked(
        self, group: Group, record: GroupRecord, filtered: Filtered, answers: NodeAnswers
    ) -> Iterator[tuple[str, int]]:
        """The feasible nodes that may hold a place, with their merits, the best first."""
        left_out = set() if record.is_open else set(self.groups.resting(self._clock()))
        for name, holds in self.groups.held.items():
            if any(each.key != record.key and each.precedes(record.priority or 0) for each in holds):
                left_out.add(name)
        if group.one_a_node:
            left_out |= {*record.bound.values(), *(place.node_name for place in record.claims.values())}
        judgements = answers.kinds.judgements
        counts = np.bincount(answers.codes, minlength=len(judgements)).tolist()
        passing = [code for code, count in enumerate(counts) if count and judgements[code].refusal is None]
        is_whole = sum(counts[code] for code in passing) == len(filtered.feasible)
        feasible = frozenset() if is_whole else frozenset(filtered.feasible)
        for merit, code in sorted([(merit_of(judgements[code]), code) for code in passing], reverse=True):
            for name in answers.names_at(np.flatnonzero(answers.codes == code)):
                if name not in left_out and (is_whole or name in feasible):
                    yield name, merit

    @staticmethod
    def _refusals(answers: NodeAnswers) -> Counter[str]:
        """How many nodes were refused, by reason."""
        counted: Counter[str] = Counter()
        judgements = answers.kinds.judgements
        for judgement, count in zip(judgements, np.bincount(answers.codes, minlength=len(judgements)), strict=True):
            if count and judgement.refusal is not None:
                counted[judgement.refusal.text] += int(count)
        return counted

    async def admit(self, known: KnownPod) -> NotBound | None:
        """Whether the pod may be bound now, as one of its group: None if it may, else why not.

        If it may, `end_binding` must follow.
        """
        groups, now, uid = self.groups, self._clock(), known.uid
        groups.expire(now)
        if known.group is None:
            return None
        record = groups.get(known.group)
        if record is None:
            return NO_PLACE
        if record.size < 2 or uid in record.bound or record.is_full:
            return None
        place = record.claims.get(uid)
        if place is None and not record.is_open:
            return NO_PLACE
        is_first = not record.is_open and not (place is not None and place.leads)
        if is_first and (refused := await self._why_not_open(record)) is not None:
            return refused
        groups.open(record, uid, self._clock())
        return None

    async def _why_not_open(self, record: GroupRecord) -> NotBound | None:
        """Why the first pod of the group must not be bound now; None if it may be. Others may change the group."""
        groups, now = self.groups, self._clock()
        if not record.is_complete:
            return INCOMPLETE
        starting = self._cluster.starting(now)
        if any(each.node_name in starting for each in record.claims.values()):
            return NOT_READY
        fits, lasts = await self._still_fits(record)
        if groups.get(record.key) is not record:  # forgotten meanwhile: the places are those of another record
            return INCOMPLETE
        if record.is_open:  # another bind call was faster
            return None
        if not fits:
            groups.give_back(record, self._clock())
            return UNFIT
        if not lasts and self._clock() - groups.note_unsettled(record, now) < self._settings.defer_seconds:
            return UNSETTLED
        return None if record.is_complete else INCOMPLETE

    def end_binding(self, known: KnownPod, node_name: str, outcome: BindOutcome) -> None:
        """The attempt to bind the pod has ended."""
        groups, now = self.groups, self._clock()
        record = None if known.group is None else groups.get(known.group)
        if record is None:
            return
        is_bound = isinstance(outcome, PodBound)
        if is_bound:
            groups.bind(record, known.uid, node_name, now)
        elif isinstance(outcome, NotBound) and outcome.failure is BindFailure.NOT_FOUND:
            groups.see_gone(known.uid, now)
        elif isinstance(outcome, NotBound) and outcome.failure in BY_ADMISSION_CHECK - KEEPING:
            groups.lose(record, known.uid, now)
        groups.end_binding(record, known.uid, now, may_be_bound=is_bound or isinstance(outcome, MaybeBound))

    async def _still_fits(self, record: GroupRecord) -> tuple[bool, bool]:
        """Whether all places fit together in the newest states of their nodes, and still do when another pod ends."""
        by_node: dict[str, list[PodShape]] = {}
        for _, place in record.places:
            if place.node_name:
                by_node.setdefault(place.node_name, []).append(place.shape)
        checks = [(self._candidate(name), shapes) for name, shapes in by_node.items()]
        judge = self._judge.judge

        def check(budget: Budget | None) -> tuple[bool, bool]:
            fits = not any(takes_room(judge, shapes, [], each, budget) for each, shapes in checks)
            return fits, fits and outlast_exits(judge, checks, budget)

        return await self._work(check, record.size)

    async def _work(self, work: Callable[[Budget | None], T], size: int) -> T:
        """The result of *work*: on the event loop if it is short, as for judgements. *size*: roughly, in replays."""
        if size <= MAX_AT_ONCE:
            budget = Budget(LOOP_STEPS)
            result = work(budget)
            if not budget.is_used_up:
                return result
        return await self._offload(work, None)


def _is_feasible(filtered: Filtered, name: str) -> bool:
    return _has(filtered.feasible, name)


def _has(names: Sequence[str], name: str) -> bool:
    if isinstance(names, NodeNames) and names.spans is not None:
        return f'"{name}"'.encode() in names.packed
    return name in names


def _only(filtered: Filtered, name: str) -> Filtered:
    """*filtered* with one feasible node. The others are left out without a reason: they do not refuse the pod."""
    if not name:
        return filtered
    feasible = NodeNames.of([name]) if isinstance(filtered.feasible, NodeNames) else [name]
    return replace(filtered, feasible=feasible)


def _refused(filtered: Filtered, text: str) -> Filtered:
    """*filtered* with all feasible nodes refused."""
    return Filtered(feasible=(), refused={**filtered.refused, **dict.fromkeys(filtered.feasible, text)})
