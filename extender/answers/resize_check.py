"""The reply to resize-check."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from extender.answers.finding import blind_spots, find_pod
from extender.answers.notes import all_notes
from extender.answers.question import Asked
from extender.answers.reading import question_of
from extender.answers.snapshot import Snapshot
from extender.kubelet.sets import format_list
from extender.kubelet.verdict import Admitted, Provider
from extender.questions.resize_check import POLICY_REFUSES, resize_check, resized
from extender.questions.what_if import NodeWhatIf
from extender.replay.creation import whole_placements
from extender.scheduling.judge import Judge
from extender.scheduling.node_totals import format_milli
from extender.wire import verdicts
from extender.wire.advice_replies import PodPlacement, ResizeCheckReply
from extender.wire.errors import WireError
from extender.wire.parsing import parse_milli
from extender.wire.questions import ResizeCheckRequest
from extender.wire.replies import ReplyBody

MAX_ELSEWHERE: Final = 5
"""How many other nodes are in one answer, the best first."""


def placement_of(answer: NodeWhatIf) -> PodPlacement:
    """One node's answer to a pod, without the reasons of kube-scheduler in detail."""
    verdict, containers = answer.verdict, {}
    if answer.outcome == "fits" and isinstance(verdict, Admitted):
        containers = verdicts.container_placements(whole_placements(verdict), answer.admitted_as)
    fields = verdicts.alignment_fields(answer.alignment)
    return PodPlacement.filled(answer, node=answer.subject.name, **fields, containers=containers)


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
    found = resize_check(subject, pod, after, new.name, others, judge)
    notes = [*all_notes([after], [subject, *others]), *blind_spots([subject, *others], None)]
    if pod.is_rebuilt:
        notes.append("the pod is not watched: it is assumed to request what it holds")
    if found.resize.result == "fits" and Provider.RUNTIME in subject.node_class.hidden:
        notes.append("only the kubelet's answer is known: the grants of the node's NRI policy are not known")
    if found.resize.reason.startswith(POLICY_REFUSES):
        notes.append("the container would keep its CPUs, and the NRI policy would count them as free")
    elif found.granted is not None and found.resize.result == "fits":
        cpus = format_list(found.granted.exclusive) or "none"
        notes.append(f"the NRI policy would give the container these CPUs for itself: {cpus}")
    elif found.cpus_now and found.resize.result == "fits":
        notes.append("the container keeps its exclusive CPUs, whatever it requests after the resize")
    yield ResizeCheckReply.filled(
        found.resize,
        pod=pod.name,
        node=subject.name,
        container=new.name,
        before={name: format_milli(name, old.requests_milli.get(name, 0)) for name in amounts},
        after={name: format_milli(name, amount) for name, amount in amounts.items()},
        limits={name: format_milli(name, new.limits_milli[name]) for name in amounts if name in new.limits_milli},
        exclusive_cpus=format_list(found.cpus_now),
        shared_cpus=format_list(found.shared_cpus),
        recreated=placement_of(found.own_node),
        elsewhere=[placement_of(each) for each in found.elsewhere[:MAX_ELSEWHERE]],
        other_nodes=len(found.elsewhere),
        notes=notes,
    )
