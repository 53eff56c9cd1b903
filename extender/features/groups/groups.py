"""The groups of pods that are being placed, and the places that are held for them.

Rules of this file
- Synchronous; only the event loop's thread calls it. No clock: the time of each call is an argument, in seconds of one
  monotonic clock. `expire` applies timeouts.
- If no pod of the group is bound within `hold_seconds` after its first place, all its places are given back. After a
  place is given back unused, no group holds a place on its node for `rest_seconds / hold_seconds` times as long as the
  place was held. The group rests in the same way. A node that was held for `hold_seconds` without a pause gets no
  further place. So single pods wait for at most twice `hold_seconds` before they have their turn.
- Once a pod of the group is bound the group is open. An open group is planned on resting nodes as well, because half a
  group is of no use. The places of its pods are held until they are bound, as long as they come to filter again within
  `hold_seconds`, for `OPEN_HOLDS` times `hold_seconds` after the last binding. These pods exist, so they count towards
  quotas. Spare places are held for `hold_seconds` after the last binding.
- If the first binding of a group fails, and no other one is under way, the group is not open any longer.
- A group has the priority of its least important pod, and the largest size that its pods state.
- A group without places and bound pods is forgotten `FORGET_SECONDS` after its last pod came to filter.
- Bounded: `MAX_GROUPS` groups; `MAX_HOLDING` groups that are not open hold places, half of them in one namespace;
  `max_pods` pods of one group; `MAX_SIZES` sizes from objects.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import chain, islice
from math import inf
from typing import Final

from extender.bounded import BoundedMap
from extender.config.settings import Settings
from extender.features.groups.record import OPEN_HOLDS, GroupRecord, HeldPlace, HeldPlan, Hold, Key
from extender.features.groups.templates import Templates
from extender.replay.pod import Pod
from extender.wire.groups import Group, ObjectKey

MAX_GROUPS: Final = 10_000
"""How many groups are known. Idle groups are dropped first, and those of which only some pods are bound last, each time
the one that changed longest ago. Groups with places are not dropped."""
MAX_HOLDING: Final = 8
MAX_SIZES: Final = 100_000
UNSEEN_SECONDS: Final = 15.0
"""A pod that has not come to filter for this long may be gone. kube-scheduler tries again after 10 s at most."""
_LOOKED_AT: Final = 100
"""How many groups are looked at to find one that can be dropped."""


class Groups:
    """The groups of pods that are known, with the places that are held for them."""

    def __init__(self, settings: Settings) -> None:
        self.settings: Final = settings
        self.templates: Final = Templates()
        self.held: dict[str, list[Hold]] = {}
        """The places by node. Each change replaces the dict and the node's list, so a reader may keep them."""
        self.expired = 0
        """How many groups gave their places back because their time was over."""
        self._records: OrderedDict[Key, GroupRecord] = OrderedDict()
        self._idle: OrderedDict[Key, None] = OrderedDict()
        """The groups of which only the size is known, the one that changed longest ago first."""
        self._holders: dict[Key, GroupRecord] = {}
        """The groups with places."""
        self._nodes: dict[Key, Collection[str]] = {}
        """The nodes on which each of them has places."""
        self._key_of: dict[str, Key] = {}
        """The group of each pod that is bound or has a place, by the pod's UID."""
        self._sizes: BoundedMap[ObjectKey, int] = BoundedMap(MAX_SIZES)
        self._unsized: dict[ObjectKey, set[Key]] = {}
        """Groups without a size, by the object that would state it: a watch can show their pods before the object."""
        self._resting: dict[str, float] = {}
        """Until when each node rests."""
        self._held_since: dict[str, float] = {}
        """Since when each node has had places without a pause."""
        self._released: set[str] = set()
        self._due = inf
        """When `expire` has something to do next."""

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

    def _within_limit(self, size: int) -> int:
        return size if size <= self.settings.gang_max_pods else 0

    def _stated_size(self, group: Group) -> int:
        return group.size or (self._sizes.get(group.object_key, 0) if group.object_key is not None else 0)

    def _note_size(self, record: GroupRecord, group: Group) -> int:
        """Record the size that the pod or its object states, and return it. One pod may state it for all.

        0: not known, or more than `max_pods`.
        """
        if group.size or group.object_key is not None:
            record.stated_size = self._stated_size(group)
        self._forget_unsized(record)
        record.object_key = group.object_key
        if not record.stated_size and record.object_key is not None:
            self._unsized.setdefault(record.object_key, set()).add(record.key)
        return self._within_limit(record.stated_size)

    def _forget_unsized(self, record: GroupRecord) -> None:
        """The group no longer waits for its object to state a size."""
        if record.object_key is not None and (keys := self._unsized.get(record.object_key)) is not None:
            keys.discard(record.key)
            if not keys:
                del self._unsized[record.object_key]

    def set_size(self, key: ObjectKey, size: int) -> None:
        """Keep the size that an object of the API states. 0: the object is gone."""
        if not size:
            self._sizes.pop(key, None)
            return
        self._sizes[key] = size
        for group in self._unsized.pop(key, ()):
            record = self._records[group]
            record.stated_size, record.size = size, self._within_limit(size)

    def join(self, group: Group, uid: str, priority: int, now: float) -> GroupRecord:
        """The group's record, when one of its pods comes to filter. A new one if there is none."""
        if self._key_of.get(uid, group.key) != group.key:  # labels of a pod can change
            self.see_gone(uid, now)
        record = self._record(group.key, now)
        size = self._note_size(record, group)
        if record.is_idle:
            record.size, record.priority, record.was_placed = size, priority, False
            return record
        record.size = size if group.object_key is not None and not group.size else max(record.size, size)
        if uid not in record.bound and not record.is_full:
            record.was_placed = False
        record.priority = priority if record.priority is None else min(record.priority, priority)
        return record

    def claim(self, record: GroupRecord, uid: str, place: HeldPlace, now: float) -> None:
        """Give the pod this place. If the group then has too many places, drop spare ones."""
        self._begin(record, now)
        record.claims[uid] = replace(place, seen_at=now)
        self._key_of[uid] = record.key
        while record.spare and record.missing("") < len(record.spare):
            record.spare.pop()
        self._update(record, now)

    def take_spare(self, record: GroupRecord, pod: Pod, is_feasible: Callable[[str], bool]) -> HeldPlace | None:
        """Remove and return a spare place for a pod of this shape on a feasible node. None: there is none."""
        key = pod.whole_shape
        for place in record.spare:
            if place.shape.key == key and is_feasible(place.node_name):
                record.spare.remove(place)
                return place
        return None

    def hold(self, record: GroupRecord, uid: str, plan: HeldPlan, now: float) -> None:
        """Hold the places of a plan, in place of all that the group has."""
        for each in record.claims.keys() - plan.claims.keys():
            del self._key_of[each]
        record.unfit = None
        record.claims, record.spare = dict(plan.claims), list(plan.spare)
        if record.waiting(uid):  # the waiting pods were refused before, and have places now
            self._released.update(place.node_name for place in record.spare)
        self.claim(record, uid, plan.own, now)
        if record.is_open:
            record.hold_until = min(record.open_until, now + self.settings.gang_hold_seconds)

    def lose(self, record: GroupRecord, uid: str, now: float) -> None:
        """Drop the pod's place, because it no longer fits. The pod needs another one."""
        if record.claims.pop(uid, None) is not None:
            del self._key_of[uid]
            self._update(record, now)

    def give_back(self, record: GroupRecord, now: float) -> None:
        """Give back all places of the group."""
        for uid in record.claims:
            del self._key_of[uid]
        record.claims, record.spare = {}, []
        self._update(record, now)

    def forget_unseen(self, record: GroupRecord, now: float, seconds: float = UNSEEN_SECONDS) -> None:
        """Drop the places of pods that have not come to filter for *seconds*, and that bind does not work on."""
        for uid, place in list(record.claims.items()):
            if now - place.seen_at >= seconds and uid not in record.sending:
                self.lose(record, uid, now)

    def open(self, record: GroupRecord, uid: str, now: float) -> None:
        """The pod is about to be bound: the group is open."""
        record.sending.add(uid)
        if not record.is_open:
            record.is_opened = True
            self._prolong(record, now)
            self._update(record, now)

    def end_binding(self, record: GroupRecord, uid: str, now: float, *, may_be_bound: bool) -> None:
        """The binding of the pod has ended. If it failed, the group may not be open any longer."""
        record.sending.discard(uid)
        if may_be_bound or record.sending or record.bound or not record.is_opened:
            return
        record.is_opened, record.open_until = False, inf
        hold_seconds = self.settings.gang_hold_seconds
        record.hold_until = min(now, record.held_since + hold_seconds) + hold_seconds
        self._update(record, now)

    def bind(self, record: GroupRecord, uid: str, node_name: str, now: float) -> None:
        """Record that a pod was bound."""
        if uid in record.bound:
            return
        if self._key_of.get(uid, record.key) != record.key:
            self.see_gone(uid, now)
        place = record.claims.pop(uid, None)
        record.bound[uid] = node_name
        self._key_of[uid] = record.key
        if record.has_places:
            self._prolong(record, now)
        self._update(record, now, used=None if place is None else place.node_name)

    def see_bound(self, group: Group, uid: str, node_name: str, now: float) -> None:
        """Record that the API server shows the pod on the node."""
        record = self._record(group.key, now)
        if not record.stated_size:
            record.size = self._note_size(record, group)
        self.bind(record, uid, node_name, now)

    def see_gone(self, uid: str, now: float) -> None:
        """Record that the pod no longer exists, or no longer runs."""
        record = self.of_pod(uid)
        if record is None:
            return
        del self._key_of[uid]
        record.bound.pop(uid, None)
        record.claims.pop(uid, None)
        record.members.pop(uid, None)
        self._update(record, now)
        if record.is_idle and now >= record.rests_until:
            self._drop(record)

    def may_hold(self, record: GroupRecord) -> bool:
        """Whether the group may hold places in addition to the groups that hold some now."""
        holding = [other.key for other in self._holders.values() if not other.is_open and other is not record]
        in_namespace = sum(key[1] == record.key[1] for key in holding)
        return len(holding) < MAX_HOLDING and in_namespace < MAX_HOLDING // 2

    def resting(self, now: float) -> Collection[str]:
        """Nodes on which no group may hold a further place now, unless it is open."""
        self._resting = {name: until for name, until in self._resting.items() if now < until}
        longest = self.settings.gang_hold_seconds
        return self._resting.keys() | {name for name, since in self._held_since.items() if now - since >= longest}

    def released(self) -> set[str]:
        """The nodes on which places were given back since the last call."""
        released, self._released = self._released, set()
        return released

    def expire(self, now: float) -> None:
        """Give back the places whose time is over. Cheap where nothing is due."""
        if now < self._due:
            return
        for record in [holder for holder in self._holders.values() if now >= holder.hold_until]:
            if not record.is_open or now >= record.open_until:
                self.expired += 1
                self.give_back(record, now)
                continue
            record.spare = []
            self.forget_unseen(record, now, self.settings.gang_hold_seconds)
            if record.has_places:
                seen_at = min(place.seen_at for place in record.claims.values())
                record.hold_until = min(record.open_until, max(now + 1.0, seen_at + self.settings.gang_hold_seconds))
            self._update(record, now)
        self._forget_idle(now)
        self._due = min((holder.hold_until for holder in self._holders.values()), default=inf)
        if self._idle:
            self._due = min(self._due, self._records[next(iter(self._idle))].idle_until)

    def _forget_idle(self, now: float) -> None:
        """Drop groups of which nothing is known and no pod comes any longer, at most `_LOOKED_AT` of them."""
        for key in list(islice(self._idle, _LOOKED_AT)):
            if now < self._records[key].idle_until:
                return
            self._drop(self._records[key])

    def _record(self, key: Key, now: float) -> GroupRecord:
        """The record of a group, or a new record. It becomes the one that changed last."""
        record = self._records.get(key)
        if record is None:
            if len(self._records) >= MAX_GROUPS:
                self._drop_one()
            record = self._records[key] = GroupRecord(key)
            self._idle[key] = None
        elif key in self._idle:
            self._idle.move_to_end(key)
        self._records.move_to_end(key)
        record.seen_at = now
        self._due = min(self._due, record.idle_until)
        return record

    def _drop_one(self) -> None:
        """Drop the least important group. There always is one, because few groups have places."""
        idle = (self._records[key] for key in islice(self._idle, 1))
        others = [record for record in islice(self, _LOOKED_AT) if not record.has_places]
        single_or_placed = (record for record in others if not record.size or record.is_full)
        without_places = (record for record in self if not record.has_places)
        self._drop(next(chain(idle, single_or_placed, others, without_places)))

    def _drop(self, record: GroupRecord) -> None:
        for uid in record.bound:
            del self._key_of[uid]
        self._forget_unsized(record)
        del self._records[record.key]
        self._idle.pop(record.key, None)

    def _begin(self, record: GroupRecord, now: float) -> None:
        """Start the time for which the group holds places, if it does not run yet."""
        if record.hold_until < inf:
            return
        record.held_since, record.hold_until = now, now + self.settings.gang_hold_seconds
        if record.is_open:
            self._prolong(record, now)

    def _prolong(self, record: GroupRecord, now: float) -> None:
        """Start the times of an open group anew."""
        hold_seconds = self.settings.gang_hold_seconds
        record.hold_until, record.open_until = now + hold_seconds, now + OPEN_HOLDS * hold_seconds

    def _update(self, record: GroupRecord, now: float, used: str | None = None) -> None:
        """Bring everything that follows up to date after a change. *used*: the node of a place that a binding used."""
        if record.bound and record.is_full:
            record.was_placed = True
            for uid in record.claims:
                del self._key_of[uid]
            record.claims, record.spare = {}, []
        if not record.has_places and record.hold_until < inf:
            if not record.bound or now >= record.open_until:
                record.rests_until = now + self._rest(record.held_since, now)
            record.hold_until = record.open_until = inf
            record.is_opened = False
        if record.has_places:
            self._holders[record.key] = record
            self._due = min(self._due, record.hold_until)
        else:
            self._holders.pop(record.key, None)
        if record.is_idle:
            self._idle[record.key] = None
            self._due = min(self._due, record.idle_until)
        else:
            self._idle.pop(record.key, None)
        self._hold_nodes(record, now, used)

    def _hold_nodes(self, record: GroupRecord, now: float, used: str | None) -> None:
        """Bring `held` up to date, and what rests."""
        new: dict[str, list[Hold]] = {}
        for uid, place in record.places:
            if place.node_name:
                hold = Hold(
                    key=record.key,
                    uid=uid,
                    shape=place.shape,
                    node_name=place.node_name,
                    priority=record.priority or 0,
                    is_open=record.is_open,
                )
                new.setdefault(place.node_name, []).append(hold)
        before = self._nodes.pop(record.key, ())
        if new:
            self._nodes[record.key] = new.keys()
        held = dict(self.held)
        for name in dict.fromkeys([*before, *new]):
            holds = [hold for hold in held.pop(name, ()) if hold.key != record.key] + new.get(name, [])
            if holds:
                held[name] = holds
                self._held_since.setdefault(name, now)
            elif (since := self._held_since.pop(name, None)) is not None:
                self._released.add(name)
                if name != used:
                    self._resting[name] = now + self._rest(since, now)
        self.held = held

    def _rest(self, since: float, now: float) -> float:
        """How long a node or a group rests, if it held places from *since* to *now*."""
        held_seconds = min(now - since, self.settings.gang_hold_seconds)
        return held_seconds * self.settings.gang_rest_seconds / self.settings.gang_hold_seconds
