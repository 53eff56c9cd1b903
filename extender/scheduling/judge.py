"""Judgements: whether a class of nodes is offered for a pod, how certain that is, and how good the class is.

Rules of this file
- A judgement is computed once for each (pod shape, class of nodes) and kept in the `JudgementCache`, so it is small.
  Explanations replay again, with a trace.
- A pod that requests nothing that a manager aligns is never refused, whatever is known of a node, unless it demands
  alignment: see `demands`.
- A replay that ends without a verdict, or fails, makes its own class unknown and no other.
- If a replay ends before all random choices were tried, and one of the others could change the result, the result is
  POSSIBLE.
"""

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from extender.cluster.node_class import NodeClass
from extender.replay.admission import MAX_OUTCOMES, Outcome, is_indifferent
from extender.replay.budget import Budget, for_replays
from extender.replay.counts import Counts
from extender.replay.kubelet import Kubelet
from extender.replay.pod import Pod, PodRequest, has_pod_level_resources, resolve
from extender.replay.rules import Rules
from extender.replay.state import ManagerState
from extender.replay.verdict import Admitted, Certainty, Provider, Reason, Rejected, Verdict, is_given_up
from extender.scheduling.counts_only import refusal_by_counts
from extender.scheduling.demands import misses_preference, refusal_by_demand, refusal_without_placement
from extender.scheduling.ranking.outcome import AdmissionOutcome, Strategy
from extender.scheduling.reasons import RefusalReason, refusal_of


class Action(StrEnum):
    """What happens to a node whose verdict is not certain."""

    PASS = "pass"  # noqa: S105 - not a password
    """Offered to the scheduler, whatever the replay says."""
    REFUSE = "refuse"
    """Not offered, unless the pod asks for nothing that is aligned."""
    REPLAY = "replay"
    """Judged by its last known state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertaintyPolicy:
    """The action for each kind of uncertain node.

    `unknown`: no report, or not enough in it (PASS or REFUSE). `stale`: no message for too long. `possible`: the
    kubelet's random choice of devices decides, or the order of events on the node; REPLAY and REFUSE both refuse the
    node if any possible outcome is a refusal. `degraded`: only counts per NUMA node are known; REPLAY refuses the node
    where they prove that its kubelet must refuse the pod. `newer`: the kubelet is newer than the newest known one;
    REPLAY judges the node by the rules of the newest known one, PASS scores it by them and never refuses it.
    """

    unknown: Action = Action.PASS
    stale: Action = Action.REPLAY
    possible: Action = Action.REFUSE
    degraded: Action = Action.REPLAY
    newer: Action = Action.REPLAY

    @property
    def requires_certainty(self) -> bool:
        """Whether a node is refused unless it is certain to admit the pod."""
        return self.possible is not Action.PASS


class Trouble(StrEnum):
    """Why a class of nodes could not be judged."""

    STEPS = "steps"
    """The replay needs more steps than that of any real node. It would end at the same step each time."""
    TIME = "time"
    """The time of the call was over. This says nothing about the nodes, and is not cached."""
    DEFECT = "defect"
    """The replay raised an exception."""


TROUBLE_TEXTS: Final[Mapping[Trouble, str]] = {
    Trouble.STEPS: "the replay of the kubelet was given up because it takes too many steps",
    Trouble.TIME: "the replay of the kubelet was given up because the time was over",
    Trouble.DEFECT: "the replay of the kubelet failed; the log of the service has the details",
}
_MAX_DETAIL: Final = 4_000
"""Characters kept of a traceback, from its end."""


class Judgement(NamedTuple):
    """`refusal` None: the nodes are feasible. `merit`: more is better; None if there is nothing to compare nodes by.

    `certainty` UNKNOWN: no verdict could be computed. POSSIBLE: not everything that matters was tried. `trouble`: why a
    replay gave no verdict; `detail` is the traceback of a defect. `misses`: the pod prefers one NUMA node and would be
    split.
    """

    refusal: RefusalReason | None
    certainty: Certainty
    merit: int | None = None
    trouble: Trouble | None = None
    detail: str = ""
    misses: bool = False


INDIFFERENT = Judgement(None, Certainty.EXACT)
"""The pod requests nothing that a manager of the node aligns."""


class PodShape:
    """A pod, with its request resolved once for each rule set of kubelets."""

    __slots__ = ("_requests", "pod")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self._requests: dict[Rules, PodRequest] = {}

    def request(self, rules: Rules) -> PodRequest:
        """The pod's request to the managers of a kubelet with these rules."""
        found = self._requests.get(rules)
        if found is None:
            found = self._requests[rules] = resolve(self.pod, rules)
        return found

    def is_aligned_anywhere(self, rules: Iterable[Rules]) -> bool:
        """Whether a manager of a kubelet with any of *rules* can have something to align for the pod."""
        return any(self.request(each).aligned for each in rules)


Judge = Callable[[PodShape, NodeClass], Judgement]


class BoundedJudge(Protocol):
    """A judge whose work can be bounded. Raises nothing."""

    def __call__(self, shape: PodShape, node_class: NodeClass, budget: Budget | None = None, /) -> Judgement:
        """The judgement; *budget* bounds its replays, None: `budget.for_replays(MAX_OUTCOMES)`."""


