"""The prioritize verb: the score of each candidate."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from extender.scheduling.cache import ShapeJudgements
from extender.scheduling.cached_judge import CachedJudge, NodeAnswers
from extender.scheduling.claims import ClaimRanking
from extender.scheduling.records.decisions import Call, DecisionLog
from extender.scheduling.scoring import MAX_SCORE, ranked_by_meeting, scale_of, score_of_one
from extender.wire.scheduler import SchedulerArgs


class Prioritize:
    """The verb. *claims* None: they are not watched. *clock*: seconds of a monotonic clock."""

    def __init__(
        self, judge: CachedJudge, decisions: DecisionLog, claims: ClaimRanking | None, *, clock: Callable[[], float]
    ) -> None:
        self._judge, self._decisions, self._claims, self._clock = judge, decisions, claims, clock

    async def prioritize(self, args: SchedulerArgs) -> NDArray[np.uint8]:
        """The score of each candidate, 0 to 10, in the order of the request."""
        entry, now = self._judge.entry(args.pod), self._clock()
        call = Call("prioritize", args.pod, args.packed_names, len(args.names), now)
        if not self._judge.is_aligned(entry.shape):
            self._decisions.note(call)
            return np.full(len(args.names), MAX_SCORE, np.uint8)
        answers = await self._judge.answer_nodes(entry, args.names, now)
        call = call.about(answers.snapshot, answers.slots, answers.judgements)
        scores = answers.kinds.scores_of(answers.codes, scale_of, score_of_one)
        if self._claims is not None and args.pod.has_claims:
            scores = await self._by_claims(self._claims, args, entry, answers, scores)
            call = replace(call, given=scores.tobytes())
        self._decisions.note(call)
        return scores

    @staticmethod
    async def _by_claims(
        claims: ClaimRanking,
        args: SchedulerArgs,
        entry: ShapeJudgements,
        answers: NodeAnswers,
        scores: NDArray[np.uint8],
    ) -> NDArray[np.uint8]:
        classes = answers.snapshot.at(answers.slots)
        meetings = await claims.meetings(args.pod, entry, args.names.parsed, classes)
        judgements = [answers.kinds.judgements[code] for code in answers.codes.tolist()]
        return np.array(ranked_by_meeting(scores.tolist(), meetings, judgements), np.uint8)
