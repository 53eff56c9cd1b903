"""The groups of pods that are being placed, and the places that are held for them.

Rules of this file
- Synchronous; only the event loop's thread calls it. No clock: the time of each call is an argument, in seconds of one
  monotonic clock. `expire` applies timeouts.
- A place is room for one pod on one node. A pod that comes to filter claims a place. Until then the place is spare.
- If no pod of the group is bound within `hold_seconds` after its first place, all its places are given back. A node
  whose place was given back unused rests: no group holds a place on it for as long as it was held, times
  `rest_seconds / hold_seconds`. The group rests in the same way. A node that was held for `hold_seconds` without
  a pause gets no further place. So single pods wait for at most twice `hold_seconds` before they have their turn.
- Once a pod of the group is bound the group is open: its other places are held for `hold_seconds` after the last
  binding, and no pod of any priority may take them. Before that, pods with a higher priority may.
- Bounded: `MAX_GROUPS` groups, `MAX_HOLDING` of them with places and not open, `max_pods` pods of one group.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import Final

from extender.replay.pod import Pod
from extender.scheduling.pod_shape import PodShape
from extender.wire.groups import Group, ObjectKey

MAX_GROUPS: Final = 10_000
"""How many groups are known. The one that changed longest ago is dropped first, those with places last."""
MAX_HOLDING: Final = 8
UNSEEN_SECONDS: Final = 15.0
"""A pod that has not come to filter for this long may be gone. kube-scheduler tries again after 10 s at most."""
Key = tuple[str, str, str]


class GroupState(StrEnum):
    """What a group is doing. The values are labels of `numa_extender_groups`."""

    SINGLE = "single"
    """Its size is not known, or above the limit: its pods are judged one by one."""
    WAITING = "waiting"
    """It has no places: it does not fit, or it rests."""
    HOLDING = "holding"
    """It has places, and none of its pods is bound."""
    OPEN = "open"
    """Some of its pods are bound."""
    PLACED = "placed"
    """As many of its pods are bound as must run together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSettings:
    """`hold_seconds`, `rest_seconds`, `max_pods`: see the file's rules. `plan_seconds`: for one plan."""

    hold_seconds: float
    rest_seconds: float
    max_pods: int
    plan_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A place that is held. `uid`: of the pod that claims it, "" if it is spare. `is_open`: as its group."""

    key: Key
    uid: str
    shape: PodShape
    node_name: str
    priority: int
    is_open: bool

    def precedes(self, priority: int) -> bool:
        """Whether a pod outside the group must leave this room free."""
        return self.is_open or self.priority >= priority


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """Room for one pod of the shape. `node_name`: "" for a pod that needs none on a certain node.

    `seen_at`: when the pod that claims it last came to filter. `leads`: this pod is bound before the others come.
    """

    node_name: str
    shape: PodShape
    seen_at: float = -inf
    leads: bool = False


@dataclass(frozen=True, slots=True)
class Unfit:
    """The group did not fit: only `fit` of its pods did. `why`: how many nodes refuse one more pod, by reason.

    `of`: the pod, nodes and states of the call; equal values mean an equal result.
    """

    fit: int
    why: Mapping[str, int]
    of: object
    at: float


@dataclass(slots=True)
class GroupRecord:
    """One group. `size`: how many pods must fit together, 0 if unknown. `bound`: node by UID. `claims`: by UID."""

    key: Key
    size: int = 0
    priority: int = 0
    bound: dict[str, str] = field(default_factory=dict)
    claims: dict[str, HeldPlace] = field(default_factory=dict)
    spare: list[HeldPlace] = field(default_factory=list)
    is_opened: bool = False
    hold_until: float = inf
    held_since: float = -inf
    rests_until: float = -inf
    unfit: Unfit | None = None

    @property
    def is_open(self) -> bool:
        """See the file's rules."""
        return self.is_opened or bool(self.bound)

    @property
    def is_complete(self) -> bool:
        """Whether every pod that must run together has come."""
        return len(self.bound) + len(self.claims) >= self.size

    @property
    def has_places(self) -> bool:
        """Whether it has places."""
        return bool(self.claims or self.spare)

    @property
    def state(self) -> GroupState:
        """What the group is doing."""
        if not self.size:
            return GroupState.SINGLE
        if len(self.bound) >= self.size:
            return GroupState.PLACED
        if self.is_open:
            return GroupState.OPEN
        return GroupState.HOLDING if self.has_places else GroupState.WAITING

    @property
    def places(self) -> Iterator[tuple[str, HeldPlace]]:
        """The claimed places with their UIDs, and the spare ones with ""."""
        yield from self.claims.items()
        for each in self.spare:
            yield "", each


