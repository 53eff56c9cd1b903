"""The preempt verb: after which evictions, and on which nodes, the kubelet would admit the pod.

Rules of this file
- No pod is evicted here. The pod's nomination and the proposed victims are recorded.
- While the pod's nominated node only waits for pods to leave, the result is empty: kube-scheduler then evicts no pod
  and keeps the nomination.
- The event loop takes one snapshot of nodes and pods; the search runs elsewhere.
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from extender.api.service import Service
from extender.cluster.pods import with_default
from extender.features.preemption.nominator import Nominator
from extender.features.preemption.plan import CandidateNode, Plan, Preemptor, ReplayBudget, Veto, plan_preemption
from extender.scheduling.judgement import INDIFFERENT
from extender.scheduling.pod_shape import PodShape
from extender.wire.preemption import PreemptionArgs

LOG: Final = logging.getLogger(__name__)


class Preempt:
    """The verb. *count*: counts the candidates by result: `kept`, `extended`, or the value of a `Veto`."""

    def __init__(self, service: Service, nominator: Nominator, count: Callable[[Mapping[str, int]], None]) -> None:
        known, self._seconds = service.known, service.settings.preempt_seconds
        self._cluster, self._pods, self._running = known.nodes, known.pods, known.running
        self._demands = known.demands
        self._judge, self._nominator, self._count = service.judging, nominator, count
        self._clock, self._offload = service.clock, service.offload

    async def preempt(self, args: PreemptionArgs) -> Mapping[str, Plan]:
        """The plan for each node on which evicting its victims makes room; other candidates are left out."""
        started = self._clock()
        args = replace(args, pod=with_default(args.pod, self._demands))
        known = self._pods.describe(args.pod, args.priority, args.nominated_node, started)
        nomination = known.nominated(started)
        if nomination is not None and await self._nominator.only_waits_for_leaving_pods(known, nomination.node_name):
            self._report(args, dict.fromkeys(args.proposals, Veto.NOMINATED))
            return {}
        preemptor = Preemptor(shape=PodShape(args.pod), priority=args.priority, may_preempt=args.may_preempt)
        budget = ReplayBudget(
            self._judge.judge if self._judge.is_aligned(preemptor.shape) else lambda *_: INDIFFERENT,  # as in filter
            preemptor.shape,
            out_of_time=lambda: self._clock() - started > self._seconds,
        )
        answers = await self._offload(
            plan_preemption, preemptor, args.proposals, self._candidates(args, started), budget
        )
        self._report(args, answers)
        plans = {name: answer for name, answer in answers.items() if isinstance(answer, Plan)}
        victims = {name: plan.victims for name, plan in plans.items()}
        self._pods.propose(args.pod.uid, victims, self._clock())
        return plans

    def _candidates(self, args: PreemptionArgs, now: float) -> dict[str, CandidateNode]:
        """What is known of each candidate and its pods, at one moment."""
        self._cluster.expire(now)
        candidates, before = {}, self._nominator.before(args.pod.uid, args.priority, args.proposals.keys())
        for name in args.proposals:
            record, pods = self._cluster.get(name), self._running.on_node(name)
            if record is None:
                candidates[name] = CandidateNode(pods=pods)
                continue
            candidates[name] = CandidateNode(
                node_class=record.node_class,
                states=record.states,
                pods=pods,
                nominated=tuple(PodShape(each.pod) for each in before.get(name, ())),
            )
        return candidates

    def _report(self, args: PreemptionArgs, answers: Mapping[str, Plan | Veto]) -> None:
        """Count the answers, and log the vetoes."""
        self._count(Counter(map(_result, answers.values())))
        vetoes = Counter(answer.value for answer in answers.values() if isinstance(answer, Veto))
        if vetoes:
            LOG.info("preemption vetoed pod=%s/%s nodes=%s", args.pod.namespace, args.pod.name, dict(vetoes))


def _result(answer: Plan | Veto) -> str:
    if isinstance(answer, Veto):
        return answer.value
    return "extended" if answer.added else "kept"
