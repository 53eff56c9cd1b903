"""The room on nodes that is held for pods of groups: which other pods would take it, and whether places still fit.

A pod is refused on a node where a held place would no longer fit beside it; `groups` states the limits. The event loop
reads the groups; replays run on it if they are short, otherwise elsewhere.

The steps that the groups of a namespace cost are charged to that namespace. One call spends at most `ROOM_STEPS` on all
held room, first on the nodes where it is cheap to look at. All calls spend at most `STEPS_A_SECOND`, of which each
namespace with places has an equal part; it may save up what `SAVED_SECONDS` give. Besides, each call spends
`LIGHT_STEPS` on places of few containers. Places on further nodes are not protected: the pod is offered such a node.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from math import ceil, inf
from typing import Final, TypeVar

from extender.api.service import Service
from extender.bounded import BoundedMap
from extender.features.groups.groups import Groups
from extender.features.groups.record import GroupRecord, HeldPlace, Hold, Key
from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError
from extender.questions.dra_rows import RowsWithDevices, may_ask
from extender.replay.pod import Pod
from extender.scheduling.cached_judge import MAX_AT_ONCE
from extender.scheduling.fit_together import Candidate, fit_together, numa_nodes_of_places, outlast_exits
from extender.scheduling.judge import LOOP_STEPS, BoundedJudge
from extender.scheduling.objections import Filtered, without
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason
from extender.wire.scheduler import SchedulerArgs

T = TypeVar("T")
PLAN_STEPS: Final = 1_000_000
"""Steps of all that one plan or one check of a group's places does off the event loop: about a second. A group of 256
pods of twelve containers takes about 100,000."""
ROOM_STEPS: Final = 10_000
"""Steps of one call's replays off the event loop: enough for about 300 containers of places and earlier pods."""
STEPS_A_SECOND: Final = 5_000
"""Less than a hundredth of one CPU, however many calls there are and however often the nodes change."""
SAVED_SECONDS: Final = 20.0
LIGHT_STEPS: Final = 500
"""Steps of each call for places with few containers: less than a millisecond, and not taken from the shared steps."""
LIGHT_CONTAINERS: Final = 8
"""`LIGHT_STEPS` are for nodes where the places and the pod together have at most this many containers."""
MAX_NAMESPACES: Final = 1_000
"""The number of namespaces whose remaining steps are kept."""
LOOP_CONTAINERS: Final = LOOP_STEPS // 40
"""Room of more containers is replayed in a thread: on the event loop it would take more than `LOOP_STEPS`."""
KNOWN_BYTES: Final = 8 << 20
"""The size of all cached answers to "does this pod take held room on such a node". Beyond it all are dropped."""
MAX_CHECKED: Final = 256
"""How many nodes with held places one filter call checks at most. Bind checks the chosen node in any case."""
MAX_SHOWN: Final = 64
"""How many places of a group are replayed to show their NUMA nodes."""


@dataclass(frozen=True, slots=True)
class WorkLimits:
    """The budgets of all that one plan does: on the event loop, and beside it. `until`: when its time is over."""

    at_once: Budget = field(default_factory=lambda: Budget(LOOP_STEPS))
    beside: Budget = field(default_factory=lambda: Budget(PLAN_STEPS))
    until: float = inf


