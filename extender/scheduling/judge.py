"""What a class of nodes answers to a pod, in the form that the scheduler's verbs need.

Laws of this file
- A judgement is computed once for each (pod shape, class of nodes) and kept in the `JudgementCache`, so it is small.
  Explanations replay again, with a trace.
- A pod that asks for nothing any manager aligns is never held back, whatever is known of a node.
- A replay that ends without an answer, or fails, makes its own class unknown and no other.
- A replay that ends before all random choices were tried decides nothing where one of the others can: POSSIBLE.
"""

import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from extender.cluster.node_class import NodeClass
from extender.replay.admission import MAX_OUTCOMES, is_indifferent
from extender.replay.branches import admit_in_all
from extender.replay.budget import Budget, for_replays
from extender.replay.counts import Counts
from extender.replay.kubelet import Kubelet
from extender.replay.pod import Pod, PodRequest, has_pod_level_resources, resolve
from extender.replay.rules import Rules
from extender.replay.verdict import Admitted, Certainty, Provider, Reason, Rejected, Verdict, is_given_up
from extender.scheduling.counts_only import refusal_by_counts
from extender.scheduling.ranking.outcome import Landing, Strategy
from extender.scheduling.reasons import Refusal, refusal_of


class Treatment(StrEnum):
    """What becomes of a node whose verdict is not certain."""

    PASS = "pass"  # noqa: S105 - not a password
    """Offered to the scheduler, whatever the replay says."""
    REFUSE = "refuse"
    """Not offered, unless the pod asks for nothing that is aligned."""
    REPLAY = "replay"
    """Judged by what was last known of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """How uncertain nodes are treated.

    `unknown`: no report, or not enough in it (PASS or REFUSE). `stale`: not heard of for too long. `possible`: the
    kubelet's random choice of devices decides, or the order of what happens on the node; REPLAY and REFUSE mean refused
    if any way leads to a refusal.
    `degraded`: only counts per NUMA node are known; REPLAY means refused where they prove that it must be.
    `newer`: the kubelet is newer than the newest known; REPLAY means judged by the rules of that one, PASS ranked by
    them and never refused.
    """

    unknown: Treatment = Treatment.PASS
    stale: Treatment = Treatment.REPLAY
    possible: Treatment = Treatment.REFUSE
    degraded: Treatment = Treatment.REPLAY
    newer: Treatment = Treatment.REPLAY

    @property
    def refuses_chances(self) -> bool:
        """Whether a node that only may admit a pod is refused."""
        return self.possible is not Treatment.PASS


class Trouble(StrEnum):
    """Why a class of nodes could not be judged."""

    STEPS = "steps"
    """The replay takes more steps than that of any sane node. It would end at the same step each time."""
    TIME = "time"
    """The caller's time was over. Says nothing about the nodes, and is not remembered."""
    DEFECT = "defect"
    """The replay raised an exception."""


TROUBLE_TEXTS: Final[Mapping[Trouble, str]] = {
    Trouble.STEPS: "the replay of the kubelet was given up because it takes too many steps",
    Trouble.TIME: "the replay of the kubelet was given up because the time was over",
    Trouble.DEFECT: "the replay of the kubelet failed; the log of the service has the details",
}
_MAX_DETAIL: Final = 4_000
"""Characters of a traceback that are kept, the last ones."""


class Judgement(NamedTuple):
    """`refusal` None: the node is offered. `merit` None: nothing to compare nodes by (a pod that nothing aligns).

    `certainty` is of the answer; UNKNOWN where none could be computed, POSSIBLE where not all that matters was tried.
    `trouble`: why not, where a replay was tried; `detail` is then the traceback of a defect.
    """

    refusal: Refusal | None
    certainty: Certainty
    merit: int | None = None
    trouble: Trouble | None = None
    detail: str = ""


INDIFFERENT = Judgement(None, Certainty.EXACT)
"""The pod asks for nothing that any manager of the node aligns."""


class PodShape:
    """A pod, and what it asks of kubelets with each rule set. Each is resolved once."""

    __slots__ = ("_requests", "pod")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self._requests: dict[Rules, PodRequest] = {}

    def request(self, rules: Rules) -> PodRequest:
        """What the pod asks of the managers of a kubelet with these rules."""
        found = self._requests.get(rules)
        if found is None:
            found = self._requests[rules] = resolve(self.pod, rules)
        return found

    def is_aligned_anywhere(self, rules: Iterable[Rules]) -> bool:
        """Whether a manager of any such kubelet may have to align something for the pod."""
        return any(self.request(each).aligned for each in rules)


Judge = Callable[[PodShape, NodeClass], Judgement]


class BoundedJudge(Protocol):
    """A judge that can be given less work to do; raises nothing."""

    def __call__(self, shape: PodShape, node_class: NodeClass, budget: Budget | None = None, /) -> Judgement:
        """The judgement; *budget* bounds its replays, None: `budget.for_replays(MAX_OUTCOMES)`."""


