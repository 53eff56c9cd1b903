"""The prioritize verb: the score of each candidate."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from extender.scheduling.cache import ShapeJudgements
from extender.scheduling.cached_judge import CachedJudge, NodeAnswers
from extender.scheduling.claims import ClaimRanking
from extender.scheduling.records.decisions import DecisionLog, call_about
from extender.scheduling.scoring import MAX_SCORE, ranked_by_claims, scale_of, score_of_one
from extender.wire.scheduler import HostScores, SchedulerArgs


class Prioritize:
    """The verb. *claims* None: they are not watched. *seconds*: for one call, on the monotonic *clock*.

    The merits are computed here, and not in filter: only for nodes that passed.
    """

    def __init__(
        self,
        judge: CachedJudge,
        decisions: DecisionLog,
        claims: ClaimRanking | None,
        *,
        seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._judge, self._decisions, self._claims = judge.ranking, decisions, claims
        self._seconds, self._clock = seconds, clock

    async def prioritize(self, args: SchedulerArgs) -> HostScores:
        """The score of each candidate, 0 to 10.

        Raises:
            NotReadyError: the call's time ended before all nodes were judged that must be.
        """
        entry, now = self._judge.entry(args.pod), self._clock()
        if not self._judge.is_aligned(entry.shape):
            self._decisions.note(call_about("prioritize", args, None, now))
            return HostScores(args.names, np.full(len(args.names), MAX_SCORE, np.uint8))
        answers = await self._judge.answer_nodes(entry, args.names, now, deadline=now + self._seconds)
        call = call_about("prioritize", args, answers, now)
        scores = HostScores(answers.names, answers.kinds.scores_of(answers.codes, scale_of, score_of_one))
        if self._claims is not None and args.pod.has_claims:
            given = await self._by_claims(self._claims, args, entry, answers, scores)
            call, scores = replace(call, given=given.tobytes()), HostScores(answers.names, given)
        self._decisions.note(call)
        return scores

    @staticmethod
    async def _by_claims(
        claims: ClaimRanking,
        args: SchedulerArgs,
        entry: ShapeJudgements,
        answers: NodeAnswers,
        scores: HostScores,
    ) -> NDArray[np.uint8]:
        classes = answers.snapshot.at(answers.slots)
        alignments = await claims.alignments(args.pod, entry, answers.names, classes)
        judgements = [answers.kinds.judgements[code] for code in answers.codes.tolist()]
        return np.array(ranked_by_claims(list(map(int, scores.scores)), alignments, judgements), np.uint8)
