"""Groups of pods in filter and bind: plan all pods of a group, hold their places, and offer each pod its own place.

Rules of this file
- The first pod of a group that comes to filter plans places for all of them. Pods that have not come yet count as
  copies of it. If not all fit, nothing is held and every node is refused; the reason says how many fit.
- A pod with a place is offered the node of its place only. If that node is no longer feasible, new places are planned.
- A pod is bound only when all pods of its group have come and have places that still fit together. So a group of which
  not all pods exist is never half placed. After the first binding the group is open, and a pod whose place is lost is
  offered every feasible node.
- Any other pod is refused on a node where a held place would no longer fit beside it. `groups` states the limits.
- A node has places of one group at a time: places of two groups could fit in one order of their bindings only.
- One plan at a time. The event loop reads and changes the groups; replays run elsewhere.
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
from extender.cluster.store import NodeStore
from extender.replay.budget import Budget
from extender.replay.pod import Pod
from extender.scheduling.binder import RETRY, BindFailure, NotBound
from extender.scheduling.cached_judge import MAX_AT_ONCE, CachedJudge, NodeAnswers, Offload
from extender.scheduling.feasibility import Filtered, without
from extender.scheduling.gangs.groups import GangSettings, GroupRecord, Groups, HeldPlace, Hold, Unfit
from extender.scheduling.gangs.planner import Candidate, GangPlan, merit_of, takes_room
from extender.scheduling.node_totals import NodeTotals
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.replays import LOOP_STEPS
from extender.wire.groups import Group
from extender.wire.node_names import NodeNames
from extender.wire.scheduler import SchedulerArgs

T = TypeVar("T")
MAX_KNOWN: Final = 20_000
"""How many answers to "does this pod take held room on such a node" are kept."""
MAX_CHECKED: Final = 256
"""How many nodes with held places one filter call checks at most. Bind checks the chosen node in any case."""
REPLAN_SECONDS: Final = 1.0
"""How long it counts that a group does not fit, as long as no node changes."""
MAX_CHUNK: Final = 512
"""Nodes that a plan looks at in one step. The first step has one for each pod: the best ones mostly suffice."""
HELD: Final = NotBound(f"{RefusalReason.HELD.text}; {RETRY}", BindFailure.HELD)
INCOMPLETE: Final = NotBound(f"other pods of the pod's group are still to come; {RETRY}", BindFailure.GROUP)
UNFIT: Final = NotBound(f"{RefusalReason.GROUP_UNFIT.text}; {RETRY}", BindFailure.GROUP)


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

    async def takes_held_room(self, pod: Pod, priority: int, node_name: str) -> bool:
        """Whether the pod would take held room on the node."""
        self.groups.expire(self._clock())
        if node_name not in self.groups.held:
            return False
        record = self.groups.of_pod(pod.uid)
        holds = self._against(pod, priority, None if record is None else record.key, node_name)
        return bool(await self._taking(PodShape(pod), {node_name: holds} if holds else {}))

    def _against(self, pod: Pod, priority: int, key: object, name: str) -> list[Hold]:
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
        missing = {key: each for key, each in wanted.items() if key not in self._known}

        def find(budget: Budget | None) -> list[bool]:
            judge = self._judge.judge
            return [takes_room(judge, [shape], held, candidate, budget) for _, candidate, held in missing.values()]

        if missing:
            for found, takes in zip(missing, await self._work(find, len(missing)), strict=True):
                self._known[found] = takes
        return frozenset(name for key, (names, *_) in wanted.items() if self._known.get(key) for name in names)

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
        record = groups.join(group, args.priority)
        if record.size < 2 or uid in record.bound or len(record.bound) >= record.size:
            return filtered
        place = record.claims.get(uid)
        if place is not None and (not place.node_name or _is_feasible(filtered, place.node_name)):
            groups.claim(record, uid, place, now)
            return _only(filtered, place.node_name)
        if place is not None:
            groups.lose(uid, now)
        spare = groups.take_spare(record, args.pod, partial(_is_feasible, filtered))
        if spare is not None:
            groups.claim(record, uid, replace(spare, leads=group.leads), now)
            return _only(filtered, spare.node_name)
        if record.is_open:
            return filtered
        if answers is None:
            groups.claim(record, uid, HeldPlace("", PodShape(args.pod), leads=group.leads), now)
            return filtered
        async with self._planning:
            return await self._place(args, group, record, filtered, answers)

    async def _place(
        self, args: SchedulerArgs, group: Group, record: GroupRecord, filtered: Filtered, answers: NodeAnswers
    ) -> Filtered:
        """The result of filter for a pod without a place, in a group that is not open."""
        groups, now, uid = self.groups, self._clock(), args.pod.uid
        if uid in record.claims or groups.get(record.key) is not record:  # another call was faster
            return filtered
        if record.is_complete:
            groups.forget_unseen(record, now)
        wanted = record.size - len(record.bound) - len(record.claims)
        if wanted <= 0 or not groups.may_hold(record, now):
            return _refused(filtered, RefusalReason.GROUP_WAITS.text)
        unfit = record.unfit
        what = args.pod.shape, answers.snapshot, hash(args.names.packed)
        if unfit is None or unfit.of != what or now - unfit.at > REPLAN_SECONDS:
            plan = await self._plan(args.pod, group, record, wanted, filtered, answers)
            now = self._clock()
            if plan.is_found:
                shape = PodShape(args.pod)
                first, *others = plan.nodes
                places = [HeldPlace(first, shape, leads=group.leads), *(HeldPlace(name, shape) for name in others)]
                groups.hold(record, uid, places, now)
                return _only(filtered, plan.nodes[0])
            fit = record.size - wanted + len(plan.nodes)
            groups.give_back(record, now)
            record.unfit = unfit = Unfit(fit, dict(plan.why), what, now)
        text = f"{RefusalReason.GROUP_UNFIT.text}: {unfit.fit} of {record.size} pods fit"
        return _refused(filtered, text)

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
                held = [each.shape for each in self._against(pod, record.priority, record.key, name)]
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

    def _ranked(
        self, group: Group, record: GroupRecord, filtered: Filtered, answers: NodeAnswers
    ) -> Iterator[tuple[str, int]]:
        """The feasible nodes that may hold a place, with their merits, the best first."""
        left_out = set(self.groups.resting(self._clock()))
        for name, holds in self.groups.held.items():
            if any(each.key != record.key and each.precedes(record.priority) for each in holds):
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

    async def admit(self, uid: str) -> NotBound | None:
        """Whether the pod may be bound now, as one of its group: None if it may, else why not."""
        groups, now = self.groups, self._clock()
        groups.expire(now)
        record = groups.of_pod(uid)
        if record is None or record.is_open or uid not in record.claims:
            return None
        if record.claims[uid].leads:
            groups.open(record, now)
            return None
        if not record.is_complete:
            return INCOMPLETE
        if await self._still_fits(record):
            groups.open(record, self._clock())
            return None
        groups.give_back(record, self._clock())
        return UNFIT

    async def _still_fits(self, record: GroupRecord) -> bool:
        """Whether all places of the group fit together in the newest states of their nodes."""
        by_node: dict[str, list[PodShape]] = {}
        for _, place in record.places:
            if place.node_name:
                by_node.setdefault(place.node_name, []).append(place.shape)
        checks = [(shapes, self._candidate(name)) for name, shapes in by_node.items()]

        def check(budget: Budget | None) -> bool:
            return not any(takes_room(self._judge.judge, shapes, [], each, budget) for shapes, each in checks)

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
    feasible = filtered.feasible
    if isinstance(feasible, NodeNames) and feasible.spans is not None:
        return f'"{name}"'.encode() in feasible.packed
    return name in feasible


def _only(filtered: Filtered, name: str) -> Filtered:
    """*filtered* with one feasible node. The others are left out without a reason: they do not refuse the pod."""
    if not name:
        return filtered
    feasible = NodeNames.of([name]) if isinstance(filtered.feasible, NodeNames) else [name]
    return replace(filtered, feasible=feasible)


def _refused(filtered: Filtered, text: str) -> Filtered:
    """*filtered* with all feasible nodes refused."""
    return Filtered(feasible=(), refused={**filtered.refused, **dict.fromkeys(filtered.feasible, text)})
