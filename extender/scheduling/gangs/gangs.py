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
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from extender.cluster.pods import KnownPod
from extender.cluster.store import NodeStore
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
from extender.scheduling.cached_judge import CachedJudge, NodeAnswers, Offload
from extender.scheduling.feasibility import Filtered, only, refuse_all
from extender.scheduling.gangs.groups import Groups
from extender.scheduling.gangs.held_room import HeldRoom
from extender.scheduling.gangs.place_search import PlaceSearch
from extender.scheduling.gangs.record import GangSettings, GroupRecord, HeldPlace, Hold, Unfit
from extender.scheduling.name_positions import has_name
from extender.scheduling.node_totals import NodeTotals
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason
from extender.wire.groups import Group
from extender.wire.scheduler import SchedulerArgs

REPLAN_SECONDS: Final = 1.0
"""How long it counts that a group does not fit, as long as no node changes."""
PAUSE_SHARE: Final = 4.0
"""After a long plan that found too few places, the group is not planned again for this many times as long."""
LONG_SHARE: Final = 0.25
"""A plan is long if it takes more than this part of the time that it may take."""
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
        self._settings, self._cluster, self._clock = settings, cluster, clock
        self.room: Final = HeldRoom(self.groups, cluster, judge, totals, clock=clock, offload=offload)
        self._search: Final = PlaceSearch(self.groups, self.room, judge, seconds=settings.plan_seconds, clock=clock)
        self._planning = asyncio.Lock()

    async def filter(self, args: SchedulerArgs, filtered: Filtered, answers: NodeAnswers | None) -> Filtered:
        """The result of filter without nodes where held room is needed. A pod of a group is offered only its own place.

        *answers*: those of the nodes; None if no kubelet aligns the pod.
        """
        filtered = await self.room.left_free(args, filtered)
        return filtered if args.group is None else await self._steer(args, args.group, filtered, answers)

    def holds_on(self, node_name: str) -> Sequence[Hold]:
        """The places on the node. Another object after each change."""
        return self.groups.held.get(node_name, ())

    async def _steer(
        self, args: SchedulerArgs, group: Group, filtered: Filtered, answers: NodeAnswers | None
    ) -> Filtered:
        """The result of filter for a pod of a group: the node of its place, which is planned now if it has none."""
        groups, now, uid = self.groups, self._clock(), args.pod.uid
        if not uid:
            return filtered
        groups.expire(now)
        record = groups.join(group, uid, args.priority, now)
        if record.size < 2 or uid in record.bound or record.is_full:
            return filtered
        place = record.claims.get(uid)
        if place is not None and (not place.node_name or self._is_feasible(filtered, place.node_name)):
            groups.claim(record, uid, place, now)
            return only(filtered, place.node_name)
        if (
            place is not None
            and not record.is_open
            and has_name(args.names, place.node_name, self._cluster.index.names)
        ):
            groups.lose(record, uid, now)
        elif place is not None:
            groups.claim(record, uid, place, now)
        spare = groups.take_spare(record, args.pod, partial(self._is_feasible, filtered))
        if spare is not None:
            groups.claim(record, uid, replace(spare, leads=group.leads), now)
            return only(filtered, spare.node_name)
        if record.is_open and (answers is None or not filtered.feasible):
            return filtered
        async with self._planning:
            return await self._place(args, group, filtered, answers)

    def _is_feasible(self, filtered: Filtered, name: str) -> bool:
        return has_name(filtered.feasible, name, self._cluster.index.names)

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
            return refuse_all(filtered, RefusalReason.GROUP_FULL.text)
        if answers is None:
            groups.claim(record, uid, HeldPlace("", PodShape(args.pod), leads=group.leads), now)
            return filtered
        if place is not None and self._is_feasible(filtered, place.node_name):  # another call of this pod was faster
            return only(filtered, place.node_name)
        if not record.is_open and now < record.rests_until:
            return refuse_all(filtered, RefusalReason.GROUP_WAITS.text)
        if not record.is_open and not groups.may_hold(record):
            return refuse_all(filtered, RefusalReason.GROUP_TURN.text)
        inputs = args.pod.whole_shape, answers.snapshot, hash(answers.names.packed)
        if record.is_open or record.unfit is None or not record.unfit.holds(inputs, now):
            nodes = await self._planned(args.pod, group, record, wanted, inputs, filtered, answers)
            if nodes or record.is_open:
                return only(filtered, nodes[0]) if nodes else filtered
        fit = 0 if record.unfit is None else record.unfit.fit
        return refuse_all(filtered, f"{RefusalReason.GROUP_UNFIT.text}: {fit} of {record.size} pods fit")

    async def _planned(
        self,
        pod: Pod,
        group: Group,
        record: GroupRecord,
        wanted: int,
        inputs: object,
        filtered: Filtered,
        answers: NodeAnswers,
    ) -> Sequence[str]:
        """The nodes of places for the pod and for those that have none, which are held now; empty if they do not fit.

        For an open group there may be places for some of them only.
        """
        groups, started = self.groups, self._clock()
        plan = await self._search.plan(pod, group, record, wanted, filtered, answers)
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
                inputs=inputs,
                same_until=now + REPLAN_SECONDS,
                any_until=now + pause,
            )
        return ()

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
        if any(place.node_name in starting for place in record.claims.values()):
            return NOT_READY
        fits, lasts = await self.room.still_fits(record)
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