class HeldRoom:
    """Keeps single pods away from held places."""

    def __init__(self, groups: Groups, service: Service) -> None:
        self._groups, self.candidate = groups, service.known.candidate
        self._judge, self._clock, self._offload = service.judging, service.clock, service.offload
        self._around = service.surroundings
        self._known: dict[tuple[Hashable, _RoomKey], bool] = {}
        """Whether the pod of that shape takes the places; None: whether the places fit without it."""
        self._known_bytes = 0
        self._places: BoundedMap[str, _Places] = BoundedMap(MAX_CHECKED)
        """Places that the last pod had to leave free, by node."""
        self._left: BoundedMap[str, tuple[float, float]] = BoundedMap(MAX_NAMESPACES)
        """How many steps each namespace had left, and when; less than 0 after a replay that took more."""

    async def left_free(self, args: SchedulerArgs, key: Key | None, filtered: Filtered) -> Filtered:
        """The result of filter without the nodes on which the pod would take held room. *key*: the pod's group."""
        groups = self._groups
        groups.expire(self._clock())
        if not groups.held or not filtered.feasible:
            return filtered
        names = filter(frozenset(filtered.feasible).__contains__, islice(groups.held, MAX_CHECKED))
        held = ((name, [h for h in groups.held[name] if h.key != key and h.precedes(args.priority)]) for name in names)
        checks, shape = {name: holds for name, holds in held if holds}, PodShape(args.pod)
        taken = await self._taking(shape, checks)
        rows = {name: [each.shape for each in holds] for name, holds in checks.items() if name not in taken}
        if may_ask(shape) and any(map(may_ask, chain.from_iterable(rows.values()))):
            devices = RowsWithDevices.of(self._around.make_forecast, self._around, [shape], ())
            taken |= await self._offload(devices.short_after, shape, rows, Budget(3 * ROOM_STEPS))
        return without(filtered, taken, RefusalReason.HELD)

    async def is_taken_by(self, pod: Pod, priority: int, group: Key | None, node_name: str) -> bool:
        """Whether the pod, of this group, would take held room on the node."""
        self._groups.expire(self._clock())
        holds = self.against(pod, priority, group, node_name)
        return bool(await self._taking(PodShape(pod), {node_name: holds} if holds else {}))

    def against(self, pod: Pod, priority: int, key: Key | None, name: str) -> list[Hold]:
        """The places on the node that the pod must leave free. *key*: the pod's group."""
        holds = self._groups.held.get(name, ())
        return [each for each in holds if each.uid != pod.uid and (each.key == key or each.precedes(priority))]

    async def still_fits(self, record: GroupRecord) -> tuple[bool, bool]:
        """Whether all places fit together in the newest states of their nodes, and still do when another pod ends.

        If that takes more than `PLAN_STEPS`, they do not.
        """
        places = [(self.candidate(name), shapes) for name, shapes in _by_node(record.places).items()]
        judge, devices = self._judge.judge, self.devices_for(record, [each.shape for _, each in record.places])

        def check(budget: Budget) -> tuple[bool, bool]:
            with suppress(BudgetError):
                checks = [(each, got) for each, pods in places if (got := devices.given(each.name, pods, budget))]
                fit = len(checks) == len(places) and all(fit_together(judge, got, each, budget) for each, got in checks)
                if fit and not budget.is_used_up:
                    return True, outlast_exits(judge, checks, budget) and not budget.is_used_up
            return False, False

        return await self.work(check, record.size, WorkLimits())

    async def numa_nodes(self, record: GroupRecord) -> dict[str, list[int]]:
        """The NUMA nodes, as raw bits, of the places on each node, in the order of `GroupRecord.places`.

        0: none, or not known. At most `MAX_SHOWN` places are replayed; the others are left out.
        """
        by_node = _by_node(islice(record.places, MAX_SHOWN))
        checks = [(self.candidate(name), shapes) for name, shapes in by_node.items()]

        def find(budget: Budget) -> list[list[int]]:
            return [numa_nodes_of_places(self._judge.judge, shapes, each, budget) for each, shapes in checks]

        return dict(zip(by_node, await self.work(find, len(checks), WorkLimits()), strict=True))

    def devices_for(self, record: GroupRecord, shapes: Iterable[PodShape]) -> RowsWithDevices:
        """What predicts the devices of the group's pods of these shapes. Claims of pods that are not bound are free."""
        waiting = [each.shape.pod for uid, each in record.members.items() if uid not in record.bound]
        return RowsWithDevices.of(self._around.make_forecast, self._around, shapes, waiting)

    async def work(self, work: Callable[[Budget], T], size: int, limits: WorkLimits) -> T:
        """The result of *work*: on the event loop if it is short. *size*: in replays. *limits*: shared with others."""
        if size <= MAX_AT_ONCE and not limits.at_once.is_used_up:
            result = work(limits.at_once)
            if not limits.at_once.is_used_up:
                return result
        return await self._offload(work, limits.beside)

    async def _taking(self, shape: PodShape, checks: Mapping[str, Sequence[Hold]]) -> frozenset[str]:
        """The nodes on which a pod of the shape would take room that a held place needs."""
        wanted: dict[_Room, list[str]] = {}
        for name, holds in checks.items():
            places = self._places.get(name)
            if places is None or places.holds != holds:
                for gone in self._places.keys() - self._groups.held.keys():
                    del self._places[gone]
                places = self._places[name] = _Places(holds)
            wanted.setdefault(_Room(self.candidate(name), places), []).append(name)
        takes = {room: self._known[shape.key, room] for room in wanted if (shape.key, room) in self._known}
        if missing := sorted(wanted.keys() - takes.keys(), key=lambda room: room.places.size):
            takes |= await self._looked_at(shape, missing)
        return frozenset(name for room, names in wanted.items() if takes.get(room) for name in names)

    async def _looked_at(self, shape: PodShape, rooms: Sequence["_Room"]) -> Mapping["_Room", bool]:
        """Whether the pod takes each of *rooms*, the smaller ones first; those without steps are left out."""
        fits = {room: self._known[None, room] for room in rooms if (None, room) in self._known}
        look = _Look(self._judge.judge, shape, fits, self._steps_left({room.places.namespace for room in rooms}))
        most = LIGHT_CONTAINERS - len(shape.pod.containers)
        look.at([room for room in rooms if room.places.size <= most], LIGHT_STEPS)
        look.spent.clear()
        look.at(look.due(room for room in rooms if room.places.size <= LOOP_CONTAINERS), LOOP_STEPS)
        if left := look.due(rooms):
            await self._offload(look.at, left, ROOM_STEPS)
        for namespace, steps in look.spent.items():
            left_steps, since = self._left[namespace]
            self._left[namespace] = left_steps - steps, since
        added = sum(shape.pod.weight_bytes + room.places.weight_bytes for room in look.found)
        if self._known_bytes + added > KNOWN_BYTES:
            self._known.clear()
            self._known_bytes = 0
        self._known_bytes += added
        self._known.update({(None, _RoomKey(room.key)): is_fit for room, is_fit in look.fits.items()})
        self._known.update({(shape.key, _RoomKey(room.key)): is_taken for room, is_taken in look.found.items()})
        return look.found

    def _steps_left(self, namespaces: Collection[str]) -> Mapping[str, float]:
        """How many steps may be spent now on places of groups of each namespace. Not positive: none."""
        now, sharing = self._clock(), {hold.key[1] for holds in self._groups.held.values() for hold in holds[:1]}
        each_second = STEPS_A_SECOND / max(1, len(sharing))
        most = each_second * SAVED_SECONDS
        for each in namespaces:
            left, since = self._left.get(each, (most, now))
            self._left[each] = min(most, left + (now - since) * each_second), now
        return {each: self._left[each][0] for each in namespaces}


