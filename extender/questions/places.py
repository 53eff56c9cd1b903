"""Where a pod would be on a node of a question, if it is certain to get there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from extender.kubelet.admission import Outcome, start_pod
from extender.kubelet.pod import PodRequest
from extender.kubelet.verdict import Admitted
from extender.questions.node_pods import NodePod
from extender.questions.scheduler_checks import check_node
from extender.questions.subjects import Subject
from extender.replay.alignment import PodAlignment, alignment_of_outcomes
from extender.replay.possible_states import admit_in_all
from extender.scheduling.judgement import refusal_by_demand
from extender.scheduling.node_totals import add, pod_requests
from extender.scheduling.pod_shape import PodShape
from extender.wire.workloads import PodWorkload


@dataclass(frozen=True, slots=True, kw_only=True)
class CertainPlace:
    """`outcomes`: of every state that the node can be in; `admitted`: the likeliest.

    `alignment` None: no part of the pod is placed.
    """

    request: PodRequest
    outcomes: Sequence[Outcome]
    admitted: Admitted
    alignment: PodAlignment | None


def place_of(subject: Subject, shape: PodShape, workload: PodWorkload) -> CertainPlace | None:
    """The pod's place on a node as it is; None if the node does not admit it for certain, or would not be offered."""
    kubelet = subject.kubelet
    if kubelet is None or not subject.states or not subject.node_class.complete:
        return None
    wanted = pod_requests(workload.pod, workload.rules.overhead_milli)
    if check_node(subject.name, wanted, workload.rules, subject.around).outcome == "fails":
        return None
    request = shape.request(kubelet.rules)
    outcomes = admit_in_all(kubelet, subject.states, request)
    first = outcomes[0].verdict
    if not outcomes[0].complete or not all(isinstance(each.verdict, Admitted) for each in outcomes):
        return None
    if refusal_by_demand(workload.pod.demand, kubelet, request, outcomes, each_must=True) is not None:
        return None
    assert isinstance(first, Admitted)
    alignment = alignment_of_outcomes(kubelet, outcomes)
    return CertainPlace(request=request, outcomes=outcomes, admitted=first, alignment=alignment)


def with_pod(subject: Subject, place: CertainPlace, pod: NodePod) -> Subject:
    """The node once the pod runs in its place, as a hypothetical one."""
    states = tuple({each.state.key: start_pod(each.state, place.request) for each in place.outcomes}.values())
    requested = subject.around.requested_milli
    node_class = subject.node_class
    return replace(
        subject,
        node_class=replace(node_class, id=-2, possible=replace(node_class.possible, states=states)),
        states=states,
        around=replace(
            subject.around, requested_milli=None if requested is None else add(requested, pod.requests_milli)
        ),
    )
