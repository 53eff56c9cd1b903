"""One group of pods: which pods are bound, which places are held for the others, and its state. Values and one record.

A place is room for one pod on one node. A pod that comes to filter claims a place. Until then the place is spare.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from typing import Final

from extender.scheduling.pod_shape import PodShape
from extender.wire.groups import ObjectKey

OPEN_HOLDS: Final = 10
"""The rest of an open group holds places for at most this many times `hold_seconds` after its last binding."""
FORGET_SECONDS: Final = 600.0
"""kube-scheduler tries every pending pod again after 5 minutes at most, so the pods of an older group are gone."""
Key = tuple[str, str, str]


class GroupState(StrEnum):
    """What a group is doing. The values are labels of `numa_extender_groups`."""

    SINGLE = "single"
    """The size is not known, 1, or above the limit: the group's pods are judged one by one."""
    WAITING = "waiting"
    """The group has no places: it does not fit, or it rests."""
    HOLDING = "holding"
    """The group has places, and none of its pods is bound."""
    OPEN = "open"
    """Some of its pods are bound."""
    PLACED = "placed"
    """All pods that must run together are bound, or were bound, and no further pod has come since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """A place that is held. `uid`: the pod that claims it, "" if it is spare. `is_open`: whether its group is open."""

    key: Key
    uid: str
    shape: PodShape
    node_name: str
    priority: int
    is_open: bool

    def precedes(self, priority: int) -> bool:
        """Whether a pod outside the group must leave this room free.

        Of an open group the pods that exist come before every other pod. Places for pods that may never come do not:
        otherwise one small pod could keep more important pods off a cluster.
        """
        return (self.is_open and bool(self.uid)) or self.priority >= priority


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """Room for one pod of the shape. `node_name`: "" for a pod that needs none on a certain node.

    `rank`: on one node, places of the group with lower ranks must be used first. `seen_at`: when the pod
    that claims it last came to filter. `leads`: this pod is bound before the others come.
    """

    node_name: str
    shape: PodShape
    rank: int = 0
    seen_at: float = -inf
    leads: bool = False


@dataclass(frozen=True, slots=True)
class Member:
    """A pod of the group that came to filter, last at `seen_at`. `is_alone`: no two such pods can be on one node."""

    shape: PodShape
    is_alone: bool
    seen_at: float
    role: str = ""


@dataclass(frozen=True, slots=True)
class HeldPlan:
    """Places for a pod (`own`), for other pods that keep theirs (`claims`, by UID), and for those that must come first.

    The last of `spare` are for pods that have not come at all.
    """

    own: HeldPlace
    claims: Mapping[str, HeldPlace]
    spare: Sequence[HeldPlace]

    def after(self, before: Mapping[str, HeldPlace], now: Mapping[str, HeldPlace]) -> "HeldPlan":
        """The plan, if pods had the places *before* when it began, and have those of *now*.

        A pod that was bound since then needs its place no longer. One that took a spare place takes one of the plan.
        """
        spare, claims = list(self.spare), {uid: place for uid, place in self.claims.items() if uid in now}
        for uid, place in now.items():
            if uid in claims or before.get(uid) == place:
                continue
            same = (each for each in spare if each.node_name == place.node_name and each.shape.key == place.shape.key)
            if (found := next(same, None)) is not None:
                spare.remove(found)
                claims[uid] = replace(place, rank=found.rank)
        return HeldPlan(self.own, claims, spare)


@dataclass(frozen=True, slots=True)
class Unfit:
    """The group did not fit: only `fit` of its pods did. `why`: how many nodes refuse one more pod, by reason.

    `guessed`: how many pods had not come, and counted as copies of one that had.
    `inputs`: the pod, nodes and states of the call; equal values mean an equal result until `same_until`.
    """

    fit: int
    why: Mapping[str, int]
    guessed: int
    inputs: object
    same_until: float

    def holds(self, inputs: object, now: float) -> bool:
        """Whether this result stands for a call with these inputs."""
        return now < self.same_until and self.inputs == inputs


@dataclass(slots=True)
class GroupRecord:
    """One group.

    `size`: how many pods must fit together, 0 if unknown. `bound`: the node of each bound pod, by UID. `claims`: places
    by UID.

    `stated_size`: the size that is stated, even if it is above the limit. `object_key`: the object that may state it.
    `seen_at`: when one of its pods last came to filter, or was seen bound. `bound` has the pods that run or will run:
    neither finished nor being deleted. `priority`: the lowest one of its pods that came; None before one came.
    `spare`: places for pods that have not come. `sending`: pods that bind works on at present. `is_opened`: bind has
    begun with one of its pods. `was_placed`: all of its pods were bound, and none has come since then.

    Times are seconds of one monotonic clock. `held_since`: when it got its first place. `hold_until`: when places are
    given back next; `open_until`: when all of an open group are. `rests_until`: it gets no places before then.
    `unsettled_since`: since when the end of another pod could cost one of its pods the place; inf: no end can. `unfit`:
    the last plan, if it found too few places. `members`: pods that came to filter, also those that are bound, by UID,
    at most as many as the size.
    """

    key: Key
    size: int = 0
    stated_size: int = 0
    object_key: ObjectKey | None = None
    seen_at: float = -inf
    priority: int | None = None
    bound: dict[str, str] = field(default_factory=dict)
    claims: dict[str, HeldPlace] = field(default_factory=dict)
    spare: list[HeldPlace] = field(default_factory=list)
    sending: set[str] = field(default_factory=set)
    is_opened: bool = False
    was_placed: bool = False
    hold_until: float = inf
    open_until: float = inf
    held_since: float = -inf
    rests_until: float = -inf
    unsettled_since: float = inf
    unfit: Unfit | None = None
    members: dict[str, Member] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether a pod is bound, or about to be."""
        return self.is_opened or bool(self.bound)

    @property
    def is_full(self) -> bool:
        """Whether as many pods are bound as must run together."""
        return len(self.bound) >= self.size

    @property
    def is_complete(self) -> bool:
        """Whether every pod that must run together has come."""
        return len(self.bound) + len(self.claims) >= self.size

    @property
    def has_places(self) -> bool:
        """Whether it has places."""
        return bool(self.claims or self.spare)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is known of it but its size."""
        return not self.bound and not self.has_places

    @property
    def idle_until(self) -> float:
        """When the record can be dropped if it is idle until then."""
        return max(self.seen_at + FORGET_SECONDS, self.rests_until)

    @property
    def state(self) -> GroupState:
        """What the group is doing."""
        if self.size < 2:
            return GroupState.SINGLE
        if self.is_full or (self.was_placed and self.bound):
            return GroupState.PLACED
        if self.is_open:
            return GroupState.OPEN
        return GroupState.HOLDING if self.has_places else GroupState.WAITING

    @property
    def places(self) -> Sequence[tuple[str, HeldPlace]]:
        """The claimed places with their UIDs, and the spare ones with "", in the order in which they must be used."""
        spare = (("", place) for place in self.spare)
        return sorted((*self.claims.items(), *spare), key=lambda each: each[1].rank)

    def note(self, uid: str, member: Member) -> None:
        """Keep the shape of a pod that came to filter.

        If there are too many, one is gone: a pod of the same shape, or else the one that came longest ago. Those with
        a node or a place are kept.
        """
        self.members[uid] = member
        if len(self.members) > self.size:
            kept = {uid, *self.claims, *self.bound}
            others = [each for each in self.members if each not in kept]
            others.sort(key=lambda each: (self.members[each].shape.key != member.shape.key, self.members[each].seen_at))
            for each in others[: len(self.members) - self.size]:
                del self.members[each]

    def waiting(self, uid: str) -> Sequence[Member]:
        """The other pods that came and have neither a node nor a place, the one that came last first."""
        found = [m for each, m in self.members.items() if each not in (uid, *self.claims, *self.bound)]
        return sorted(found, key=lambda member: -member.seen_at)

    def missing(self, uid: str) -> int:
        """How many pods have no place: this one, and those that have not come. Not positive: all others have."""
        return self.size - len(self.bound) - len(self.claims.keys() - {uid})
