"""The prioritize verb: the score of each candidate."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from extender.cluster.pods import with_default
from extender.scheduling.records.decisions import call_about
from extender.scheduling.scoring import MAX_SCORE, scale_of, score_of_one
from extender.scheduling.shared import SharedParts
from extender.wire.scheduler import SchedulerArgs


class Prioritize:
    """The verb. *seconds*: the longest time of one call, on the monotonic *clock*.

    Most merits are computed here, and not in filter: only for nodes that passed.
    """

    def __init__(self, seconds: float, shared: SharedParts) -> None:
        self._demands = shared.known.demands
        self._judge, self._decisions = shared.judge.ranking, shared.records.decisions
        self._objectors, self._seconds, self._clock = shared.objectors, seconds, shared.effects.clock

    async def prioritize(self, args: SchedulerArgs) -> NDArray[np.uint8]:
        """The score of each candidate, 0 to 10, in the order of the request.

        Raises:
            NotReadyError: the call's time ended before all nodes were judged that must be.
        """
        args = replace(args, pod=with_default(args.pod, self._demands))
        entry, now = self._judge.entry(args.pod), self._clock()
        if not self._judge.is_aligned(entry.shape):
            self._decisions.note(call_about("prioritize", args, None, now))
            return np.full(len(args.names), MAX_SCORE, np.uint8)
        answers = await self._judge.answer_nodes(entry, args.names, now, deadline=now + self._seconds)
        call = call_about("prioritize", args, answers, now)
        scores = answers.kinds.scores_of(answers.codes, scale_of(each for _, each, _ in answers.counts), score_of_one)
        for objector in self._objectors:
            if (given := await objector.score(args, answers, scores)) is not None:
                call, scores = replace(call, given=given.tobytes()), given
        self._decisions.note(call)
        return scores
