"""Judgements: whether a class of nodes is offered for a pod, how certain that is, and how good the class is.

Rules of this file
- A judgement is computed once for each (pod shape, class of nodes) and kept in the `JudgementCache`, so it is small.
  Explanations replay again, with a trace.
- A pod that requests nothing that a manager aligns is never refused, whatever is known of a node, unless it demands
  alignment: see `judgement`.
- A replay that ends without a verdict, or fails, makes its own class unknown and no other.
- If a replay ends before all random choices were tried, and an untried one could change the result, the result is
  POSSIBLE.
- A class is judged by full replays in every state that its nodes can be in. Classes with equal keys (`free_table`) get
  the judgement of one of them.
- Every class of a call gets the first of `SHARES` before any gets the second. So what takes few steps is judged first,
  and no class delays another by more than its share.
- Once a node is feasible, the call spends `LATER_STEPS` on second shares and begins no third one. What is left goes on
  with the next call, at the share where it stopped.
- Steps stand for time. A class that twice used much more CPU time than its steps say has used up all of its shares.
- `judge_all` can run in any thread; `judge_quickly` is short enough for the event loop.
"""

import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from extender.cluster.free_table import Int64s, RowGroup, StatesGroup
from extender.cluster.node_class import NodeClass
from extender.kubelet.admission import MAX_OUTCOMES, is_given_up, is_indifferent
from extender.kubelet.budget import Budget, for_replays
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.verdict import Admitted, Certainty, Provider, Reason, Rejected
from extender.replay.nri_pod import nri_pod
from extender.replay.possible_states import PossibleStates
from extender.scheduling.counts_only import judged_by_counts, refusal_by_policy
from extender.scheduling.judgement import (
    INDIFFERENT,
    Action,
    Judgement,
    Trouble,
    UncertaintyPolicy,
    do_ids_decide_socket,
    misses_preference,
    refusal_by_demand,
    refusal_without_placement,
)
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.placement import BY_PLACEMENT, AdmissionOutcome, Strategy
from extender.scheduling.ranking.rows import rows_outcome
from extender.scheduling.reasons import RefusalReason, refusal_of

_MAX_DETAIL: Final = 4_000
"""How many characters of a traceback are kept, from its end."""

SHARES: Final = (5_000, 100_000, 1_000_000)
"""Steps of a replay in its first, second and last turn: from some milliseconds to a second.

The most that a recorded admission takes is 181,000, and 3 of 14,981 take more than 100,000 (docs/decisions.md)."""
LATER_STEPS: Final = SHARES[1]
"""Steps of second shares in one call after which no other one begins, if a node is feasible."""
SLOW_SECONDS: Final = 20e-6
"""A replay whose steps take more CPU time than this each counts as slow. A step takes about a microsecond."""
SPARE_SECONDS: Final = 0.2
"""CPU time that a replay may take beyond its steps."""
SLOW: Final = Judgement(RefusalReason.LATE, Certainty.UNKNOWN, trouble=Trouble.STEPS)
"""The judgement of a class that has used up its shares: its nodes are left out, and no others."""
LOOP_STEPS: Final = 5_000
"""Steps of all replays of one call on the event loop: some milliseconds. Nearly every replay takes fewer."""

Judge = Callable[[PodShape, NodeClass], Judgement]

_WITHOUT_AMOUNTS: Final = frozenset(
    {
        RefusalReason.ALIGNMENT_NOW,
        RefusalReason.ALIGNMENT_NEVER,
        RefusalReason.CHANCE,
        RefusalReason.UNSETTLED,
        RefusalReason.CONTRADICTORY,
        RefusalReason.CHANGING,
    }
)
"""Refusals whose message has no amounts."""


