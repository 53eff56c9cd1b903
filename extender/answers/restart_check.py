"""The reply to restart-check."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, get_args

from extender.answers.finding import OUT_OF_TIME, blind_spots, progress, subjects_of
from extender.answers.question import Asked
from extender.answers.reading import question_of
from extender.answers.snapshot import Snapshot
from extender.answers.words import plural
from extender.kubelet.config import KubeletConfig
from extender.kubelet.errors import UnknownVersionError
from extender.kubelet.rules import Rules
from extender.kubelet.sets import format_list
from extender.questions.dra import with_forecast
from extender.questions.hypothetical import changed_config
from extender.questions.node_context import Subject
from extender.questions.node_pods import NodePod
from extender.questions.plan import PlacementPlan
from extender.questions.restart_check import MAX_STATES, RestartedNode, RestartedPod, restart_check
from extender.scheduling.judge import Judge
from extender.wire import advice_replies as replies
from extender.wire.errors import WireError
from extender.wire.questions import HypotheticalNode, RestartCheckRequest
from extender.wire.replies import ReplyBody

MAX_PLANNED_NODES: Final = 32
"""Limit on the nodes whose pods get other nodes proposed. Each search replays on all nodes."""
CHECK_SHARE: Final = 0.6
"""The share of the time after which no further node is checked. The rest is for the places of pods to drain."""


def restart_check_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """Progress, then one `RestartCheckReply`."""
    question = question_of(asked, RestartCheckRequest)
    change = HypotheticalNode(
        copy_of="", kubelet_version=question.kubelet_version, kubelet=question.kubelet, rules=question.rules
    )
    is_changed = bool(question.kubelet_version or question.kubelet or question.rules)
    subjects = subjects_of(snapshot, question.nodes)
    unseen = blind_spots(subjects)
    restarts: list[RestartedNode] = []
    for subject in subjects:
        known = subject.kubelet if is_changed else None
        config = None if known is None else _changed(known.config, change)
        restarts.append(restart_check(subject, config, reboot=question.reboot))
        yield from progress(len(restarts), len(subjects))
        if asked.spent() > CHECK_SHARE:
            break
    order = sorted(restarts, key=_safe_first)
    drained = [pod.pod.workload.pod for node in order for pod in node.drain_first]
    homes = _homes(order, with_forecast(asked.forecast, drained, snapshot.subjects(None)), judge)
    is_detailed = len(restarts) == 1
    yield replies.RestartCheckReply(
        nodes=[_node(each, homes.get(each.subject.name, {}), is_detailed=is_detailed) for each in order],
        summary=_summary(restarts),
        notes=[*unseen, *_notes(restarts, reboot=question.reboot), *_left_out(len(restarts), len(subjects))],
    )


def _changed(config: KubeletConfig, change: HypotheticalNode) -> KubeletConfig:
    """Raises WireError for a value that no kubelet reads."""
    try:
        after = changed_config(config, change, "")
    except WireError as error:
        raise WireError(error.field.removeprefix("."), error.reason) from None
    try:
        Rules.of(after.kubelet_version, {}, {})
    except UnknownVersionError as error:
        raise WireError("kubelet_version", str(error)) from None
    return after


def _safe_first(node: RestartedNode) -> tuple[bool, bool, int, str]:
    """First nodes on which nothing fails, then those with the fewest pods to drain, last those that do not start."""
    return bool(node.config_error), not node.is_known, len(node.drain_first), node.subject.name


def _homes(
    nodes: Iterable[RestartedNode], everywhere: Sequence[Subject], judge: Judge
) -> Mapping[str, Mapping[str, str | None]]:
    """The new node of each pod to drain, by node and UID; None: no node. Each node is drained by itself."""
    homes = {}
    drained = [node for node in nodes if node.drain_first]
    for node in drained[:MAX_PLANNED_NODES]:
        others = [other for other in everywhere if other.name != node.subject.name]
        homes[node.subject.name] = homes_of([each.pod for each in node.drain_first], others, judge)
    return homes


def homes_of(pods: Sequence[NodePod], others: Sequence[Subject], judge: Judge) -> dict[str, str | None]:
    """The node of each pod, by UID, if they were recreated one after another on *others*; None: no node."""
    placed = PlacementPlan(others, judge).run([(pod.workload, 1) for pod in pods])
    return {pod.uid: each.node for pod, each in zip(pods, placed, strict=True)}


def _node(node: RestartedNode, homes: Mapping[str, str | None], *, is_detailed: bool) -> replies.RestartedNodeInfo:
    drained = {each.pod.uid for each in node.drain_first}
    subject = node.subject
    before = "" if subject.kubelet is None else subject.kubelet.config.kubelet_version
    return replies.RestartedNodeInfo(
        node=subject.name,
        action=_action(node),
        kubelet_version=before if node.config is None else node.config.kubelet_version,
        error=node.config_error,
        refused_files=[replies.RefusedFileInfo.filled(file, file=file.name) for file in node.refused_files],
        **_by_result(node.pods),
        pods=[
            _pod(number, each, homes, is_drained=each.pod.uid in drained)
            for number, each in enumerate(node.pods, start=1)
            if is_detailed or each.result != "kept" or each.pod.uid in drained
        ],
    )


def _action(node: RestartedNode) -> replies.NodeAction:
    if not node.is_known:
        return "unknown"
    if node.config_error:
        return "does-not-start"
    if node.refused_files:
        return "drain-and-delete-files"
    return "drain-first" if node.drain_first else "restart"


def _pod(
    number: int, each: RestartedPod, homes: Mapping[str, str | None], *, is_drained: bool
) -> replies.RestartedPodInfo:
    return replies.RestartedPodInfo.filled(
        each,
        pod=each.pod.name,
        order=number,
        cpus_before=format_list(each.cpus_before),
        cpus_after="" if each.result in ("fails", "may-fail") else format_list(each.cpus_after),
        drain_first=is_drained,
        elsewhere=homes.get(each.pod.uid),
    )


def _by_result(pods: Iterable[RestartedPod]) -> dict[str, int]:
    """The fields of a reply for pods by result."""
    counts = Counter(each.result for each in pods)
    return {result.replace("-", "_"): counts[result] for result in get_args(replies.PodResult)}


def _summary(nodes: Sequence[RestartedNode]) -> replies.RestartSummary:
    pods = [each for node in nodes for each in node.pods]
    return replies.RestartSummary(
        nodes=len(nodes),
        actions=dict(Counter(_action(node) for node in nodes)),
        pods=len(pods),
        **_by_result(pods),
        drained=sum(len(node.drain_first) for node in nodes),
    )


def _left_out(checked: int, of: int) -> Iterator[str]:
    if checked < of:
        yield f"the time was over after {checked} of {plural(of, 'node')}, by name; {OUT_OF_TIME}"


def _notes(nodes: Sequence[RestartedNode], *, reboot: bool) -> Iterator[str]:
    policies = sum(node.subject.node_class.has_nri for node in nodes)
    if policies:
        yield (
            f"{policies} of {plural(len(nodes), 'node')}: only the kubelet is replayed. Its restart leaves the grants "
            "of the NRI topology-aware policy as they are. After a reboot, or where pods are moved or recreated, the "
            "policy places containers anew, and may refuse some"
        )
    if any(node.refused_files for node in nodes):
        yield (
            "a kubelet that refuses a state file starts only after the file is deleted; the results assume that it is "
            "deleted while the pods run, so drain the node first"
        )
    if many := sum(len(node.subject.states) > MAX_STATES for node in nodes):
        yield f"{many} of {plural(len(nodes), 'node')}: only the {MAX_STATES} most likely of their states were replayed"
    if reboot and any(each.result == "may-fail" for node in nodes for each in node.pods):
        yield "pods with devices are admitted after a reboot only if their device plugin has registered by then"
    if sum(bool(node.drain_first) for node in nodes) > MAX_PLANNED_NODES:
        yield f"other nodes were searched for the pods of the first {MAX_PLANNED_NODES} nodes to drain only"