def make_judge(strategy: Strategy, doubts: Doubts) -> BoundedJudge:
    """The judge of one service: its strategy and its treatment of doubt are fixed."""

    def judge(shape: PodShape, node_class: NodeClass, budget: Budget | None = None, /) -> Judgement:
        try:
            return replayed(shape, node_class, budget)
        except Exception:  # noqa: BLE001 - a defect that one class of nodes brings out must not fail the call for all
            detail = traceback.format_exc()[-_MAX_DETAIL:]
            return _unknown(doubts)._replace(trouble=Trouble.DEFECT, detail=detail)

    def replayed(shape: PodShape, node_class: NodeClass, budget: Budget | None) -> Judgement:
        kubelet, state = node_class.kubelet, node_class.state
        if node_class.counts is not None:
            return _by_counts(shape, node_class.counts, doubts, stale=node_class.stale)
        if node_class.awaited:
            return Judgement(Refusal.AWAITED, Certainty.UNKNOWN)
        if kubelet is None or state is None:
            return _unknown(doubts)
        request = shape.request(kubelet.rules)
        if is_indifferent(kubelet, request):
            return INDIFFERENT
        if node_class.hidden and _needs(request, node_class.hidden):
            return _unknown(doubts)
        if (by_setting := _by_setting(kubelet, doubts, stale=node_class.stale)) is not None:
            return by_setting
        budget = budget or for_replays(MAX_OUTCOMES)
        outcomes = admit_in_all(kubelet, node_class.states, request, max_replays=MAX_OUTCOMES, budget=budget)
        if is_given_up(outcomes[0].verdict):
            return _given_up(outcomes[0].verdict, doubts)
        certainty = outcomes[0].verdict.certainty if node_class.complete else Certainty.POSSIBLE
        certainty = Certainty.STALE if node_class.stale else certainty
        rejected = [o.verdict for o in outcomes if isinstance(o.verdict, Rejected)]
        landings = [
            Landing(kubelet=kubelet, before=state, after=o.state, admitted=o.verdict)
            for o in outcomes
            if isinstance(o.verdict, Admitted)
        ]
        is_score_only = kubelet.rules.newer_than_known and doubts.newer is Treatment.PASS
        is_open = outcomes[0].undecided and not (rejected and landings)
        trouble = Trouble.STEPS if is_open and budget.is_used_up else None
        if (node_class.distrusted or is_score_only) and (rejected or is_open):
            return Judgement(None, certainty, trouble=trouble)
        if not landings and not is_open:
            return Judgement(refusal_of(rejected[0]), certainty)
        if (rejected or is_open or not node_class.complete) and doubts.refuses_chances:
            is_settled = node_class.complete and not node_class.others
            return Judgement(Refusal.CHANCE if is_settled else Refusal.UNSETTLED, certainty, trouble=trouble)
        return Judgement(None, certainty, min(map(strategy, landings), default=None), trouble)

    return judge


def _by_setting(kubelet: Kubelet, doubts: Doubts, *, stale: bool) -> Judgement | None:
    """The judgement of a node that the settings do not let a replay decide; None for all others."""
    if stale and doubts.stale is not Treatment.REPLAY:
        return Judgement(Refusal.STALE if doubts.stale is Treatment.REFUSE else None, Certainty.STALE)
    if kubelet.rules.newer_than_known and doubts.newer is Treatment.REFUSE:
        return Judgement(Refusal.NEWER, Certainty.ASSUMED)
    return None


def _by_counts(shape: PodShape, counts: Counts, doubts: Doubts, *, stale: bool) -> Judgement:
    request = shape.request(counts.rules)
    if not request.aligned:
        return INDIFFERENT
    if stale:
        return Judgement(Refusal.STALE if doubts.stale is Treatment.REFUSE else None, Certainty.STALE)
    if doubts.degraded is Treatment.REPLAY:
        refusal = refusal_by_counts(counts, request, pod_level=has_pod_level_resources(shape.pod))
    else:
        refusal = Refusal.UNKNOWN if doubts.degraded is Treatment.REFUSE else None
    return Judgement(refusal, Certainty.DEGRADED)


def _given_up(verdict: Verdict, doubts: Doubts) -> Judgement:
    is_late = isinstance(verdict, Rejected) and verdict.reason is Reason.REPLAY_TIME
    return _unknown(doubts)._replace(trouble=Trouble.TIME if is_late else Trouble.STEPS)


def _unknown(doubts: Doubts) -> Judgement:
    return Judgement(Refusal.UNKNOWN if doubts.unknown is Treatment.REFUSE else None, Certainty.UNKNOWN)


def _needs(request: PodRequest, managers: frozenset[Provider]) -> bool:
    wants: Mapping[Provider, bool] = {
        Provider.CPU: request.pod_level is not None or any(c.cpus for c in request.containers),
        Provider.MEMORY: request.pod_level is not None or any(c.memory_bytes for c in request.containers),
        Provider.DEVICE: any(c.devices for c in request.containers),
    }
    return any(wants.get(manager, False) for manager in managers)
