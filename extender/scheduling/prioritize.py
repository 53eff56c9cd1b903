"""The prioritize verb: the score of each candidate."""

from collections.abc import Callable, Sequence

from extender.cluster.store import NodeStore
from extender.scheduling.cached_judge import CachedJudge
from extender.scheduling.candidates import Candidates
from extender.scheduling.records.decisions import Call, DecisionLog
from extender.scheduling.scoring import MAX_SCORE, score_nodes
from extender.wire.scheduler import SchedulerArgs


class Prioritize:
    """The verb. *clock*: seconds of a monotonic clock."""

    def __init__(
        self, cluster: NodeStore, judge: CachedJudge, decisions: DecisionLog, *, clock: Callable[[], float]
    ) -> None:
        self._cluster, self._judge, self._decisions, self._clock = cluster, judge, decisions, clock

    async def prioritize(self, args: SchedulerArgs) -> Sequence[int]:
        """The score of each candidate, 0 to 10, in the order of the request."""
        entry, now = self._judge.entry(args.pod), self._clock()
        if not self._judge.is_aligned(entry.shape):
            self._decisions.note(Call("prioritize", args.pod, args.packed_names, len(args.names), now))
            return [MAX_SCORE] * len(args.names)
        self._cluster.expire(now)
        candidates = Candidates.of(args.names, self._cluster.snapshot().classes_of(args.names))
        judgements = await self._judge.answer_all(entry, candidates.distinct)
        self._decisions.note(
            Call("prioritize", args.pod, args.packed_names, len(args.names), now, candidates.classes, judgements)
        )
        return score_nodes(candidates, judgements)
