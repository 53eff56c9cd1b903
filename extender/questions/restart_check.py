"""Restart-check: what happens to the pods of a node when its kubelet restarts, is upgraded, or gets other settings.

Rules of this file
- The pods are admitted again in the order of the kubelet: static pods, then older pods first. If that order is not
  known, and pods are allocated again, several orders are tried. A pod that fails in some of them "may fail".
- A node that can be in several states is replayed in each of them. A pod that fails in some of them "may fail".
- If a state file is refused, the kubelet does not start. The results then assume that the file was deleted while the
  pods ran.
- The kubelet's check of totals (`OutOfcpu`) is made if the requests of all pods are known.
- Terminating pods have no result. They may be admitted again before the others, or be gone by then: both are tried.
- A pod is "kept" if the containers that go on running keep what they hold. Ordinary init containers are over. A kubelet
  that admits the pod again gives them new memory, which nothing uses.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Final

from msgspec import structs

from extender.kubelet.admission import Outcome
from extender.kubelet.config import KubeletConfig
from extender.kubelet.errors import KubeletConfigError, UnknownVersionError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import ContainerKind
from extender.kubelet.resolve import resolve
from extender.kubelet.restart import RefusedFile, admit_again, restore
from extender.kubelet.rules import Rules
from extender.kubelet.sets import format_list
from extender.kubelet.startup import start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Provider, Rejected
from extender.questions.asked import Asked
from extender.questions.dra import with_forecast
from extender.questions.finding import OUT_OF_TIME, blind_spots, progress, subjects_of
from extender.questions.hypothetical import changed_config, faulty_gate
from extender.questions.node_context import Subject
from extender.questions.node_pods import NodePod, pods_of
from extender.questions.plan import PlacementPlan
from extender.questions.reading import question_of
from extender.questions.snapshot import Snapshot
from extender.questions.words import plural
from extender.scheduling.judge import Judge
from extender.scheduling.node_totals import add, node_allocatable, shortages
from extender.wire import advice_replies as replies
from extender.wire.errors import WireError
from extender.wire.questions import HypotheticalNode, RestartCheckRequest
from extender.wire.replies import ReplyBody

_FAILING: Final = ("fails", "may-fail")
MAX_ORDERS: Final = 8
"""How many orders of admission are tried where the order is not known."""
MAX_STATES: Final = 16
"""In how many of its possible states a node is replayed."""
MAX_PLANNED_NODES: Final = 32
"""Limit on the nodes whose pods get other nodes proposed. Each search replays on all nodes."""
CHECK_SHARE: Final = 0.6
"""The share of the time after which no further node is checked. The rest is for the places of pods to drain."""


@dataclass(frozen=True, slots=True)
class RestartedNode:
    """What the restart does to one node. `pods`: those of `info`, in the same order."""

    subject: Subject
    info: replies.RestartedNodeInfo
    pods: Sequence[NodePod] = ()

    @property
    def drain_first(self) -> list[NodePod]:
        """Pods to evict before: those that fail, and with a refused file also those whose resources would change."""
        return [pod for pod, each in zip(self.pods, self.info.pods, strict=True) if each.drain_first]


def restart_check(subject: Subject, config: KubeletConfig | None, *, reboot: bool = False) -> RestartedNode:
    """The result for one node. *config*: the configuration after the restart; None: the same."""
    kubelet = subject.kubelet
    if kubelet is None or not subject.states or subject.node_class.hidden:
        version = "" if kubelet is None else kubelet.config.kubelet_version
        return RestartedNode(subject, _info(subject.name, "unknown", version))
    config = config or kubelet.config
    version = config.kubelet_version
    if (refused_gate := faulty_gate(kubelet.config, config)) is not None:
        error = f"featureGates: {refused_gate[1]}"
        return RestartedNode(subject, _info(subject.name, "does-not-start", version, error=error))
    try:
        new = replace(start(kubelet.machine, config), runtime=kubelet.runtime)
    except KubeletConfigError as error:
        return RestartedNode(subject, _info(subject.name, "does-not-start", version, error=str(error)))
    everything = pods_of(subject)
    allocatable = allocatable_after(subject, kubelet, new) if subject.around.pods is not None else {}
    pods = [pod for pod in everything if not pod.terminating]
    refused: dict[str, RefusedFile] = {}
    runs: list[dict[str, replies.RestartedPodInfo]] = []
    for state in subject.states[:MAX_STATES]:
        restored = restore(kubelet, new, state)
        refused |= {file.name: file for file in restored.refused if file.name not in refused}
        replay = _Replay(new, state, restored.state, allocatable, not reboot)
        for listed in [everything, pods] if len(pods) < len(everything) else [pods]:
            for order in _orders(listed):
                run = replay.run(order)
                runs.append(run)
                if all(each.result == "kept" for each in run.values()):
                    break  # no pod changed anything, so the order does not matter
    found = [_together([run[pod.uid] for run in runs]) for pod in pods]
    for number, each in enumerate(found, start=1):
        each.order, each.drain_first = number, each.result in _FAILING or (bool(refused) and each.result != "kept")
    drains = any(each.drain_first for each in found)
    action: replies.NodeAction = "drain-and-delete-files" if refused else "drain-first" if drains else "restart"
    return RestartedNode(subject, _info(subject.name, action, version, found, refused=refused.values()), pods)


def _info(
    name: str,
    action: replies.NodeAction,
    version: str,
    pods: Sequence[replies.RestartedPodInfo] = (),
    *,
    error: str = "",
    refused: Iterable[RefusedFile] = (),
) -> replies.RestartedNodeInfo:
    counts = Counter(each.result for each in pods)
    return replies.RestartedNodeInfo(
        node=name,
        action=action,
        kubelet_version=version,
        error=error,
        refused_files=[replies.RefusedFileInfo.filled(file, file=file.name) for file in refused],
        kept=counts["kept"],
        moved=counts["moved"],
        may_fail=counts["may-fail"],
        fails=counts["fails"],
        pods=list(pods),
    )


def allocatable_after(subject: Subject, old: Kubelet, new: Kubelet) -> dict[str, int]:
    """What the node can give with kubelet *new*, without devices; what is not known is left out."""
    known, devices = subject.around.allocatable_milli or {}, subject.states[0].devices
    before, after = node_allocatable(old, devices), node_allocatable(new, devices)
    return {name: known[name] + after[name] - before[name] for name in after if name in known and "/" not in name}


def _orders(pods: Sequence[NodePod]) -> Iterator[Sequence[NodePod]]:
    """The known order, and others that differ in the pods of equal or unknown age."""
    yield pods
    ages = [(pod.is_static, pod.created_at) for pod in pods]
    if len(set(ages)) == len(pods):
        return
    yield sorted(pods, key=lambda pod: (not pod.is_static, pod.created_at or 0, _reversed(pod.name)))
    for step in range(2, MAX_ORDERS):
        turned = [*pods[len(pods) * step // MAX_ORDERS :], *pods[: len(pods) * step // MAX_ORDERS]]
        yield sorted(turned, key=lambda pod: (not pod.is_static, pod.created_at or 0))


def _reversed(name: str) -> list[int]:
    return [-ord(character) for character in name]


@dataclass(frozen=True, slots=True)
class _Replay:
    """`before`: what the pods hold; `restored`: what the kubelet begins with. `allocatable`: empty if it is not known.

    Source: kubelet `lifecycle/predicate.go`, generalFilter, for the check of totals.
    """

    kubelet: Kubelet
    before: ManagerState
    restored: ManagerState
    allocatable: Mapping[str, int]
    running: bool

    def run(self, order: Sequence[NodePod]) -> dict[str, replies.RestartedPodInfo]:
        """Admit the pods again in this order. The results by UID."""
        requests = [resolve(pod.workload.pod, self.kubelet.rules) for pod in order]
        outcomes = admit_again(self.kubelet, self.restored, requests, running=self.running)
        used: Mapping[str, int] = {}
        found = {}
        for pod, outcome in zip(order, outcomes, strict=True):
            wanted = {name: amount for name, amount in pod.requests_milli.items() if name in self.allocatable}
            short = next((name for name, _, _ in shortages(wanted, self.allocatable, used)), None)
            result = found[pod.uid] = self._result(pod, outcome, short)
            if result.result != "fails":
                used = add(used, pod.requests_milli)
        return found

    def _result(self, pod: NodePod, outcome: Outcome, shortage: str | None) -> replies.RestartedPodInfo:
        verdict, uid = outcome.verdict, pod.uid
        before, after = self.before.cpu.entries.get(uid, {}), outcome.state.cpu.entries.get(uid, {})
        result: replies.PodResult = "kept"
        reason = message = ""
        if isinstance(verdict, Rejected):
            # A plugin that is not a pod of this node may register in time.
            result = "may-fail" if verdict.provider is Provider.DEVICE else "fails"
            reason, message = verdict.reason.value, verdict.message
        elif shortage is not None:
            result, reason, message = "fails", f"OutOf{shortage}", f"Node didn't have enough resource: {shortage}"
        elif self._running(pod, self.before) != self._running(pod, outcome.state):
            result = "moved"
        return replies.RestartedPodInfo(
            pod=pod.name,
            order=0,
            result=result,
            reason=reason,
            message=message,
            cpus_before=format_list(reduce(or_, before.values(), 0)),
            cpus_after="" if result in _FAILING else format_list(reduce(or_, after.values(), 0)),
            drain_first=False,
            elsewhere=None,
        )

    @staticmethod
    def _running(pod: NodePod, state: ManagerState) -> object:
        """What the containers hold that go on running, and the pod itself."""
        over = {c.name for c in pod.workload.pod.containers if c.kind is ContainerKind.INIT}
        cpus, memory = state.cpu.entries.get(pod.uid, {}), state.memory.entries.get(pod.uid, {})
        return (
            {name: held for name, held in cpus.items() if name not in over},
            {name: sorted(held) for name, held in memory.items() if name not in over},
        )


def _together(results: Sequence[replies.RestartedPodInfo]) -> replies.RestartedPodInfo:
    """One result from the results in several orders and states."""
    fails = [each for each in results if each.result in _FAILING]
    if not fails:
        return next((each for each in results if each.result == "moved"), results[0])
    return fails[0] if len(fails) == len(results) else structs.replace(fails[0], result="may-fail")


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
    drained = [pod.workload.pod for node in order for pod in node.drain_first]
    _find_homes(order, with_forecast(asked.forecast, drained, snapshot.subjects(None)), judge)
    infos = [node.info for node in order]
    if len(infos) > 1:
        infos = [structs.replace(i, pods=[p for p in i.pods if p.result != "kept" or p.drain_first]) for i in infos]
    yield replies.RestartCheckReply(
        nodes=infos,
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
    return bool(node.info.error), node.info.action == "unknown", len(node.drain_first), node.subject.name


def _find_homes(nodes: Iterable[RestartedNode], everywhere: Sequence[Subject], judge: Judge) -> None:
    """Note the new node of each pod to drain, if they were recreated one after another. Each node is drained alone."""
    for node in [node for node in nodes if node.drain_first][:MAX_PLANNED_NODES]:
        others = [other for other in everywhere if other.name != node.subject.name]
        placed = PlacementPlan(others, judge).run([(pod.workload, 1) for pod in node.drain_first])
        for each, home in zip((each for each in node.info.pods if each.drain_first), placed, strict=True):
            each.elsewhere = home.node


def _summary(nodes: Sequence[RestartedNode]) -> replies.RestartSummary:
    return replies.RestartSummary(
        nodes=len(nodes),
        actions=dict(Counter(node.info.action for node in nodes)),
        pods=sum(len(node.pods) for node in nodes),
        kept=sum(node.info.kept for node in nodes),
        moved=sum(node.info.moved for node in nodes),
        may_fail=sum(node.info.may_fail for node in nodes),
        fails=sum(node.info.fails for node in nodes),
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
    if any(node.info.refused_files for node in nodes):
        yield (
            "a kubelet that refuses a state file starts only after the file is deleted; the results assume that it is "
            "deleted while the pods run, so drain the node first"
        )
    if many := sum(len(node.subject.states) > MAX_STATES for node in nodes):
        yield f"{many} of {plural(len(nodes), 'node')}: only the {MAX_STATES} most likely of their states were replayed"
    if reboot and any(node.info.may_fail for node in nodes):
        yield "pods with devices are admitted after a reboot only if their device plugin has registered by then"
    if sum(bool(node.drain_first) for node in nodes) > MAX_PLANNED_NODES:
        yield f"other nodes were searched for the pods of the first {MAX_PLANNED_NODES} nodes to drain only"