class BoundedJudge:
    """Judges with *strategy* and *policy*; the work of a call can be bounded. Any thread may call it."""

    __slots__ = ("_policy", "is_by_placement", "strategy")

    def __init__(self, strategy: Strategy, policy: UncertaintyPolicy) -> None:
        self.strategy: Final = strategy
        self.is_by_placement: Final = strategy in BY_PLACEMENT
        self._policy: Final = policy

    def __call__(self, shape: PodShape, node_class: NodeClass, budget: Budget | None = None, /) -> Judgement:
        """The judgement; *budget* bounds its full replays, None: `budget.for_replays(MAX_OUTCOMES)`. Raises nothing."""
        try:
            refuses_faults = node_class.has_nri and self._policy.annotations is Action.REFUSE
            if refuses_faults and shape.has_annotation_faults:
                return Judgement(RefusalReason.NRI_ANNOTATION_FAULT, Certainty.EXACT)
            judgement = self._judgement(shape, node_class, budget)
            return _with_demand(shape, node_class, _unless_hidden(judgement, shape, node_class, self._policy))
        except Exception:  # noqa: BLE001 - a defect in one class of nodes must not fail the call for all of them
            detail = traceback.format_exc()[-_MAX_DETAIL:]
            unknown = _unknown(self._policy)._replace(trouble=Trouble.DEFECT, detail=detail)
            return _with_demand(shape, node_class, unknown)

    def _judgement(self, shape: PodShape, node_class: NodeClass, budget: Budget | None) -> Judgement:
        """The judgement by the first of these that decides: counts, settings, full replays."""
        kubelet, policy = node_class.kubelet, self._policy
        if node_class.counts is not None:
            return judged_by_counts(shape, node_class.counts, policy, stale=node_class.stale)
        if node_class.awaited:
            return Judgement(RefusalReason.AWAITED, Certainty.UNKNOWN)
        if kubelet is None or not node_class.states:
            return _unknown(policy)
        request = shape.request(kubelet.rules)
        if is_indifferent(kubelet, request):
            return INDIFFERENT
        if node_class.hidden and _needs(request, node_class.hidden):
            return _unknown(policy)
        if (by_setting := _by_setting(kubelet, policy, stale=node_class.stale)) is not None:
            return by_setting
        return self._by_full_replay(shape, node_class, kubelet, budget)

    def _by_full_replay(
        self, shape: PodShape, node_class: NodeClass, kubelet: Kubelet, budget: Budget | None
    ) -> Judgement:
        """The judgement by replays with CPU ids and device ids, in every state of the class."""
        request = shape.request(kubelet.rules)
        budget = budget or for_replays(MAX_OUTCOMES)
        outcomes = node_class.possible.admit(kubelet, request, max_replays=MAX_OUTCOMES, budget=budget)
        first = outcomes[0].verdict
        if kubelet.runtime is not None and not budget.is_used_up and nri_pod(request).excess:
            return _unknown(self._policy)
        if is_given_up(first):
            is_late = isinstance(first, Rejected) and first.reason is Reason.REPLAY_TIME
            return _unknown(self._policy)._replace(trouble=Trouble.TIME if is_late else Trouble.STEPS)
        rejected = [o.verdict for o in outcomes if isinstance(o.verdict, Rejected)]
        merits = [
            self.strategy(AdmissionOutcome(kubelet=kubelet, before=o.before, after=o.state, admitted=o.verdict))
            for o in outcomes
            if isinstance(o.verdict, Admitted)
        ]
        unmet, misses = None, False
        if shape.has_demand:
            each_must = self._policy.requires_certainty
            unmet = refusal_by_demand(shape.pod.demand, kubelet, request, outcomes, each_must=each_must)
            misses = misses_preference(shape.pod.demand, kubelet, request, outcomes)
        is_open = outcomes[0].undecided and not (rejected and merits)
        trouble = Trouble.STEPS if is_open and budget.is_used_up else None
        admitted = Judgement(unmet, first.certainty, min(merits, default=None), trouble, misses=misses)
        refusal = refusal_of(rejected[0]) if rejected else None
        return self._decided(node_class, kubelet, refusal, admitted, is_open=is_open)

    def _decided(
        self,
        node_class: NodeClass,
        kubelet: Kubelet,
        refusal: RefusalReason | None,
        admitted: Judgement,
        *,
        is_open: bool,
    ) -> Judgement:
        """The judgement that follows from the verdicts: how certain they are, and what the settings say of that.

        *refusal*: why the likeliest state of those that refuse the pod refuses it; None if every state admits it.
        *admitted*: what the admissions alone say; no state admits the pod if it has no merit. *is_open*: an outcome
        that was not tried may be another verdict.
        """
        policy, trouble = self._policy, admitted.trouble
        is_settled = node_class.complete and not node_class.possible.in_turn
        certainty = admitted.certainty if is_settled else Certainty.POSSIBLE
        certainty = Certainty.STALE if node_class.stale else certainty
        is_refused = refusal is not None or is_open
        is_score_only = kubelet.rules.newer_than_known and policy.newer is Action.PASS
        if is_refused and (node_class.score_only or is_score_only):
            return Judgement(None, certainty, trouble=trouble)
        is_passing = node_class.possible.changing and not (refusal and refusal.never)
        if admitted.merit is None and not is_open and not (is_passing and policy.requires_certainty):
            return Judgement(refusal, certainty)
        if (is_refused or not node_class.complete) and policy.requires_certainty:
            return Judgement(_why_not_certain(node_class.possible), certainty, trouble=trouble)
        return admitted._replace(certainty=certainty)

    def follows_from_key(self, shape: PodShape, node_class: NodeClass, judgement: Judgement) -> bool:
        """Whether all classes with the same kubelet, traits and key as this one get this judgement.

        *shape*: the shape of a pod of which no node holds anything.
        """
        has_its_merit = judgement.merit is None or self.is_by_placement
        return has_its_merit and _follows_but_for_merit(shape, node_class, judgement)

    def merits_of(
        self,
        shape: PodShape,
        node_class: NodeClass,
        judgement: Judgement,
        group: RowGroup | StatesGroup,
        rows: Int64s,
        budget: Budget,
    ) -> Sequence[int] | None:
        """The merits of *rows* of the free table, whose key is that of this class. It admits the pod with *judgement*.

        None: each has to be judged by itself.
        """
        kubelet = node_class.kubelet
        if kubelet is None or self.is_by_placement or not isinstance(group, RowGroup):
            return None
        if not _follows_but_for_merit(shape, node_class, judgement):
            return None
        request = shape.request(kubelet.rules)
        (one, *others) = node_class.possible.admit(kubelet, request, max_replays=MAX_OUTCOMES, budget=budget)
        if others or not isinstance(one.verdict, Admitted):
            return None
        admission = AdmissionOutcome(kubelet=kubelet, before=one.before, after=one.state, admitted=one.verdict)
        outcome = rows_outcome(admission, group, rows)
        if outcome is None:
            return None
        merits: Sequence[int] = np.broadcast_to(np.asarray(self.strategy(outcome), np.object_), len(rows)).tolist()
        return merits


