"""Groups of pods in filter and bind: plan all pods of a group, hold their places, and offer each pod its own place.

Rules of this file
- The first pod of a group that comes to filter plans places for all of them, each by its own shape. Pods that have not
  come yet count as copies of those that came (`place_search`). If not all fit, nothing is held and every node is
  refused; the reason says how many fit. The shapes of the pods are kept, so the last one that comes plans for all.
- A pod with a place is offered the node of its place only. If that node is no longer feasible, new places are planned.
  If kube-scheduler does not show that node, the place is kept until there is another one.
- A pod is bound only when all pods of its group have come and have places that still fit together. So a group is not
  half placed while some of its pods do not exist. After the first binding the group is open. Then places are held for
  as many of the other pods as fit, and a pod keeps its place until it has another one. A pod without a place is offered
  every feasible node.
- Any other pod is refused on a node where a held place would no longer fit beside it. `groups` states the limits.
- A node has places of one group at a time: those of two groups might fit in only one order of bindings.
- One plan at a time. The event loop reads and changes the groups; replays run elsewhere. Long plans for groups of one
  namespace that do not fit take at most a fifth of the time: kube-scheduler waits for one call after another.
"""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from extender.api.service import Service
from extender.bounded import BoundedMap
from extender.cluster.pods import KnownPod
from extender.features.groups.groups import Groups
from extender.features.groups.held_room import HeldRoom
from extender.features.groups.place_search import PlaceSearch, Wanted, wanted_of
from extender.features.groups.record import GroupRecord, HeldPlace, Hold, Member, Unfit
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
from extender.scheduling.cached_judge import MAX_RESTING
from extender.scheduling.objections import BindCall, FilterCall, Filtered, Objector, only, refuse_all
from extender.scheduling.pod_shape import NodeAnswers, PodShape
from extender.scheduling.reasons import RefusalReason
from extender.wire.groups import Group, group_of
from extender.wire.scheduler import SchedulerArgs

REPLAN_SECONDS: Final = 1.0
"""How long the result that a group does not fit is kept, as long as no node changes."""
PAUSE_SHARE: Final = 4.0
"""After a long plan that found too few places, its namespace waits for this many times the plan's time."""
LONG_SHARE: Final = 0.25
"""A plan is long if it takes more than this part of the time that it may take."""
HELD: Final = NotBound(f"{RefusalReason.HELD.text}; {RETRY}", BindFailure.HELD)
EARLIER: Final = NotBound(
    f"other pods of the pod's group must be bound to the node before it; {RETRY}", BindFailure.GROUP
)
INCOMPLETE: Final = NotBound(f"other pods of the pod's group are still to come; {RETRY}", BindFailure.GROUP)
NO_PLACE: Final = NotBound(f"the place of the pod in its group was given back; {RETRY}", BindFailure.GROUP)
UNFIT: Final = NotBound(f"{RefusalReason.GROUP_UNFIT.text}; {RETRY}", BindFailure.GROUP)
UNSETTLED: Final = NotBound(f"{RefusalReason.UNSETTLED.text}; {RETRY}", BindFailure.UNSETTLED)
RACED: Final = NotBound(f"places for the pods of a group were just held on the node; {RETRY}", BindFailure.GROUP)
NOT_READY: Final = NotBound(f"the kubelet of another pod of the group is starting; {RETRY}", BindFailure.GROUP)
KEEPING: Final = frozenset(
    {BindFailure.CLAIMS, BindFailure.GROUP, BindFailure.STARTING, BindFailure.TOTALS, BindFailure.UNSETTLED}
)
"""The refusals of bind after which a pod of a group keeps its place: they are likely to pass."""


