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
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from extender.cluster.free_table import Int64s, RowGroup, StatesGroup
from extender.cluster.node_class import NodeClass
from extender.kubelet.admission import MAX_OUTCOMES, is_given_up, is_indifferent
from extender.kubelet.budget import Budget, for_replays
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest, has_pod_level_resources
from extender.kubelet.verdict import Admitted, Certainty, Provider, Reason, Rejected
from extender.replay.counts import Counts
from extender.replay.nri_pod import nri_pod
from extender.replay.possible_states import PossibleStates
from extender.scheduling.counts_only import refusal_by_counts, refusal_by_policy
from extender.scheduling.judgement import (
    INDIFFERENT,
    Action,
    Judgement,
    PodShape,
    Trouble,
    UncertaintyPolicy,
    do_ids_decide_socket,
    misses_preference,
    refusal_by_demand,
    refusal_without_placement,
)
from extender.scheduling.ranking.placement import BY_PLACEMENT, AdmissionOutcome, Strategy
from extender.scheduling.ranking.rows import rows_outcome
from extender.scheduling.reasons import RefusalReason, refusal_of

_MAX_DETAIL: Final = 4_000
"""How many characters of a traceback are kept, from its end."""


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
            return _by_counts(shape, node_class.counts, policy, stale=node_class.stale)
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


def _by_counts(shape: PodShape, counts: Counts, policy: UncertaintyPolicy, *, stale: bool) -> Judgement:
    """The judgement of a node of which only counts per NUMA node are known."""
    request = shape.request(counts.rules)
    if counts.nri is not None and not stale and policy.degraded is Action.REPLAY:
        refusal = refusal_by_policy(counts.nri, request)
        if refusal is not None or not request.aligned:
            return Judgement(refusal, Certainty.DEGRADED)
    if not request.aligned:
        return INDIFFERENT
    if stale:
        return Judgement(RefusalReason.STALE if policy.stale is Action.REFUSE else None, Certainty.STALE)
    if policy.degraded is Action.REPLAY:
        refusal = refusal_by_counts(counts, request, pod_level=has_pod_level_resources(shape.pod))
    else:
        refusal = RefusalReason.UNKNOWN if policy.degraded is Action.REFUSE else None
    return Judgement(refusal, Certainty.DEGRADED)


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
