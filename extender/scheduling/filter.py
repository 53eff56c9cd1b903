"""The filter verb: which of the candidates are feasible for a pod.

Rules of this file
- The event loop takes one snapshot of the cluster. Missing judgements are replayed off the loop.
- Filter has its own deadline, so that kube-scheduler always receives the reason. Judgements made until then are kept.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from extender.cluster.pods import KnownPods
from extender.cluster.store import NodeStore
from extender.replay.demand import Demand
from extender.replay.verdict import Certainty
from extender.scheduling.api_link import ApiServerLink
from extender.scheduling.barrier import Barrier
from extender.scheduling.cached_judge import CachedJudge, NotReadyError
from extender.scheduling.feasibility import PASSED, Filtered, avoid, filtered_by_answers
from extender.scheduling.nominator import Nominator
from extender.scheduling.reasons import NEVER_TEXTS, RefusalReason
from extender.scheduling.records.decisions import Call, DecisionLog
from extender.scheduling.records.refused_pods import WaitingPods
from extender.wire.scheduler import SchedulerArgs

EXACTLY_PASSED: Final = (PASSED, Certainty.EXACT)


class FilterMetrics(Protocol):
    """Counts the answers of filter."""

    def filtered(self, counts: Mapping[tuple[str, Certainty], int]) -> None:
        """How many candidates got each answer; see `count_answers`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSettings:
    """`seconds`: the deadline of a call. `defer_seconds`: how long a node that bind deferred the pod from is avoided.

    `failed_resolvable`: whether refusals that preemption may resolve are told apart from final ones.
    `requeues`: whether refused pods are kept, to requeue them when a node changes.
    """

    seconds: float
    defer_seconds: float
    failed_resolvable: bool
    requeues: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterResult:
    """Every candidate is in one of the three; the maps have reasons by name. Preemption cannot help `unresolvable`."""

    feasible: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)


class Filter:
    """The verb. *clock*: seconds of a monotonic clock."""

    def __init__(
        self,
        settings: FilterSettings,
        cluster: NodeStore,
        pods: KnownPods,
        link: ApiServerLink,
        judge: CachedJudge,
        nominator: Nominator,
        barrier: Barrier,
        decisions: DecisionLog,
        refused_pods: WaitingPods,
        *,
        metrics: FilterMetrics,
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._cluster, self._pods, self._link = settings, cluster, pods, link
        self._judge, self._nominator, self._barrier = judge, nominator, barrier
        self._decisions, self._refused_pods = decisions, refused_pods
        self._metrics, self._clock = metrics, clock

    async def filter(self, args: SchedulerArgs) -> FilterResult:
        """Separate the candidates into feasible and refused ones.

        Raises:
            NotReadyError: the known cluster is incomplete, or the deadline passed and unjudged nodes must not pass.
        """
        if self._link.trouble:
            raise NotReadyError(self._link.trouble)
        if self._link.binder is not None:
            self._pods.remember(args.pod, args.priority)
        self._nominator.note(args.pod, args.priority, args.nominated_node)
        await self._barrier.wait(args.pod.uid)
        filtered, call = await self._judged(args)
        filtered = await self._nominator.adjust(args.pod, args.priority, filtered)
        is_aligned = call.seen is not None
        avoided = self._avoided(args.pod.uid, is_aligned=is_aligned)
        if avoided:
            before, filtered = filtered, avoid(filtered, avoided)
            call = replace(call, avoided=filtered.refused.keys() - before.refused.keys())
        self._decisions.note(call)
        if filtered.feasible and is_aligned:
            self._barrier.offered(args.pod.uid)
        if self._settings.requeues:
            self._refused_pods.note(args.pod, filtered, self._clock())
        return self._result(filtered, args.pod.demand)

    async def _judged(self, args: SchedulerArgs) -> tuple[Filtered, Call]:
        """The result by judgements alone, counted, and the record of the call."""
        entry, now = self._judge.entry(args.pod), self._clock()
        call = Call("filter", args.pod, args.packed_names, len(args.names), now)
        if not self._judge.is_aligned(entry.shape):
            self._metrics.filtered({EXACTLY_PASSED: len(args.names)})
            return Filtered(feasible=args.names), call
        answers = await self._judge.answer_nodes(entry, args.names, now, deadline=now + self._settings.seconds)
        kinds, codes = answers.kinds, answers.codes
        numbers = kinds.answers_of(codes)
        filtered, counts = filtered_by_answers(args.names, numbers, kinds.answers, answers.names_at)
        self._metrics.filtered(counts)
        return filtered, call.about(answers.snapshot, answers.slots, answers.judgements)

    def _avoided(self, uid: str, *, is_aligned: bool) -> Collection[str]:
        """Nodes that bind would refuse now: it deferred the pod there a moment ago, or their kubelets are starting.

        The pod's nominated node is not avoided: victims made room there.
        """
        now = self._clock()
        deferred = self._pods.held_back_from(uid, now - self._settings.defer_seconds)
        starting = self._cluster.starting(now) if is_aligned else ()
        if not deferred and not starting:
            return ()
        return {*deferred, *starting} - {self._nominator.node_of(uid)}

    def _result(self, filtered: Filtered, demand: Demand) -> FilterResult:
        if demand.fault:  # all nodes are refused for it; the event names the value
            text = f"{RefusalReason.DEMAND_FAULT.text}: {demand.fault}"
            return FilterResult(feasible=(), unresolvable=dict.fromkeys(filtered.refused, text))
        if not filtered.refused or not self._settings.failed_resolvable:
            return FilterResult(feasible=filtered.feasible, unresolvable=filtered.refused)
        failed = {name: text for name, text in filtered.refused.items() if text not in NEVER_TEXTS}
        never = {name: text for name, text in filtered.refused.items() if text in NEVER_TEXTS}
        return FilterResult(feasible=filtered.feasible, failed=failed, unresolvable=never)
