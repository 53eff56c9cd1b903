"""The room on nodes that is held for pods of groups: which other pods would take it, and whether places still fit.

A pod is refused on a node where a held place would no longer fit beside it; `groups` states the limits. The event loop
reads the groups; replays run on it if they are short, otherwise elsewhere.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

from extender.bounded import BoundedMap
from extender.cluster.node_class import UNKNOWN
from extender.cluster.store import NodeStore
from extender.replay.budget import Budget
from extender.replay.pod import Pod
from extender.scheduling.cached_judge import MAX_AT_ONCE, CachedJudge, Offload
from extender.scheduling.feasibility import Filtered, without
from extender.scheduling.gangs.groups import Groups
from extender.scheduling.gangs.planner import Candidate, numa_nodes_of_places, outlast_exits, takes_room
from extender.scheduling.gangs.record import GroupRecord, HeldPlace, Hold, Key
from extender.scheduling.name_positions import shared_names
from extender.scheduling.node_totals import NodeTotals
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.replays import LOOP_STEPS
from extender.wire.scheduler import SchedulerArgs

T = TypeVar("T")
MAX_KNOWN: Final = 4_096
"""How many answers to "does this pod take held room on such a node" are kept."""
MAX_CHECKED: Final = 256
"""How many nodes with held places one filter call checks at most. Bind checks the chosen node in any case."""
MAX_SHOWN: Final = 64
"""How many places of a group are replayed to show their NUMA nodes."""


class HeldRoom:
    """See the file's rules. *clock*: seconds of a monotonic clock."""

    def __init__(
        self,
        groups: Groups,
        cluster: NodeStore,
        judge: CachedJudge,
        totals: NodeTotals,
        *,
        clock: Callable[[], float],
        offload: Offload,
    ) -> None:
        self._groups, self._cluster, self._judge, self._totals = groups, cluster, judge, totals
        self._clock, self._offload = clock, offload
        self._known: BoundedMap[Hashable, bool] = BoundedMap(MAX_KNOWN)

    async def left_free(self, args: SchedulerArgs, filtered: Filtered) -> Filtered:
        """The result of filter without the nodes on which the pod would take held room."""
        groups, table = self._groups, self._cluster.index.names
        groups.expire(self._clock())
        if not groups.held or not filtered.feasible:
            return filtered
        key = None if args.group is None else args.group.key
        checks = {}
        for name in shared_names(list(islice(groups.held, MAX_CHECKED)), filtered.feasible, table):
            if holds := [each for each in groups.held[name] if each.key != key and each.precedes(args.priority)]:
                checks[name] = holds
        taken = await self._taking(PodShape(args.pod), checks)
        return without(filtered, taken, RefusalReason.HELD.text, table) if taken else filtered

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
        """Whether all places fit together in the newest states of their nodes, and still do when another pod ends."""
        checks = [(self.candidate(name), shapes) for name, shapes in _by_node(record.places).items()]
        judge = self._judge.judge

        def check(budget: Budget | None) -> tuple[bool, bool]:
            fits = not any(takes_room(judge, shapes, [], each, budget) for each, shapes in checks)
            return fits, fits and outlast_exits(judge, checks, budget)

        return await self.work(check, record.size)

    async def numa_nodes(self, record: GroupRecord) -> dict[str, list[int]]:
        """The NUMA nodes, as raw bits, of the places on each node, in the order of `GroupRecord.places`.

        0: none, or not known. At most `MAX_SHOWN` places are replayed; the others are left out.
        """
        by_node = _by_node(islice(record.places, MAX_SHOWN))
        checks = [(self.candidate(name), shapes) for name, shapes in by_node.items()]
        judge = self._judge.judge

        def find(budget: Budget | None) -> list[list[int]]:
            return [numa_nodes_of_places(judge, shapes, each, budget) for each, shapes in checks]

        return dict(zip(by_node, await self.work(find, len(checks)), strict=True))

    def candidate(self, name: str) -> Candidate:
        """The node as it is now."""
        record = self._cluster.get(name)
        node_class = UNKNOWN if record is None else record.node_class
        return Candidate(name=name, node_class=node_class, left_milli=self._totals.left(name))

    async def work(self, work: Callable[[Budget | None], T], size: int) -> T:
        """The result of *work*: on the event loop if it is short, as for judgements. *size*: roughly, in replays."""
        if size <= MAX_AT_ONCE:
            budget = Budget(LOOP_STEPS)
            result = work(budget)
            if not budget.is_used_up:
                return result
        return await self._offload(work, None)

    async def _taking(self, shape: PodShape, checks: Mapping[str, Sequence[Hold]]) -> frozenset[str]:
        """The nodes on which a pod of the shape would take room that a held place needs."""
        wanted: dict[Hashable, tuple[list[str], Candidate, list[PodShape]]] = {}
        for name, holds in checks.items():
            candidate = self.candidate(name)
            held = [each.shape for each in holds]
            left = None if candidate.left_milli is None else tuple(sorted(candidate.left_milli.items()))
            key: Hashable = (shape.key, candidate.node_class.id, left, tuple(each.key for each in held))
            wanted.setdefault(key, ([], candidate, held))[0].append(name)
        takes = {key: self._known[key] for key in wanted if key in self._known}
        missing = {key: each for key, each in wanted.items() if key not in takes}

        def find(budget: Budget | None) -> list[bool]:
            judge = self._judge.judge
            return [takes_room(judge, [shape], held, candidate, budget) for _, candidate, held in missing.values()]

        if missing:
            found = dict(zip(missing, await self.work(find, len(missing)), strict=True))
            takes |= found
            self._known.update(found)
        return frozenset(name for key, (names, *_) in wanted.items() if takes[key] for name in names)


def _by_node(places: Iterable[tuple[str, HeldPlace]]) -> dict[str, list[PodShape]]:
    """The shapes of the pods of *places*, by node. Places on no node are left out."""
    by_node: dict[str, list[PodShape]] = {}
    for _, place in places:
        if place.node_name:
            by_node.setdefault(place.node_name, []).append(place.shape)
    return by_node
