"""Searches the cluster for places for the pods of a group: which nodes may have one, the best first, in steps.

A node has places of one group at a time: places of two groups could fit in one order of their bindings only.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

import numpy as np

from extender.replay.pod import Pod
from extender.scheduling.cached_judge import CachedJudge, NodeAnswers
from extender.scheduling.feasibility import Filtered
from extender.scheduling.gangs.groups import Groups
from extender.scheduling.gangs.held_room import HeldRoom
from extender.scheduling.gangs.planner import GangPlan, merit_of
from extender.scheduling.gangs.record import GroupRecord, Hold
from extender.scheduling.reasons import RefusalReason
from extender.wire.groups import Group

RESTS: Final = "places on the node were held and not used, so it rests"
ONE_A_NODE: Final = "another pod of the group has its place on the node"
MAX_CHUNK: Final = 512
"""Nodes that a plan looks at in one step. The first step has one for each pod: the best ones mostly suffice."""


class PlaceSearch:
    """See the file's rules. *seconds*: the most for one plan, on the monotonic *clock*."""

    def __init__(
        self, groups: Groups, room: HeldRoom, judge: CachedJudge, *, seconds: float, clock: Callable[[], float]
    ) -> None:
        self._groups, self._room, self._judge, self._seconds, self._clock = groups, room, judge, seconds, clock

    async def plan(
        self, pod: Pod, group: Group, record: GroupRecord, wanted: int, filtered: Filtered, answers: NodeAnswers
    ) -> GangPlan:
        """Places for *wanted* copies of the pod; only those on nodes that may hold one."""
        until, entry = self._clock() + self._seconds, self._judge.entry(pod)
        plan = GangPlan(
            judge=self._judge.judge,
            shape=entry.shape,
            wanted=wanted,
            one_a_node=group.one_a_node,
            out_of_time=lambda: self._clock() > until,
        )
        skipped: Counter[str] = Counter()
        nodes, size = self._ranked(group, record, filtered, answers, skipped), wanted
        while not plan.is_found and not plan.out_of_time():
            chunk = []
            for name, merit in islice(nodes, size):
                node = self._room.candidate(name)
                held = [hold.shape for hold in self._beside(pod, record, name)]
                judgement = entry.judgements.get(node.node_class.id)
                is_judged = judgement is not None and judgement.refusal is None
                chunk.append(replace(node, held=held, merit=merit, is_judged=is_judged))
            if not chunk:
                break
            plan = await self._room.work(partial(plan.run, chunk), wanted)
            size = min(2 * size, MAX_CHUNK)
        if not plan.is_found:
            plan.why.update(_refusals(answers) + skipped)
        return plan

    def _beside(self, pod: Pod, record: GroupRecord, name: str) -> list[Hold]:
        """The places on the node that the plan for the pod must leave free. It replaces the group's spare places."""
        against = self._room.against(pod, record.priority or 0, record.key, name)
        return [hold for hold in against if hold.uid or hold.key != record.key]

    def _left_out(self, group: Group, record: GroupRecord) -> dict[str, str]:
        """The nodes that may hold no place for the group now, and why."""
        left_out = {} if record.is_open else dict.fromkeys(self._groups.resting(self._clock()), RESTS)
        for name, holds in self._groups.held.items():
            if any(hold.key != record.key and hold.precedes(record.priority or 0) for hold in holds):
                left_out[name] = RefusalReason.HELD.text
        if group.one_a_node:
            used = (*record.bound.values(), *(place.node_name for place in record.claims.values()))
            left_out |= dict.fromkeys(used, ONE_A_NODE)
        return left_out

    def _ranked(
        self, group: Group, record: GroupRecord, filtered: Filtered, answers: NodeAnswers, skipped: Counter[str]
    ) -> Iterator[tuple[str, int]]:
        """The feasible nodes that may hold a place, with their merits, the best first.

        *skipped*: counts the other nodes that admit the pod, by the reason why they are left out.
        """
        left_out = self._left_out(group, record)
        judgements = answers.kinds.judgements
        counts = np.bincount(answers.codes, minlength=len(judgements)).tolist()
        passing = [code for code, count in enumerate(counts) if count and judgements[code].refusal is None]
        is_whole = sum(counts[code] for code in passing) == len(filtered.feasible)
        feasible = frozenset() if is_whole else frozenset(filtered.feasible)
        for merit, code in sorted([(merit_of(judgements[code]), code) for code in passing], reverse=True):
            for name in answers.names_at(np.flatnonzero(answers.codes == code)):
                why = left_out.get(name)
                if why is None and (is_whole or name in feasible):
                    yield name, merit
                else:
                    skipped[why or filtered.refused.get(name) or filtered.resolvable.get(name, "")] += 1


def _refusals(answers: NodeAnswers) -> Counter[str]:
    """How many nodes were refused, by reason."""
    counted: Counter[str] = Counter()
    judgements = answers.kinds.judgements
    for judgement, count in zip(judgements, np.bincount(answers.codes, minlength=len(judgements)), strict=True):
        if count and judgement.refusal is not None:
            counted[judgement.refusal.text] += int(count)
    return counted
