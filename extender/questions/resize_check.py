"""Resize-check: what the kubelet makes of an in-place resize, and where the pod would go if it were recreated."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import ContainerKind
from extender.kubelet.resize import Resize, ResizeResult, resize
from extender.kubelet.sets import format_list
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Provider
from extender.nri.books import Grant
from extender.nri.estimates import runtime_resources
from extender.nri.events import NriOutcome
from extender.nri.events import resize as resize_container
from extender.nri.state import NriState
from extender.questions.asked import Asked
from extender.questions.finding import blind_spots, find_pod
from extender.questions.node_context import Subject
from extender.questions.node_pods import NodePod, without
from extender.questions.notes import all_notes
from extender.questions.reading import question_of
from extender.questions.snapshot import Snapshot
from extender.questions.what_if import NodeWhatIf, what_if
from extender.replay.creation import grants_of, whole_placements
from extender.replay.pod import Pod
from extender.scheduling.judge import Judge
from extender.scheduling.node_totals import add, format_milli, pod_requests, shortages
from extender.wire import verdicts
from extender.wire.advice_replies import PodPlacement, ResizeCheckReply
from extender.wire.errors import WireError
from extender.wire.parsing import parse_milli
from extender.wire.questions import ResizeCheckRequest
from extender.wire.replies import ReplyBody
from extender.wire.workloads import PodWorkload

POLICY_REFUSES: Final = "the NRI policy refuses it"
"""The start of the reason if the kubelet would carry out a resize and the NRI policy would not."""
MAX_ELSEWHERE: Final = 5
"""How many other nodes are in one answer, the best first."""


def resize_check_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """One `ResizeCheckReply`."""
    question = question_of(asked, ResizeCheckRequest)
    texts = {"cpu": question.cpu, "memory": question.memory}
    amounts = {name: parse_milli(text, name) for name, text in texts.items() if text is not None}
    if not amounts:
        raise WireError("cpu", "cpu, memory or both are expected")
    for name, milli in amounts.items():
        if not milli:
            raise WireError(name, "a resize cannot remove a request")
    subject, pod = find_pod(snapshot, question.pod, "pod")
    before = pod.workload.pod
    after = replace(pod.workload, pod=resized(before, question.container, amounts))
    changed = [(old, new) for old, new in zip(before.containers, after.pod.containers, strict=True) if old is not new]
    ((old, new),) = changed
    others = [other for other in snapshot.subjects(None) if other.name != subject.name]
    own, *answers = what_if(after, [without(subject, [pod], 1), *others], judge)
    elsewhere = sorted((e for e in answers if e.outcome == "fits"), key=lambda e: -(e.score or 0))
    kubelet, state = subject.kubelet, subject.states[0]
    assert kubelet is not None  # as `find_pod` says
    found, granted = _in_place(kubelet, subject, pod, after, new.name)
    held = _cpus_of(state, pod.uid, new.name)
    yield ResizeCheckReply.filled(
        found,
        pod=pod.name,
        node=subject.name,
        container=new.name,
        before={name: format_milli(name, old.requests_milli.get(name, 0)) for name in amounts},
        after={name: format_milli(name, amount) for name, amount in amounts.items()},
        limits={name: format_milli(name, new.limits_milli[name]) for name in amounts if name in new.limits_milli},
        exclusive_cpus=format_list(held),
        shared_cpus=format_list(state.cpu.default if kubelet.cpu_static else 0),
        recreated=_placement(own),
        elsewhere=list(map(_placement, elsewhere[:MAX_ELSEWHERE])),
        other_nodes=len(elsewhere),
        notes=[
            *all_notes([after], [subject, *others]),
            *blind_spots([subject, *others], None),
            *_notes(found, granted, subject, pod, held),
        ],
    )


def _placement(answer: NodeWhatIf) -> PodPlacement:
    """One node's answer to a pod, without the reasons of kube-scheduler in detail."""
    verdict, containers = answer.verdict, {}
    if answer.outcome == "fits" and isinstance(verdict, Admitted):
        containers = verdicts.container_placements(whole_placements(verdict), answer.admitted_as)
    fields = verdicts.alignment_fields(answer.alignment)
    return PodPlacement.filled(answer, node=answer.subject.name, **fields, containers=containers)


