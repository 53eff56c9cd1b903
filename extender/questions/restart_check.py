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
from typing import Final, get_args

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
from extender.wire.advice_replies import PodResult
from extender.wire.errors import WireError
from extender.wire.questions import HypotheticalNode, RestartCheckRequest
from extender.wire.replies import ReplyBody

MAX_ORDERS: Final = 8
"""How many orders of admission are tried where the order is not known."""
MAX_STATES: Final = 16
"""In how many of its possible states a node is replayed."""
MAX_PLANNED_NODES: Final = 32
"""Limit on the nodes whose pods get other nodes proposed. Each search replays on all nodes."""
CHECK_SHARE: Final = 0.6
"""The share of the time after which no further node is checked. The rest is for the places of pods to drain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartedPod:
    """`moved`: it gets other CPUs or memory than it holds.

    `reason` and `message` are in the pod's status if it fails.
    """

    pod: NodePod
    result: PodResult
    reason: str = ""
    message: str = ""
    cpus_before: int = 0
    cpus_after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartedNode:
    """`config_error`: why no state lets the kubelet start. `pods`: in the order of admission; empty with an error.

    `is_known` False: not enough is known about the node.
    """

    subject: Subject
    config: KubeletConfig | None = None
    config_error: str = ""
    refused_files: Sequence[RefusedFile] = ()
    pods: Sequence[RestartedPod] = ()
    is_known: bool = True

    @property
    def starts(self) -> bool:
        """Whether the kubelet starts with the state files that are there."""
        return self.is_known and not self.config_error and not self.refused_files

    @property
    def failing(self) -> list[RestartedPod]:
        """Pods that fail or may fail."""
        return [each for each in self.pods if each.result in ("fails", "may-fail")]

    @property
    def drain_first(self) -> list[RestartedPod]:
        """Pods to evict before: those that fail, and with a refused file also those whose resources would change."""
        if not self.refused_files:
            return self.failing
        return [each for each in self.pods if each.result != "kept"]


def restart_check(subject: Subject, config: KubeletConfig | None, *, reboot: bool = False) -> RestartedNode:
    """The result for one node. *config*: the configuration after the restart; None: the same."""
    kubelet = subject.kubelet
    if kubelet is None or not subject.states or subject.node_class.hidden:
        return RestartedNode(subject=subject, is_known=False)
    config = config or kubelet.config
    if (refused_gate := faulty_gate(kubelet.config, config)) is not None:
        return RestartedNode(subject=subject, config=config, config_error=f"featureGates: {refused_gate[1]}")
    try:
        new = replace(start(kubelet.machine, config), runtime=kubelet.runtime)
    except KubeletConfigError as error:
        return RestartedNode(subject=subject, config=config, config_error=str(error))
    everything = pods_of(subject)
    allocatable = allocatable_after(subject, kubelet, new) if subject.around.pods is not None else {}
    pods = [pod for pod in everything if not pod.terminating]
    refused: dict[str, RefusedFile] = {}
    runs: list[dict[str, RestartedPod]] = []
    for state in subject.states[:MAX_STATES]:
        restored = restore(kubelet, new, state)
        refused |= {file.name: file for file in restored.refused if file.name not in refused}
        replay = _Replay(new, state, restored.state, allocatable, not reboot)
        for listed in [everything, pods] if len(pods) < len(everything) else [pods]:
            for order in _orders(listed):
                run = {each.pod.uid: each for each in replay.run(order)}
                runs.append(run)
                if all(each.result == "kept" for each in run.values()):
                    break  # no pod changed anything, so the order does not matter
    return RestartedNode(
        subject=subject,
        config=config,
        refused_files=tuple(refused.values()),
        pods=[_together([run[pod.uid] for run in runs]) for pod in pods],
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

    def run(self, order: Sequence[NodePod]) -> Iterator[RestartedPod]:
        """Admit the pods again in this order."""
        requests = [resolve(pod.workload.pod, self.kubelet.rules) for pod in order]
        outcomes = admit_again(self.kubelet, self.restored, requests, running=self.running)
        used: Mapping[str, int] = {}
        for pod, outcome in zip(order, outcomes, strict=True):
            wanted = {name: amount for name, amount in pod.requests_milli.items() if name in self.allocatable}
            short = next((name for name, _, _ in shortages(wanted, self.allocatable, used)), None)
            result = self._result(pod, outcome, short)
            if result.result != "fails":
                used = add(used, pod.requests_milli)
            yield result

    def _result(self, pod: NodePod, outcome: Outcome, shortage: str | None) -> RestartedPod:
        verdict, uid = outcome.verdict, pod.uid
        before, after = self.before.cpu.entries.get(uid, {}), outcome.state.cpu.entries.get(uid, {})
        result: PodResult = "kept"
        reason = message = ""
        if isinstance(verdict, Rejected):
            # A plugin that is not a pod of this node may register in time.
            result = "may-fail" if verdict.provider is Provider.DEVICE else "fails"
            reason, message = verdict.reason.value, verdict.message
        elif shortage is not None:
            result, reason, message = "fails", f"OutOf{shortage}", f"Node didn't have enough resource: {shortage}"
        elif self._running(pod, self.before) != self._running(pod, outcome.state):
            result = "moved"
        return RestartedPod(
            pod=pod,
            result=result,
            reason=reason,
            message=message,
            cpus_before=reduce(or_, before.values(), 0),
            cpus_after=reduce(or_, after.values(), 0),
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


def _together(results: Sequence[RestartedPod]) -> RestartedPod:
    """One result from the results in several orders and states."""
    fails = [each for each in results if each.result in ("fails", "may-fail")]
    if not fails:
        return next((each for each in results if each.result == "moved"), results[0])
    if len(fails) < len(results):
        return replace(fails[0], result="may-fail")
    return fails[0]


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