def _why_not_certain(possible: PossibleStates) -> RefusalReason:
    if possible.contradictory or possible.changing:
        return RefusalReason.CONTRADICTORY if possible.contradictory else RefusalReason.CHANGING
    return RefusalReason.CHANCE if possible.is_certain else RefusalReason.UNSETTLED


def _follows_but_for_merit(shape: PodShape, node_class: NodeClass, judgement: Judgement) -> bool:
    """Whether all classes with the same kubelet, traits and key get this judgement, except for its merit.

    A key has no message of a refusal, and in several states two messages with unlike amounts count as two answers.
    """
    kubelet = node_class.kubelet
    if kubelet is None or judgement.trouble is not None:
        return False
    if shape.has_demand and do_ids_decide_socket(kubelet.machine):
        return False
    if len(node_class.states) == 1 or is_indifferent(kubelet, shape.request(kubelet.rules)):
        return True
    is_admitted = judgement.refusal is None and judgement.merit is not None
    return not shape.has_demand and (is_admitted or judgement.refusal in _WITHOUT_AMOUNTS)


def _with_demand(shape: PodShape, node_class: NodeClass, judgement: Judgement) -> Judgement:
    """The judgement; a refusal where the pod demands alignment and no replay shows its placement."""
    if shape.pod.demand.fault:
        return Judgement(RefusalReason.DEMAND_FAULT, Certainty.EXACT)
    if judgement.refusal is not None or judgement.merit is not None:
        return judgement
    kubelet = node_class.kubelet
    unplaced = shape.request(kubelet.rules) if kubelet is not None and judgement is INDIFFERENT else None
    refusal = refusal_without_placement(shape.pod.demand, kubelet, unplaced)
    return judgement if refusal is None else judgement._replace(refusal=refusal)


def _unless_hidden(
    judgement: Judgement, shape: PodShape, node_class: NodeClass, policy: UncertaintyPolicy
) -> Judgement:
    """The judgement, or what is known where the kubelet admits the pod and the NRI policy's grants are hidden."""
    if Provider.RUNTIME not in node_class.hidden or judgement.refusal is not None or node_class.score_only:
        return judgement
    if node_class.pools is not None and node_class.kubelet is not None and policy.degraded is Action.REPLAY:
        refusal = refusal_by_policy(node_class.pools, shape.request(node_class.kubelet.rules))
        return Judgement(refusal, Certainty.STALE if node_class.stale else Certainty.DEGRADED)
    return _unknown(policy)