def _notes(found: Resize, granted: Grant | None, subject: Subject, pod: NodePod, held: int) -> Iterator[str]:
    """*granted*: see `_in_place`. *held*: the exclusive CPUs of the container, as bits."""
    if pod.is_rebuilt:
        yield "the pod is not watched: it is assumed to request what it holds"
    if found.result == "fits" and Provider.RUNTIME in subject.node_class.hidden:
        yield "only the kubelet's answer is known: the grants of the node's NRI policy are not known"
    if found.reason.startswith(POLICY_REFUSES):
        yield "the container would keep its CPUs, and the NRI policy would count them as free"
    elif granted is not None and found.result == "fits":
        cpus = format_list(granted.exclusive) or "none"
        yield f"the NRI policy would give the container these CPUs for itself: {cpus}"
    elif held and found.result == "fits":
        yield "the container keeps its exclusive CPUs, whatever it requests after the resize"


def resized(pod: Pod, container: str, amounts_milli: Mapping[str, int]) -> Pod:
    """The pod with other amounts in one container; its limits follow where they equal the requests or would be lower.

    Raises:
        WireError: there is no such container, or it is an ordinary init container.
    """
    names = [c.name for c in pod.containers if c.kind is not ContainerKind.INIT]
    if not container and len(names) == 1:
        container = names[0]
    if container not in names:
        wanted = (
            f"the pod has no long-running container {container!r}"
            if container
            else "the name of a container is expected"
        )
        raise WireError("container", f"{wanted}: it has {', '.join(names)}")
    (old,) = (c for c in pod.containers if c.name == container)
    limits = dict(old.limits_milli)
    for name, amount in amounts_milli.items():
        if name in limits and (limits[name] == old.requests_milli.get(name) or limits[name] < amount):
            limits[name] = amount
    new = replace(
        old, requests_milli={**old.requests_milli, **amounts_milli}, limits_milli=limits, allocated_milli=None
    )
    return replace(pod, containers=tuple(new if c is old else c for c in pod.containers))


def _in_place(
    kubelet: Kubelet, subject: Subject, pod: NodePod, after: PodWorkload, container: str
) -> tuple[Resize, Grant | None]:
    """The result for *pod* of *subject*, and what the NRI policy then grants the container.

    *after*: the pod with the new amounts. The grant is None if the policy refuses the resize, or does not run.
    """
    found = resize(kubelet, subject.states[0], pod.workload.pod, after.pod)
    if found.result in (ResizeResult.FITS, ResizeResult.DEFERRED):  # otherwise the totals do not matter
        found = _fit(subject, pod, after) or found
    known = grants_of(subject.states[0])
    policy = None if known is None else _by_policy(known, pod, after, container)
    if policy is not None and policy.refusal is not None and found.result is ResizeResult.FITS:
        found = Resize(result=ResizeResult.DEFERRED, reason=f"{POLICY_REFUSES}: {policy.reason}")
    return found, None if policy is None else policy.grant


def _cpus_of(state: ManagerState, uid: str, container: str) -> int:
    held = state.cpu.entries.get(uid, {}).get(container, 0)
    if (known := grants_of(state)) is not None:
        _, granted, _ = known.held_by(uid).get(container, ("", 0, 0))
        held |= granted
    return held


def _by_policy(state: NriState, pod: NodePod, after: PodWorkload, container: str) -> NriOutcome | None:
    """What the policy makes of the resize: it releases the grant, and places the container again in the same pool.

    None if the policy has no grant for the container.
    """
    books = state.node.books
    mine = [i for i in books.grants if (books.containers[i].pod_id, books.containers[i].name) == (pod.uid, container)]
    if not mine:
        return None
    new = next(c for c in after.pod.containers if c.name == container)
    resources = runtime_resources(
        new.requests_milli.get("cpu", 0), new.limits_milli.get("cpu", 0), -(-new.limits_milli.get("memory", 0) // 1000)
    )
    return resize_container(state.node, mine[0], resources)[1]


def _fit(subject: Subject, pod: NodePod, after: PodWorkload) -> Resize | None:
    """The refusal by the node's totals; None if they are enough or not known.

    Source: kubelet `kubelet.go` canResizePod: more than the node's allocatable is infeasible. `lifecycle/predicate.go`.
    """
    total, requested = subject.around.allocatable_milli, subject.around.requested_milli
    wanted = pod_requests(after.pod, after.rules.overhead_milli)
    if total is None:
        return None
    for name, amount, _ in shortages(wanted, total, {}):
        text = (
            f"{format_milli(name, amount)} {name} wanted, the whole node has {format_milli(name, total.get(name, 0))}"
        )
        return Resize(result=ResizeResult.INFEASIBLE, reason=text)
    if requested is None:
        return None
    others = add(requested, {name: -amount for name, amount in pod.requests_milli.items()})
    for name, amount, left in shortages(wanted, total, others):
        text = f"{format_milli(name, amount)} {name} wanted, {format_milli(name, max(0, left))} left beside other pods"
        return Resize(result=ResizeResult.DEFERRED, reason=text)
    return None