def make_judge(strategy: Strategy, policy: UncertaintyPolicy) -> BoundedJudge:
    """A judge with this strategy and this policy."""

    def judge(shape: PodShape, node_class: NodeClass, budget: Budget | None = None, /) -> Judgement:
        try:
            return _placed(shape, node_class, replayed(shape, node_class, budget))
        except Exception:  # noqa: BLE001 - a defect in one class of nodes must not fail the call for all of them
            detail = traceback.format_exc()[-_MAX_DETAIL:]
            unknown = _unknown(policy)._replace(trouble=Trouble.DEFECT, detail=detail)
            return _placed(shape, node_class, unknown)

    def replayed(shape: PodShape, node_class: NodeClass, budget: Budget | None) -> Judgement:
        kubelet, state = node_class.kubelet, node_class.state
        if node_class.counts is not None:
            return _by_counts(shape, node_class.counts, policy, stale=node_class.stale)
        if node_class.awaited:
            return Judgement(RefusalReason.AWAITED, Certainty.UNKNOWN)
        if kubelet is None or state is None:
            return _unknown(policy)
        request = shape.request(kubelet.rules)
        if is_indifferent(kubelet, request):
            return INDIFFERENT
        if node_class.hidden and _needs(request, node_class.hidden):
            return _unknown(policy)
        if (by_setting := _by_setting(kubelet, policy, stale=node_class.stale)) is not None:
            return by_setting
        budget = budget or for_replays(MAX_OUTCOMES)
        outcomes = node_class.possible.admit(kubelet, request, max_replays=MAX_OUTCOMES, budget=budget)
        if is_given_up(outcomes[0].verdict):
            return _given_up(outcomes[0].verdict, policy)
        certainty = _certainty(node_class, outcomes[0].verdict)
        rejected = [o.verdict for o in outcomes if isinstance(o.verdict, Rejected)]
        admissions = _admissions(kubelet, state, outcomes)
        is_score_only = kubelet.rules.newer_than_known and policy.newer is Action.PASS
        is_open = outcomes[0].undecided and not (rejected and admissions)
        trouble = Trouble.STEPS if is_open and budget.is_used_up else None
        if (node_class.distrusted or is_score_only) and (rejected or is_open):
            return Judgement(None, certainty, trouble=trouble)
        if not admissions and not is_open:
            return Judgement(refusal_of(rejected[0]), certainty)
        if (rejected or is_open or not node_class.complete) and policy.requires_certainty:
            is_settled = node_class.possible.is_certain
            return Judgement(
                RefusalReason.CHANCE if is_settled else RefusalReason.UNSETTLED, certainty, trouble=trouble
            )
        demand, merit = shape.pod.demand, min(map(strategy, admissions), default=None)
        refusal = refusal_by_demand(demand, kubelet, request, outcomes, each_must=policy.requires_certainty)
        misses = misses_preference(demand, kubelet, request, outcomes)
        return Judgement(refusal, certainty, merit, trouble, misses=misses)

    return judge


def _admissions(kubelet: Kubelet, before: ManagerState, outcomes: Iterable[Outcome]) -> list[AdmissionOutcome]:
    return [
        AdmissionOutcome(kubelet=kubelet, before=before, after=o.state, admitted=o.verdict)
        for o in outcomes
        if isinstance(o.verdict, Admitted)
    ]


def _certainty(node_class: NodeClass, verdict: Verdict) -> Certainty:
    if node_class.stale:
        return Certainty.STALE
    return verdict.certainty if node_class.complete else Certainty.POSSIBLE


def _placed(shape: PodShape, node_class: NodeClass, judgement: Judgement) -> Judgement:
    """The judgement; a refusal where the pod demands alignment and no replay shows its placement."""
    if shape.pod.demand.fault:
        return Judgement(RefusalReason.DEMAND_FAULT, Certainty.EXACT)
    if judgement.refusal is not None or judgement.merit is not None:
        return judgement
    is_indifferent = judgement is INDIFFERENT
    refusal = refusal_without_placement(shape.pod.demand, node_class.kubelet, is_indifferent=is_indifferent)
    return judgement if refusal is None else judgement._replace(refusal=refusal)


def _by_setting(kubelet: Kubelet, policy: UncertaintyPolicy, *, stale: bool) -> Judgement | None:
    """The judgement of a node that the policy decides without a replay; None for all others."""
    if stale and policy.stale is not Action.REPLAY:
        return Judgement(RefusalReason.STALE if policy.stale is Action.REFUSE else None, Certainty.STALE)
    if kubelet.rules.newer_than_known and policy.newer is Action.REFUSE:
        return Judgement(RefusalReason.NEWER, Certainty.ASSUMED)
    return None


def _by_counts(shape: PodShape, counts: Counts, policy: UncertaintyPolicy, *, stale: bool) -> Judgement:
    request = shape.request(counts.rules)
    if not request.aligned:
        return INDIFFERENT
    if stale:
        return Judgement(RefusalReason.STALE if policy.stale is Action.REFUSE else None, Certainty.STALE)
    if policy.degraded is Action.REPLAY:
        refusal = refusal_by_counts(counts, request, pod_level=has_pod_level_resources(shape.pod))
    else:
        refusal = RefusalReason.UNKNOWN if policy.degraded is Action.REFUSE else None
    return Judgement(refusal, Certainty.DEGRADED)


def _given_up(verdict: Verdict, policy: UncertaintyPolicy) -> Judgement:
    is_late = isinstance(verdict, Rejected) and verdict.reason is Reason.REPLAY_TIME
    return _unknown(policy)._replace(trouble=Trouble.TIME if is_late else Trouble.STEPS)


def _unknown(policy: UncertaintyPolicy) -> Judgement:
    return Judgement(RefusalReason.UNKNOWN if policy.unknown is Action.REFUSE else None, Certainty.UNKNOWN)


def _needs(request: PodRequest, managers: frozenset[Provider]) -> bool:
    wants: Mapping[Provider, bool] = {
        Provider.CPU: request.pod_level is not None or any(c.cpus for c in request.containers),
        Provider.MEMORY: request.pod_level is not None or any(c.memory_bytes for c in request.containers),
        Provider.DEVICE: any(c.devices for c in request.containers),
    }
    return any(wants.get(manager, False) for manager in managers)
