"""Holds the places of Workloads until their pods are bound: other pods must leave them free.

Rules of this file
- A place is held for a limited time. It ends earlier if a pod of its pod set is bound, or the Workload is over.
- A pod of the Workload is offered the node of a place of its pod set, if that is feasible. If not, it may go anywhere.
- Another pod is kept from nodes with places while another node is feasible. If none is, it is refused only where the
  places would no longer fit beside it, by replay. Bind replays in any case. A pod with a higher priority than the
  Workload may take the places, and places that no longer fit by themselves are not protected.
- Bounded: `MAX_HELD` Workloads, `PER_NAMESPACE` of one namespace, and `MAX_PLACES` places. Of one filter call
  `MAX_CHECKED` nodes are replayed off the event loop, with `STEPS` steps in all. Where these do not suffice, the pod
  counts as taking the places.
- Without places filter and bind do nothing here.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import orjson

from extender.api.service import Service
from extender.bounded import BoundedMap
from extender.cluster.pods import KnownPod
from extender.features.kueue.objects import WorkloadHead
from extender.kube.changes import Batch, Gone
from extender.kube.client import JSON
from extender.kube.pods import PodRecord
from extender.kubelet.budget import Budget
from extender.replay.pod import Pod
from extender.scheduling.binder import RETRY, BindFailure, BindOutcome, NotBound
from extender.scheduling.fit_together import fit_together
from extender.scheduling.objections import BindCall, FilterCall, Filtered, Objector, avoid, only, without
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason
from extender.wire.groups import KUEUE_WORKLOAD
from extender.wire.parsing import Json, mapping

POD_SET: Final = "kueue.x-k8s.io/podset"
MAX_HELD: Final = 32
PER_NAMESPACE: Final = 4
MAX_PLACES: Final = 8_000
"""While so many places are held, no Workload gets further ones. A namespace may hold an eighth of them. A plan has at
most 10,000 pods: those of one Workload, and one for each place that is held."""
MAX_CHECKED: Final = 64
MAX_CAME: Final = 10_000
"""Pods whose Workload is kept between filter and bind."""
STEPS: Final = 100_000
REFUSED: Final = NotBound(
    f"the room on the node is held for the pods of a Workload of Kueue; {RETRY}", BindFailure.HELD
)
RACED: Final = NotBound(f"places for a Workload of Kueue were just held on the node; {RETRY}", BindFailure.HELD)
Key = tuple[str, str]
"""Namespace and name of a Workload."""


class Owner(NamedTuple):
    """The Workload of a pod, and the pod set that the pod is of."""

    key: Key
    pod_set: str


def owner_of(pod: Json, namespace: str = "") -> Owner | None:
    """The Workload that Kueue has written into a v1.Pod; None: none. *namespace*: in place of the pod's."""
    metadata = mapping(pod.get("metadata"))
    name = mapping(metadata.get("annotations")).get(KUEUE_WORKLOAD)
    space = namespace or metadata.get("namespace")
    if not isinstance(name, str) or not isinstance(space, str):
        return None
    return Owner((space, name), str(mapping(metadata.get("labels")).get(POD_SET) or ""))


def owner_of_record(record: PodRecord) -> Owner | None:
    """The same for a pod on a node."""
    if KUEUE_WORKLOAD.encode() not in record.reduced:  # most pods are of no Workload
        return None
    return owner_of(orjson.loads(record.reduced), record.namespace)


@dataclass(eq=False, slots=True)
class WorkloadPlace:
    """Room for a pod of a pod set. `document`: such a v1.Pod. `uid`: the pod that was offered it last."""

    node_name: str
    pod_set: str
    shape: PodShape
    document: JSON
    uid: str = ""


@dataclass(eq=False, slots=True)
class HeldWorkload:
    """The places of one Workload. `until`: seconds of the service's clock."""

    head: WorkloadHead
    priority: int
    until: float
    places: list[WorkloadPlace]

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.head.namespace, self.head.name