def _by_setting(kubelet: Kubelet, policy: UncertaintyPolicy, *, stale: bool) -> Judgement | None:
    """The judgement of a node that the policy decides without a replay; None for all others."""
    if stale and policy.stale is not Action.REPLAY:
        return Judgement(RefusalReason.STALE if policy.stale is Action.REFUSE else None, Certainty.STALE)
    if kubelet.rules.newer_than_known and policy.newer is Action.REFUSE:
        return Judgement(RefusalReason.NEWER, Certainty.ASSUMED)
    return None


def _unknown(policy: UncertaintyPolicy) -> Judgement:
    return Judgement(RefusalReason.UNKNOWN if policy.unknown is Action.REFUSE else None, Certainty.UNKNOWN)


def _needs(request: PodRequest, managers: frozenset[Provider]) -> bool:
    """Whether the pod requests something of one of the *managers*."""
    wants: Mapping[Provider, bool] = {
        Provider.CPU: request.pod_level is not None or any(c.cpus for c in request.containers),
        Provider.MEMORY: request.pod_level is not None or any(c.memory_bytes for c in request.containers),
        Provider.DEVICE: any(c.devices for c in request.containers),
    }
    return any(wants.get(manager, False) for manager in managers)


@dataclass(frozen=True, slots=True)
class Judged:
    """`judgements` by class id. `had`: how many shares each class that needs more has used up, by class id."""

    judgements: dict[int, Judgement] = field(default_factory=dict)
    had: dict[int, int] = field(default_factory=dict)


def time_limit(clock: Callable[[], float], deadline: float | None) -> Callable[[], bool]:
    """Says whether *deadline* has passed; None: it never has."""
    return lambda: deadline is not None and clock() > deadline


def shares_to_have(*, is_any_feasible: bool) -> int:
    """How many shares a class can get in a call."""
    return len(SHARES) - 1 if is_any_feasible else len(SHARES)


def judge_all(
    judge: BoundedJudge,
    shape: PodShape,
    classes: Collection[NodeClass],
    out_of_time: Callable[[], bool] = lambda: False,
    had: Mapping[int, int] | None = None,
    is_any_feasible: bool = False,  # noqa: FBT001, FBT002 - work that runs elsewhere takes no keywords
    cpu_clock: Callable[[], float] = lambda: 0.0,
) -> Judged:
    """Judge each class, or as many as there is time for. May run in another thread.

    *had*: how many of its `SHARES` a class had in earlier calls, by class id; 0 if it is not there. *is_any_feasible*:
    whether a node of another class is feasible. *cpu_clock*: seconds of CPU time of the thread.
    """
    shares = {each.id: (had or {}).get(each.id, 0) for each in classes}
    judged, spent = Judged(), 0.0
    for number, steps in enumerate(SHARES):
        for each in classes:
            if shares[each.id] != number or each.id in judged.judgements:
                continue
            is_enough = number >= shares_to_have(is_any_feasible=is_any_feasible) or spent >= LATER_STEPS
            if out_of_time() or (is_any_feasible and number and is_enough):
                return judged
            for _ in range(2):  # a pause of the process can take the time of one replay, and seldom of two in a row
                budget, began = Budget(steps, out_of_time), cpu_clock()
                judgement = judge(shape, each, budget)
                is_slow = cpu_clock() - began > SPARE_SECONDS + SLOW_SECONDS * budget.used
                if not is_slow:
                    break
            spent += budget.used if number else 0
            if is_slow:
                judged.judgements[each.id] = SLOW
            elif judgement.trouble is Trouble.TIME:
                if budget.used > steps / 2:  # the same would happen in each call
                    judged.had[each.id] = number + 1
                return judged
            elif judgement.trouble is Trouble.STEPS and number + 1 < len(SHARES):
                judged.had[each.id] = shares[each.id] = number + 1
            else:
                judged.had.pop(each.id, None)
                judged.judgements[each.id] = judgement
                is_any_feasible |= judgement.refusal is None and judgement.trouble is None
    return judged


def judge_quickly(judge: BoundedJudge, shape: PodShape, classes: Iterable[NodeClass]) -> dict[int, Judgement]:
    """The judgements that take no more than `LOOP_STEPS` steps in all; fit for the event loop."""
    judged: dict[int, Judgement] = {}
    steps: float = LOOP_STEPS
    for node_class in classes:
        budget = Budget(steps)
        judgement = judge(shape, node_class, budget)
        if judgement.trouble is Trouble.STEPS:
            break
        judged[node_class.id] = judgement
        steps -= budget.used
    return judged
