"""Resize-check: what the kubelet makes of an in-place resize, and where the pod would go if it were recreated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from extender.questions.node_pods import NodePod, without
from extender.questions.subjects import Subject
from extender.questions.what_if import NodeWhatIf, what_if
from extender.replay.pod import ContainerKind, Pod
from extender.replay.resize import Resize, ResizeResult, resize
from extender.scheduling.judge import Judge
from extender.scheduling.totals import add, format_milli, pod_requests, shortages
from extender.wire.workloads import PodWorkload


class ResizeError(ValueError):
    """The pod cannot be resized like this; `field` of the question."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeAnswer:
    """`own_node`: the pod recreated with the new size on its node, without the old pod. `elsewhere`: other nodes."""

    resize: Resize
    cpus_now: int
    """Exclusive CPUs of the container, raw bits; 0: it runs in the shared pool."""
    shared_cpus: int
    """The shared pool, raw bits; 0: the CPU manager has no pools."""
    own_node: NodeWhatIf
    elsewhere: Sequence[NodeWhatIf]


def resized(pod: Pod, container: str, amounts_milli: Mapping[str, int]) -> Pod:
    """The pod with other amounts in one container; its limits follow where they equal the requests or would be lower.

    Raises:
        ResizeError: there is no such container, or it is an ordinary init container.
    """
    names = [c.name for c in pod.containers if c.kind is not ContainerKind.INIT]
    if not container and len(names) == 1:
        container = names[0]
    if container not in names:
        wanted = (
            f"the pod has no long-running container {container!r}" if container else "the pod has several containers"
        )
        raise ResizeError("container", f"{wanted}: one of {', '.join(names)}")
    (old,) = (c for c in pod.containers if c.name == container)
    limits = dict(old.limits_milli)
    for name, amount in amounts_milli.items():
        if name in limits and (limits[name] == old.requests_milli.get(name) or limits[name] < amount):
            limits[name] = amount
    new = replace(
        old, requests_milli={**old.requests_milli, **amounts_milli}, limits_milli=limits, allocated_milli=None
    )
    return replace(pod, containers=tuple(new if c is old else c for c in pod.containers))


def resize_check(
    subject: Subject, pod: NodePod, after: PodWorkload, container: str, others: Sequence[Subject], judge: Judge
) -> ResizeAnswer:
    """The answer for *pod* of *subject*; *after*: the pod with the new amounts. *subject* has a kubelet and a state."""
    kubelet, state = subject.kubelet, subject.states[0]
    assert kubelet is not None
    own, *elsewhere = what_if(after, [without(subject, [pod], 1), *others], judge)
    return ResizeAnswer(
        resize=_fit(subject, pod, after) or resize(kubelet, state, pod.workload.pod, after.pod),
        cpus_now=state.cpu.entries.get(pod.uid, {}).get(container, 0),
        shared_cpus=state.cpu.default if kubelet.cpu_static else 0,
        own_node=own,
        elsewhere=sorted((e for e in elsewhere if e.outcome == "fits"), key=lambda e: -(e.score or 0)),
    )


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
