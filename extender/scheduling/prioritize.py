"""The prioritize verb: the score of each candidate."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from extender.scheduling.cached_judge import CachedJudge
from extender.scheduling.records.decisions import Call, DecisionLog
from extender.scheduling.scoring import MAX_SCORE, scale_of, score_of_one
from extender.wire.scheduler import SchedulerArgs


class Prioritize:
    """The verb. *clock*: seconds of a monotonic clock."""

    def __init__(self, judge: CachedJudge, decisions: DecisionLog, *, clock: Callable[[], float]) -> None:
        self._judge, self._decisions, self._clock = judge, decisions, clock

    async def prioritize(self, args: SchedulerArgs) -> NDArray[np.uint8]:
        """The score of each candidate, 0 to 10, in the order of the request."""
        entry, now = self._judge.entry(args.pod), self._clock()
        call = Call("prioritize", args.pod, args.packed_names, len(args.names), now)
        if not self._judge.is_aligned(entry.shape):
            self._decisions.note(call)
            return np.full(len(args.names), MAX_SCORE, np.uint8)
        answers = await self._judge.answer_nodes(entry, args.names, now)
        self._decisions.note(call.about(answers.snapshot, answers.slots, answers.judgements))
        return answers.kinds.scores_of(answers.codes, scale_of, score_of_one)