class Gangs(Objector):
    """Offers each pod of a group its place, and no other."""

    def __init__(self, service: Service) -> None:
        known, self._settings = service.known, service.settings
        self.groups: Final = Groups(self._settings)
        self._cluster, self._pods, self._judge = known.nodes, known.pods, service.judging
        self._clock: Final = service.clock
        self._plan_seconds: Final = self._settings.filter_seconds / 2
        self.room: Final = HeldRoom(self.groups, service)
        self._search: Final = PlaceSearch(
            self.groups, self.room, self._judge, seconds=self._plan_seconds, clock=self._clock
        )
        self._planning = asyncio.Lock()
        self._resting: Final[BoundedMap[str, float]] = BoundedMap(MAX_RESTING)
        """Until when groups of a namespace are not planned, unless they are open."""
        self._permitted: Final[dict[str, Sequence[Hold]]] = {}
        """The places beside which a pod was permitted, by node. Bind has one attempt at a time on a node."""

    async def filter(self, call: FilterCall, filtered: Filtered) -> Filtered:
        """The result without nodes where held room is needed. A pod of a group is offered only its own place."""
        args, group = call.args, group_of(call.args.document)
        key = None if group is None else group.key
        if call.known.pod is not None:
            self._pods.join(args.pod.uid, key, call.now)
        if group is None and not self.groups.held:
            return filtered
        after = await self.room.left_free(args, key, filtered)
        return after if group is None else await self._steer(args, group, after, call.answers)

    async def permit(self, call: BindCall) -> NotBound | None:
        """A pod must leave held places free. A pod of a group must have a place, and the other pods must have come."""
        known = self._pods.get(call.pod.uid)
        if known.group is None and not self.groups.held:
            self._permitted[call.node_name] = ()
            return None
        if (refused := await self._admit(known, call.node_name)) is not None:
            if refused.failure is BindFailure.UNSETTLED:
                self._pods.defer_for_exits(known.uid, call.node_name, self._clock())
            return refused
        self._permitted[call.node_name] = self.holds_on(call.node_name)
        if await self.room.is_taken_by(call.pod, known.priority, known.group, call.node_name):
            return EARLIER if self._goes_after(known, call.node_name) else HELD
        return None

    def reserve(self, call: BindCall) -> NotBound | None:
        """No place may have been held on the node since `permit`."""
        return None if self.holds_on(call.node_name) == self._permitted.get(call.node_name, ()) else RACED

    async def passes_soon(self, _known: KnownPod, _node_name: str, refused: NotBound) -> bool:
        """The other pods of the group are about to come, or to be bound before it."""
        return refused in (INCOMPLETE, EARLIER)

    def kept_nodes(self, known: KnownPod, pod: Pod) -> Collection[str] | None:
        """The nodes with held places. For a pod of a group: all nodes."""
        return None if known.group is not None or self.groups.of_pod(pod.uid) is not None else self.groups.held

    def released(self) -> Collection[str]:
        """The nodes whose places were given back since the last call."""
        return self.groups.released()

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
        if answers is not None:
            shape = PodShape(args.pod) if args.pod.has_claims else self._judge.entry(args.pod).shape
            record.note(uid, Member(shape, group.one_a_node, now, group.role))
        place = record.claims.get(uid)
        if place is not None and (not place.node_name or place.node_name in filtered.feasible):
            groups.claim(record, uid, place, now)
            return only(filtered, place.node_name)
        if place is not None and not record.is_open and place.node_name in args.names:
            groups.lose(record, uid, now)
        elif place is not None:
            groups.claim(record, uid, place, now)
        spare = groups.take_spare(record, args.pod, filtered.feasible.__contains__)
        if spare is not None:
            groups.claim(record, uid, replace(spare, leads=group.leads), now)
            return only(filtered, spare.node_name)
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
            return refuse_all(filtered, RefusalReason.GROUP_FULL)
        if answers is None:
            groups.claim(record, uid, HeldPlace("", PodShape(args.pod), leads=group.leads), now)
            return filtered
        if place is not None and place.node_name in filtered.feasible:  # another call of this pod was faster
            return only(filtered, place.node_name)
        if not record.is_open and now < record.rests_until:
            return refuse_all(filtered, RefusalReason.GROUP_WAITS)
        if not record.is_open and not groups.may_hold(record):
            return refuse_all(filtered, RefusalReason.GROUP_TURN)
        asked = wanted_of(record, uid, wanted, groups.templates.of(group), self._judge.is_aligned)
        inputs = args.pod.whole_shape, asked.shapes, answers.version, hash(frozenset(answers.names))
        is_resting = now < self._resting.get(record.key[1], now) and not record.is_open
        if is_resting and record.unfit is None:
            return refuse_all(filtered, RefusalReason.GROUP_REST)
        if record.is_open or not (is_resting or (record.unfit is not None and record.unfit.holds(inputs, now))):
            node = await self._planned(args.pod, group, record, asked, inputs, filtered, answers)
            if node or record.is_open:
                return only(filtered, node)
        fit = 0 if record.unfit is None else record.unfit.fit
        reason = RefusalReason.GROUP_UNFIT
        return refuse_all(filtered, reason, f"{reason.text}: {fit} of {record.size} pods fit")

    async def _planned(
        self,
        pod: Pod,
        group: Group,
        record: GroupRecord,
        asked: Wanted,
        inputs: object,
        filtered: Filtered,
        answers: NodeAnswers,
    ) -> str:
        """The node of the pod's place, if it and the pods that have none have places, which are held now; "" if not.

        For an open group there may be places for some of them only.
        """
        groups, started, before = self.groups, self._clock(), record.claims.copy()
        found = await self._search.plan(pod.uid, record, asked, filtered, answers)
        now = self._clock()
        record = groups.join(group, pod.uid, record.priority or 0, now)
        if found.held is not None:
            held = replace(found.held.after(before, record.claims), own=replace(found.held.own, leads=group.leads))
            groups.hold(record, pod.uid, held, now)
            return held.own.node_name
        if not record.is_open:
            if pod.uid not in record.claims:
                groups.give_back(record, now)
            if (seconds := now - started) > LONG_SHARE * self._plan_seconds:
                self._resting[record.key[1]] = now + PAUSE_SHARE * seconds
            record.unfit = Unfit(
                fit=found.fit,
                why=dict(found.why),
                guessed=asked.guessed,
                inputs=inputs,
                same_until=now + REPLAN_SECONDS,
            )
        return ""

    async def _admit(self, known: KnownPod, node_name: str) -> NotBound | None:
        """Whether the pod may be bound to the node now, as one of its group: None if it may, else why not."""
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
        if not record.is_open and (place is None or place.node_name not in ("", node_name)):
            return NO_PLACE  # it was given back, or is on another node since other pods of the group came
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
        if not lasts:
            record.unsettled_since = min(record.unsettled_since, now)
        if not lasts and self._clock() - record.unsettled_since < self._settings.hold_back_seconds:
            return UNSETTLED
        return None if record.is_complete else INCOMPLETE

    def _goes_after(self, known: KnownPod, node_name: str) -> bool:
        """Whether other pods of the pod's group must be bound to the node before it, because they would not fit later.

        The pod would take room that is held on the node.
        """
        record = None if known.group is None else self.groups.get(known.group)
        place = None if record is None else record.claims.get(known.uid)
        return place is not None and place.node_name == node_name and place.rank > 0

    def post_bind(self, call: BindCall, outcome: BindOutcome) -> None:
        """The attempt has ended: the pod has its place, keeps it, or loses it."""
        known, node_name, groups, now = call.known, call.node_name, self.groups, self._clock()
        self._permitted.pop(node_name, None)
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