Hold = tuple[HeldWorkload, WorkloadPlace]


class HeldPlaces(Objector):
    """The places of all Workloads. `bound`: the pods on nodes of every Workload, with their pod sets, by UID."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._of: Final[dict[str, HeldWorkload]] = {}
        self._by_node: Final[dict[str, tuple[Hold, ...]]] = {}
        self.grounds = self._by_node
        self._released: set[str] = set()
        self._came: Final[BoundedMap[str, Owner]] = BoundedMap(MAX_CAME)
        self._permitted: Final[dict[str, tuple[Hold, ...]]] = {}
        self.bound: Final[dict[Key, dict[str, str]]] = {}
        self._owners: Final[dict[str, Key]] = {}

    def __len__(self) -> int:
        return sum(len(each.places) for each in self._of.values())

    def full(self, namespaces: Iterable[str]) -> set[str]:
        """Those of *namespaces* of which no further Workload may hold places."""
        if len(self._of) >= MAX_HELD or len(self) >= MAX_PLACES:
            return set(namespaces)
        workloads, places = Counter[str](), Counter[str]()
        for each in self._of.values():
            workloads[each.head.namespace] += 1
            places[each.head.namespace] += len(each.places)
        return {name for name in workloads if workloads[name] >= PER_NAMESPACE or places[name] >= MAX_PLACES // 8}

    def until(self, uid: str) -> float | None:
        """When the places of a Workload are given back; None: it has none."""
        return None if (held := self._of.get(uid)) is None else held.until

    def places(self, names: Iterable[str], but: str) -> Iterator[tuple[str, WorkloadPlace]]:
        """The places on these nodes, but not those of the Workload with this UID."""
        for name in names:
            for held, place in self._by_node.get(name, ()):
                if held.head.uid != but:
                    yield name, place

    def ends(self, names: Collection[str]) -> float | None:
        """When the next places on these nodes are given back; None: there are none."""
        ends = (held.until for name in names for held, _ in self._by_node.get(name, ()))
        return min(ends, default=None)

    def hold(self, head: WorkloadHead, priority: int, until: float, places: Sequence[WorkloadPlace]) -> None:
        """Hold these places, instead of those that the Workload has."""
        self.release(head.uid)
        if not places:
            return
        held = self._of[head.uid] = HeldWorkload(head, priority, until, list(places))
        for place in places:
            self._by_node[place.node_name] = (*self._by_node.get(place.node_name, ()), (held, place))

    def release(self, uid: str) -> None:
        """Give back the places of a Workload."""
        if (held := self._of.pop(uid, None)) is not None:
            for place in held.places:
                self._forget(place)

    def expire(self, now: float) -> None:
        """Give back the places whose time is over."""
        for uid in [uid for uid, held in self._of.items() if now >= held.until]:
            self.release(uid)

    def _forget(self, place: WorkloadPlace) -> None:
        name = place.node_name
        left = tuple(hold for hold in self._by_node.pop(name, ()) if hold[1] is not place)
        if left:
            self._by_node[name] = left
        self._released.add(name)

    # Pods that are bound

    def apply_pods(self, batch: Batch[PodRecord]) -> None:
        """Apply changes from the watch of pods on nodes."""
        for change in batch.changes:
            record = change.value
            if isinstance(change, Gone) or record.finished or record.terminating:
                self._see_gone(record.uid)
            elif record.uid not in self._owners and (owner := owner_of_record(record)) is not None:
                self._see_bound(owner, record.uid, record.node_name)

    def _see_bound(self, owner: Owner, uid: str, node_name: str) -> None:
        """A pod of a Workload is on the node: it needs no place any longer."""
        self.bound.setdefault(owner.key, {})[uid], self._owners[uid] = owner.pod_set, owner.key
        held, mine = self._places_of(owner)
        if held is not None and mine:
            used = min(mine, key=lambda place: (place.node_name != node_name, place.uid not in (uid, "")))
            held.places.remove(used)
            self._forget(used)
            if not held.places:
                del self._of[held.head.uid]

    def _places_of(self, owner: Owner) -> tuple[HeldWorkload | None, list[WorkloadPlace]]:
        """The pod's Workload, if it has places, and those for pods of its pod set."""
        held = next((each for each in self._of.values() if each.key == owner.key), None)
        return held, [] if held is None else [place for place in held.places if place.pod_set == owner.pod_set]

    def _see_gone(self, uid: str) -> None:
        if (key := self._owners.pop(uid, None)) is not None:
            self.bound[key].pop(uid, None)
            if not self.bound[key]:
                del self.bound[key]

    # Filter and bind

    async def filter(self, call: FilterCall, filtered: Filtered) -> Filtered:
        """The result as the rules of this file say."""
        owner, uid = owner_of(call.args.document), call.args.pod.uid
        if owner is not None:
            self._came[uid] = owner
        named = frozenset(filtered.feasible)
        found = ((name, self._against(owner, call.args.priority, name)) for name in self._by_node if name in named)
        checks = {name: shapes for name, shapes in found if shapes}
        after = avoid(filtered, checks, RefusalReason.HELD)
        if checks and after is filtered:
            after = without(filtered, await self._taken(call.args.pod, checks), RefusalReason.HELD)
        if owner is None or call.known.group is not None:  # places for groups are planned by themselves
            return after
        _, places = self._places_of(owner)
        feasible = frozenset(after.feasible) if places else frozenset()
        mine = [place for place in places if place.uid in (uid, "") and place.node_name in feasible]
        if not mine:
            return after
        place = max(mine, key=lambda each: each.uid == uid)
        place.uid = uid
        return only(after, place.node_name)

    async def permit(self, call: BindCall) -> NotBound | None:
        """The pod must leave the places of other Workloads free."""
        name = call.node_name
        self._permitted[name] = self._by_node.get(name, ())
        shapes = self._against(self._came.get(call.pod.uid), call.known.priority, name)
        return REFUSED if shapes and await self._taken(call.pod, {name: shapes}) else None

    def reserve(self, call: BindCall) -> NotBound | None:
        """No place may have been held on the node since `permit`."""
        before = self._permitted.get(call.node_name, ())
        return None if set(self._by_node.get(call.node_name, ())) <= set(before) else RACED

    def post_bind(self, call: BindCall, _outcome: BindOutcome) -> None:
        """The attempt has ended. The watch shows whether the pod is bound, and needs its place no longer."""
        self._permitted.pop(call.node_name, None)

    def kept_nodes(self, _known: KnownPod, _pod: Pod) -> Collection[str]:
        """The nodes with places."""
        return self._by_node.keys()

    def released(self) -> Collection[str]:
        """The nodes whose places were given back since the last call."""
        released, self._released = self._released, set()
        return released

    def _against(self, owner: Owner | None, priority: int, name: str) -> list[PodShape]:
        """The pods whose places on the node a pod must leave free."""
        key = None if owner is None else owner.key
        holds = self._by_node.get(name, ())
        return [place.shape for held, place in holds if held.priority >= priority and held.key != key]

    async def _taken(self, pod: Pod, checks: Mapping[str, Sequence[PodShape]]) -> Collection[str]:
        """The nodes on which the places no longer fit beside the pod."""
        candidates = [
            (self._service.known.candidate(name), shapes) for name, shapes in islice(checks.items(), MAX_CHECKED)
        ]
        judge = self._service.judging.judge

        def look() -> set[str]:
            budget, taken = Budget(STEPS), set(islice(checks, MAX_CHECKED, None))
            for candidate, shapes in candidates:
                together = fit_together(judge, [PodShape(pod), *shapes], candidate, budget)
                if budget.is_used_up or (not together and fit_together(judge, shapes, candidate, budget)):
                    taken.add(candidate.name)
            return taken

        return await self._service.offload(look)