@dataclass(slots=True)
class _Look:
    """One call that looks at held room for a pod of the *shape*. `left`: steps of each namespace when it began.

    `fits`: whether the places of a room fit without the pod, as far as it is known. `found`: whether the pod takes the
    room. `spent`: steps by namespace; a look that has begun may take more than there are left.
    """

    judge: BoundedJudge
    shape: PodShape
    fits: dict["_Room", bool]
    left: Mapping[str, float]
    found: dict["_Room", bool] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)

    def due(self, rooms: Iterable["_Room"]) -> list["_Room"]:
        """The rooms that are not looked at yet, of namespaces that have steps left."""
        new = (room for room in rooms if room not in self.found)
        return [room for room in new if self.spent[namespace := room.places.namespace] < self.left[namespace]]

    def at(self, rooms: Sequence["_Room"], steps: int) -> None:
        """Look at the first ones of *rooms*, as many as *steps* suffice for. May run in a thread.

        If `ROOM_STEPS` are not enough to decide, the room counts as not taken, unless half of them are not enough for
        the pod alone.
        """
        left = float(steps)
        for room in rooms:
            budget = Budget(left)
            is_taken = self.fits.get(room, True) and not self._fit([self.shape, *room.places.held], room, budget)
            if is_taken and not budget.is_used_up and room not in self.fits:
                is_fit = self._fit(room.places.held, room, budget)
                if not budget.is_used_up:
                    is_taken = self.fits[room] = is_fit
            if budget.is_used_up:
                if left >= ROOM_STEPS:
                    self._pass_over(room)
                return
            self.found[room], left = is_taken, left - budget.used

    def _pass_over(self, room: "_Room") -> None:
        """If the pod itself takes too many steps, it must leave free those places that fit."""
        alone = Budget(ROOM_STEPS // 2)
        self._fit([self.shape], room, alone)
        if room not in self.fits:
            self.fits[room] = alone.is_used_up and self._fit(room.places.held, room, Budget(ROOM_STEPS))
        self.found[room] = self.fits[room] and alone.is_used_up

    def _fit(self, pods: Sequence[PodShape], room: "_Room", budget: Budget) -> bool:
        before = budget.used
        is_fit = fit_together(self.judge, pods, room.candidate, budget)
        self.spent[room.places.namespace] += ceil(budget.used - before)
        return is_fit


class _RoomKey:
    """Room as the key of an answer that is kept: it keeps no class of nodes alive, whose size a node chooses.

    Equal to a room with the same *key*, whose hash is computed once.
    """

    __slots__ = ("_hash", "key")

    def __init__(self, key: tuple[object, ...]) -> None:
        self.key: Final = key
        self._hash: Final = hash(key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _RoomKey) and self.key == other.key


class _Places:
    """The places on a node that a pod must leave free. `key`: equal if the places are for the same pods.

    `size`: the containers of all places. `weight_bytes`: the size of the pods. `namespace`: the one whose places have
    most of the containers; groups of different priorities can have places on one node.
    """

    __slots__ = ("held", "holds", "key", "namespace", "size", "weight_bytes")

    def __init__(self, holds: Sequence[Hold]) -> None:
        containers: Counter[str] = Counter()
        for each in holds:
            containers[each.key[1]] += len(each.shape.pod.containers)
        self.holds, self.held = holds, [each.shape for each in holds]
        self.key = _RoomKey(tuple(each.key for each in self.held))
        self.weight_bytes = 500 + sum(each.pod.weight_bytes for each in self.held)
        self.size, self.namespace = containers.total(), max(containers, key=containers.__getitem__)


class _Room(_RoomKey):
    """Places on a node in a certain state. Equal where the same pods take it."""

    __slots__ = ("candidate", "places")

    def __init__(self, candidate: Candidate, places: _Places) -> None:
        left = None if candidate.left_milli is None else tuple(sorted(candidate.left_milli.items()))
        self.candidate, self.places = candidate, places
        super().__init__((candidate.node_class.id, left, places.key))


def _by_node(places: Iterable[tuple[str, HeldPlace]]) -> dict[str, list[PodShape]]:
    """The shapes of the pods of *places*, by node. Places on no node are left out."""
    by_node: dict[str, list[PodShape]] = {}
    for _, place in places:
        if place.node_name:
            by_node.setdefault(place.node_name, []).append(place.shape)
    return by_node
