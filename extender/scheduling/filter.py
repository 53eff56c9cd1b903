"""The filter verb: which of the candidates are feasible for a pod.

Rules of this file
- A call takes the classes of its nodes once. Missing judgements are replayed off the loop.
- Then each objector may take nodes away, in the order of the list; see `objections`.
- Filter has its own deadline, so that kube-scheduler always receives the reason. Judgements made until then are kept.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from extender.cluster.pods import KnownPod, with_default
from extender.kubelet.verdict import Certainty
from extender.replay.alignment_demand import Demand
from extender.scheduling.cached_judge import NotReadyError
from extender.scheduling.judgement import Judgement
from extender.scheduling.objections import FilterCall, Filtered, Objector, with_resolvable
from extender.scheduling.pod_shape import NodeAnswers
from extender.scheduling.reasons import NEVER_TEXTS, RefusalReason
from extender.scheduling.records.decisions import call_about
from extender.scheduling.shared import SharedParts
from extender.wire.scheduler import SchedulerArgs

PASSED: Final = "passed"
"""The label of feasible nodes in counts. Refused nodes are counted by the text of their reason."""
EXACTLY_PASSED: Final = (PASSED, Certainty.EXACT)


class Filter:
    """The verb. *seconds*: the deadline of a call.

    *failed_resolvable*: whether the reply lists nodes where preemption may help apart from those where it cannot.
    """

    def __init__(self, seconds: float, shared: SharedParts, *, failed_resolvable: bool = False) -> None:
        self._seconds, self._failed_resolvable = seconds, failed_resolvable
        known, records, effects = shared.known, shared.records, shared.effects
        self._pods, self._link = known.pods, known.link
        self._judge, self._barrier, self._decisions = shared.judge, records.barrier, records.decisions
        self._demands = known.demands
        self._objectors, self._metrics, self._clock = shared.objectors, effects.metrics, effects.clock

    async def filter(self, args: SchedulerArgs) -> Filtered:
        """Separate the candidates into feasible and refused ones.

        Raises:
            NotReadyError: the known cluster is incomplete, or the deadline passed and unjudged nodes must not pass.
        """
        if self._link.trouble:
            raise NotReadyError(self._link.trouble)
        args = replace(args, pod=with_default(args.pod, self._demands))
        for objector in self._objectors:
            if objector.simulate is not None and (simulated := await objector.simulate(args)) is not None:
                return self._result(simulated, args.pod.demand)
        known = self._described(args)
        if awaited := self._pods.offered(self._clock()) - {args.pod.uid}:
            await self._barrier.wait(awaited)
        now = self._clock()
        filtered, answers = await self._judged(args, now)
        call = FilterCall(args, known, answers, now)
        for objector in self._objectors:
            is_asked = type(objector).filter is not Objector.filter and (objector.grounds is None or objector.grounds)
            if is_asked and not (objector.is_for_refused and filtered.feasible):
                filtered = await objector.filter(call, filtered)
        is_refused = bool(args.names) and not filtered.feasible
        noted = call_about("filter", args, answers, now, filtered.instead, is_refused=is_refused, place=filtered.place)
        self._decisions.note(noted)
        self._pods.answer(
            args.pod,
            self._clock(),
            offered=answers is not None and bool(filtered.feasible) and self._barrier.seconds > 0,
            refused=is_refused and not NEVER_TEXTS.issuperset(filtered.refused.values()),
        )
        return self._result(filtered, args.pod.demand)

    def _described(self, args: SchedulerArgs) -> KnownPod:
        """What is known of the pod. It is recorded for its bind call and for the protection of its nominated node."""
        if self._link.binder is None and not args.nominated_node:
            return self._pods.get(args.pod.uid)
        return self._pods.describe(args.pod, args.priority, args.nominated_node, self._clock())

    async def _judged(self, args: SchedulerArgs, now: float) -> tuple[Filtered, NodeAnswers | None]:
        """The result by judgements alone, counted, and the judgements; None if no kubelet aligns the pod."""
        entry = self._judge.entry(args.pod)
        if not self._judge.is_aligned(entry.shape):
            self._metrics.filtered({EXACTLY_PASSED: len(args.names)})
            return Filtered(feasible=args.names), None
        answers = await self._judge.answer_nodes(entry, args.names, now, deadline=now + self._seconds)
        self._metrics.filtered(counts_of(answers))
        return filtered_by_judgements(answers), answers

    def _result(self, filtered: Filtered, demand: Demand) -> Filtered:
        if demand.fault:  # all nodes are refused for it; the event names the value
            text = f"{RefusalReason.DEMAND_FAULT.text}: {demand.fault}"
            return Filtered(feasible=(), refused=dict.fromkeys(filtered.refused, text))
        return with_resolvable(filtered) if filtered.refused and self._failed_resolvable else filtered


def counts_of(answers: NodeAnswers) -> Mapping[tuple[str, Certainty], int]:
    """How many candidates got each answer, by (PASSED or the text of the reason, certainty)."""
    counts: Counter[tuple[str, Certainty]] = Counter()
    for _, judgement, count in answers.counts:
        counts[_text(judgement) or PASSED, judgement.certainty] += count
    return counts


def filtered_by_judgements(answers: NodeAnswers) -> Filtered:
    """Separate the candidates, by the texts of their judgements alone."""
    codes: dict[str, list[int]] = {}
    for code, judgement, _ in answers.counts:
        codes.setdefault(_text(judgement), []).append(code)
    if codes.keys() == {""}:
        return Filtered(feasible=answers.names)
    parts = {text: answers.names_at(np.flatnonzero(np.isin(answers.codes, each))) for text, each in codes.items()}
    return Filtered(feasible=parts.pop("", []), refused={name: text for text, part in parts.items() for name in part})


def _text(judgement: Judgement) -> str:
    """The text of the refusal; "" for a feasible node."""
    return "" if judgement.refusal is None else judgement.refusal.text