class Groups:
    """See the file's rules."""

    def __init__(self, settings: GangSettings) -> None:
        self.settings: Final = settings
        self.held: dict[str, list[Hold]] = {}
        """The places by node. Each change replaces the dict, so a reader may keep it."""
        self.expired = 0
        """How many groups gave their places back because their time was over."""
        self._records: OrderedDict[Key, GroupRecord] = OrderedDict()
        self._key_of: dict[str, Key] = {}
        self._sizes: dict[ObjectKey, int] = {}
        self._resting: dict[str, float] = {}
        self._held_since: dict[str, float] = {}
        self._released: set[str] = set()

    def __iter__(self) -> Iterator[GroupRecord]:
        """Every group, the one that changed longest ago first."""
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def get(self, key: Key) -> GroupRecord | None:
        """The record of a group; None if there is none."""
        return self._records.get(key)

    def of_pod(self, uid: str) -> GroupRecord | None:
        """The group in which the pod is bound, or has a place; None if there is none."""
        key = self._key_of.get(uid)
        return None if key is None else self._records.get(key)

    def size_of(self, group: Group) -> int:
        """How many of the group's pods must fit together; 0 if that is not known, or more than `max_pods`."""
        size = group.size or (self._sizes.get(group.object_key, 0) if group.object_key is not None else 0)
        return size if size <= self.settings.max_pods else 0

    def set_size(self, key: ObjectKey, size: int) -> None:
        """Keep the size that an object of the API states. 0: the object is gone."""
        if size:
            self._sizes[key] = size
        else:
            self._sizes.pop(key, None)

    def join(self, group: Group, priority: int) -> GroupRecord:
        """The group's record, when one of its pods comes to filter. A new one if there is none."""
        record = self._record(group.key)
        record.size, record.priority = self.size_of(group), priority
        return record

    def claim(self, record: GroupRecord, uid: str, place: HeldPlace, now: float) -> None:
        """Give the pod this place. If the group then has too many places, drop spare ones."""
        record.claims[uid] = replace(place, seen_at=now)
        self._key_of[uid] = record.key
        while record.spare and len(record.bound) + len(record.claims) + len(record.spare) > record.size:
            record.spare.pop()
        self._update(record, now)

    def take_spare(self, record: GroupRecord, pod: Pod, is_feasible: Callable[[str], bool]) -> HeldPlace | None:
        """Remove and return a spare place for a pod of this shape on a feasible node. None: there is none."""
        shape, known = pod.shape, dict[int, bool]()
        for place in record.spare:
            is_same = known.get(id(place.shape))
            if is_same is None:  # mostly all places have one shape
                is_same = known[id(place.shape)] = place.shape.pod.shape == shape
            if is_same and is_feasible(place.node_name):
                record.spare.remove(place)
                return place
        return None

    def hold(self, record: GroupRecord, uid: str, places: Sequence[HeldPlace], now: float) -> None:
        """Hold the places of a plan: the first for the pod, the others spare. Earlier spare places are dropped."""
        record.unfit = None
        if not record.has_places:
            record.held_since, record.hold_until = now, now + self.settings.hold_seconds
        record.spare = list(places[1:])
        self.claim(record, uid, places[0], now)

    def lose(self, uid: str, now: float) -> None:
        """Drop the pod's place, because it no longer fits. The pod needs another one."""
        record = self.of_pod(uid)
        if record is not None and record.claims.pop(uid, None) is not None:
            del self._key_of[uid]
            self._update(record, now)

    def give_back(self, record: GroupRecord, now: float) -> None:
        """Give back all places of the group."""
        for uid in record.claims:
            del self._key_of[uid]
        record.claims, record.spare = {}, []
        self._update(record, now)

    def forget_unseen(self, record: GroupRecord, now: float) -> None:
        """Drop the places of pods that have not come to filter for `UNSEEN_SECONDS`."""
        for uid in [uid for uid, place in record.claims.items() if now - place.seen_at > UNSEEN_SECONDS]:
            self.lose(uid, now)

    def open(self, record: GroupRecord, now: float) -> None:
        """Mark the group as open: its first pod is about to be bound."""
        record.is_opened, record.hold_until = True, now + self.settings.hold_seconds
        self._update(record, now)

    def bind(self, uid: str, node_name: str, now: float) -> None:
        """Record that a pod with a place was bound."""
        record = self.of_pod(uid)
        if record is not None:
            self._bind(record, uid, node_name, now)

    def see_bound(self, group: Group, uid: str, node_name: str, now: float) -> None:
        """Record that the API server shows the pod on the node."""
        record = self._record(group.key)
        record.size = record.size or self.size_of(group)
        self._bind(record, uid, node_name, now)

    def see_gone(self, uid: str, now: float) -> None:
        """Record that the pod no longer exists."""
        record = self.of_pod(uid)
        if record is None:
            return
        record.bound.pop(uid, None)
        record.claims.pop(uid, None)
        del self._key_of[uid]
        self._update(record, now)
        if not record.bound and not record.has_places:
            del self._records[record.key]

    def may_hold(self, record: GroupRecord, now: float) -> bool:
        """Whether the group may hold places now."""
        holding = sum(1 for each in self._holding() if not each.is_open and each is not record)
        return now >= record.rests_until and holding < MAX_HOLDING

    def resting(self, now: float) -> Collection[str]:
        """Nodes on which no group may hold a further place now."""
        resting = {name for name, until in self._resting.items() if now < until}
        longest = self.settings.hold_seconds
        return resting | {name for name, since in self._held_since.items() if now - since >= longest}

    def released(self) -> set[str]:
        """The nodes on which places were given back since the last call."""
        released, self._released = self._released, set()
        return released

    def expire(self, now: float) -> None:
        """Give back the places whose time is over. Cheap where nothing is held."""
        if not self.held and not self._resting:
            return
        for record in [each for each in self._holding() if now >= each.hold_until]:
            self.expired += 1
            self.give_back(record, now)
        self._resting = {name: until for name, until in self._resting.items() if now < until}

    def _record(self, key: Key) -> GroupRecord:
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = GroupRecord(key)
            if len(self._records) > MAX_GROUPS:
                self._drop(next((each for each in self if not each.has_places), record))
        self._records.move_to_end(key)
        return record

    def _drop(self, record: GroupRecord) -> None:
        for uid in record.bound:
            del self._key_of[uid]
        del self._records[record.key]

    def _bind(self, record: GroupRecord, uid: str, node_name: str, now: float) -> None:
        if uid in record.bound:
            return
        place = record.claims.pop(uid, None)
        record.bound[uid] = node_name
        self._key_of[uid] = record.key
        if record.has_places:
            record.hold_until = now + self.settings.hold_seconds
        self._update(record, now, used=None if place is None else place.node_name)

    def _holding(self) -> list[GroupRecord]:
        keys = {hold.key for holds in self.held.values() for hold in holds}
        return [self._records[key] for key in keys]

    def _update(self, record: GroupRecord, now: float, used: str | None = None) -> None:
        """Bring `held` up to date after a change of the group. *used*: the node of a place that a binding used."""
        if len(record.bound) >= record.size:
            record.spare = []
        if not record.has_places and record.hold_until < inf:
            if not record.bound:
                record.rests_until = now + self._rest(record.held_since, now)
            record.hold_until, record.is_opened = inf, False
        held = {name: [each for each in holds if each.key != record.key] for name, holds in self.held.items()}
        for uid, place in record.places:
            hold = Hold(
                key=record.key,
                uid=uid,
                shape=place.shape,
                node_name=place.node_name,
                priority=record.priority,
                is_open=record.is_open,
            )
            held.setdefault(place.node_name, []).append(hold)
        self.held = {name: holds for name, holds in held.items() if holds}
        for name in self.held.keys() - self._held_since.keys() - {""}:
            self._held_since[name] = now
        for name in self._held_since.keys() - self.held.keys():
            since = self._held_since.pop(name)
            self._released.add(name)
            if name != used:
                self._resting[name] = now + self._rest(since, now)

    def _rest(self, since: float, now: float) -> float:
        """How long a node or a group rests, if it held places from *since* to *now*."""
        held_seconds = min(now - since, self.settings.hold_seconds)
        return held_seconds * self.settings.rest_seconds / self.settings.hold_seconds
