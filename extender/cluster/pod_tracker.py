"""The pods of one node: the ledger, the watch and the report; `projection` has what follows from them.

Rules of this file
- Events and reports change the tracker at once. The projection is computed when it is first read after a change, and is
  the same as if it had been computed at once.
- Each pod in flight with a prediction is settled once. The methods that can settle pods return them.
- No clock and no callbacks: time is an argument, and the caller reads from `next_due` when a timeout changes something.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

from extender.cluster import ledger as ledgers
from extender.cluster.events import (
    AdmissionResult,
    ContainerRefused,
    MirrorGone,
    MirrorSeen,
    PodEvent,
    PodFinished,
    PodGone,
    PodRefused,
    PodSeen,
    PodUnread,
    SettledPod,
)
from extender.cluster.ledger import EMPTY, NO_PODS, Admit, Release
from extender.cluster.node import Observation
from extender.cluster.node_projection import Allowance, NodeProjection
from extender.cluster.projection import ProjectionInput, gives_back, project
from extender.cluster.steps import Steps, held_by
from extender.kubelet.admission import is_indifferent
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Provider, Verdict
from extender.replay.pod import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """How long unconfirmed facts are used, in seconds.

    `assume`: a pod that this service bound, unless the watch or a report shows it. `finish`: how long a finished pod
    still counts, because its kubelet has not torn it down yet. `ghost`: a pod that a report shows and the watch does
    not know may exist; after that the kubelet's list decides. `absence`: a running pod that no report shows, and a pod
    on the node that its kubelet has not started. `mirror`: a static pod that has a mirror pod and is in no report.
    `unread`: a pod whose requests cannot be read may be in flight, unless a report shows it.
    """

    assume: float = 120.0
    finish: float = 3.0
    ghost: float = 30.0
    absence: float = 120.0
    mirror: float = 5.0
    unread: float = 120.0


class PodTracker:
    """The pods of one node. `ledger`: what has happened since its report. `projection`: as of the last `reconcile`."""

    __slots__ = (
        "_mirrors", "_not_listed", "_running_since", "_settled", "_shown", "_timeouts", "_unknown_since",
        "_watched", "ledger", "name", "projection", "unread",
    )  # fmt: skip

    def __init__(self, node_name: str, timeouts: Timeouts, allowance: Allowance | None = None) -> None:
        self.name: Final = node_name
        self._timeouts: Final = timeouts
        self.ledger = EMPTY
        self.projection: Final = NodeProjection(allowance or Allowance())
        self._shown: dict[str, bool] = {}
        """Whether the report shows the admission of each pod in flight, by UID; for the state of the projection."""
        self._watched: set[str] = set()
        """Pods that the watch has on the node, not finished; without mirrors."""
        self.unread: dict[str, float] = {}
        """When each pod became known that may be in flight, and whose requests cannot be read; for reading only."""
        self._mirrors: dict[str, bool] = {}
        """Static pods of mirrors, and whether the mirror is there. Without it only those that the report shows."""
        self._running_since: tuple[tuple[str, int, str], float] | None = None
        """The identity of the report, and when its kubelet started, as far as it says."""
        self._settled = NO_PODS
        """Pods of the ledger that were settled already."""
        self._unknown_since: dict[str, float] = {}
        self._not_listed = NO_PODS
        """Pods with resources that the watch shows and the kubelet does not list."""

    def apply(self, event: PodEvent, now: float, has_restarted: Callable[[float], bool]) -> list[SettledPod]:
        """Apply one event of this node; returns the pod that it settles, if any.

        *has_restarted*: whether the node's kubelet has stopped or started after this time.
        """
        settled: list[SettledPod] = []
        match event:
            case PodSeen(pod=pod):
                self._watched.add(pod.uid)
                self.unread.pop(pod.uid, None)
            case PodUnread(uid=uid):
                self._watched.add(uid)
                if self.ledger.find(uid) is None and uid not in self.ledger.resolved:
                    self.unread.setdefault(uid, now)
            case ContainerRefused(uid=uid, reason=reason):
                admit = self.ledger.find(uid)
                if admit is not None:  # it stays on the node, and the kubelet tries again
                    settled = list(self._settle(admit, AdmissionResult.REFUSED, reason=reason))
            case PodRefused(uid=uid, reason=reason):
                self._forget(uid)
                settled = list(self._settle_refused(uid, reason, has_restarted))
            case PodFinished(uid=uid) | PodGone(uid=uid):
                self._forget(uid)
            case MirrorSeen(pod=pod):
                self._mirrors[pod.uid] = True
            case MirrorGone(uid=uid):
                given = self.projection.given
                if given is not None and uid in given.reported.pod_uids:
                    self._mirrors[uid] = False
                else:
                    self._mirrors.pop(uid, None)
        self.ledger = ledgers.apply(self.ledger, event, now, finish_seconds=self._timeouts.finish)
        return settled

    def _forget(self, uid: str) -> None:
        """The watch no longer shows the pod on the node, or the pod is finished."""
        self._watched.discard(uid)
        self.unread.pop(uid, None)

    def reconcile(
        self, observation: Observation, heard_at: float, now: float, *, watch_is_live: bool
    ) -> list[SettledPod]:
        """Reconcile the ledger, the report and the time. Returns the pods whose admission is over.

        *watch_is_live*: the watch knows every pod, so that one it does not know does not exist.
        """
        kubelet, state = observation.kubelet, observation.state
        if kubelet is None or state is None:
            return []
        limit = now - self._timeouts.unread
        self.unread = {uid: at for uid, at in self.unread.items() if at > limit and uid not in state.pod_uids}
        projection = self.projection
        is_new = projection.given is None or projection.given.reported is not state
        if is_new:
            self._shown = {}
            self._mirrors = {uid: there for uid, there in self._mirrors.items() if there or uid in state.pod_uids}
        settled = self._take_settled(observation, kubelet, state, heard_at, now)
        vanished, maybe_gone = self._unknown_pods(observation, state, now, watch_is_live=watch_is_live)
        lists_pods = observation.pod_uids is not None
        self._not_listed = (lists_pods and (state.pod_uids & self._watched) - observation.listed) or NO_PODS
        if not self.ledger.events and not self.ledger.starting:  # what is kept of settled pods is never read again
            is_new, self._shown = True, {}
        if is_new:
            projection.steps = Steps()
        projection.given = ProjectionInput(
            kubelet=kubelet,
            reported=state,
            ledger=self.ledger,
            now=now,
            vanished=vanished,
            maybe_gone=maybe_gone,
            admitted=self._admitted(observation, kubelet, projection.steps),
            contradictory=observation.contradictory,
        )
        return settled

    def _admitted(self, observation: Observation, kubelet: Kubelet, steps: Steps) -> frozenset[str]:
        """Pods in flight that the report shows, except containers that the NRI policy has not placed yet."""
        if kubelet.runtime is None:
            return NO_PODS
        pods = ((admit.uid, steps.request(admit.pod, kubelet.rules)) for admit in self.ledger.admits)
        return frozenset(uid for uid, request in pods if shows_admission(kubelet, observation, request, whole=False))

    def trim(self, now: float) -> bool:
        """Drop what is over, on a node without a usable report. Returns whether a pod is left."""
        limits = self._timeouts
        self.ledger = ledgers.trim(self.ledger, now, assume_seconds=limits.assume, started_seconds=limits.absence)
        return bool(self.ledger.events or self._watched or self._mirrors)

    def next_due(self, now: float) -> float | None:
        """When `reconcile` is due again without any event; None if never."""
        times = [at + self._timeouts.ghost for at in self._unknown_since.values() if now < at + self._timeouts.ghost]
        times += [at + self._timeouts.unread for at in self.unread.values()]
        due = self.ledger.next_due(now, self._timeouts.assume)
        if due is not None:
            times.append(max(due, now + 0.001))
        return min(times, default=None)

    def may_be_gone(self, now: float) -> frozenset[str]:
        """Pods that the kubelet may count no more, and may still count."""
        given = self.projection.given
        return self.ledger.may_be_gone(now) | (NO_PODS if given is None else given.maybe_gone)

    def lacks_pods(self, started_at: float) -> bool:
        """Whether reports lack pods that are in the first list of a kubelet that started at this time."""
        not_listed = self._not_listed - self.ledger.leaving.keys() - self.ledger.left.keys()
        return bool(not_listed) or any(
            admit.is_seen and not admit.static and admit.since < started_at for admit in self.ledger.admits
        )

    def _take_settled(
        self, observation: Observation, kubelet: Kubelet, state: ManagerState, heard_at: float, now: float
    ) -> list[SettledPod]:
        """Remove from the ledger what the report or a timeout has settled."""
        # 1. Which pods in flight are settled, and how.
        limits, steps = self._timeouts, self.projection.steps  # the former report's know the pods' requests
        running_since = self._kubelet_start(observation, heard_at)
        released = {e.uid for e in self.ledger.events if isinstance(e, Release) and e.due <= now}
        left = observation.left - self._contradicted(observation)
        settled, shown, ignored, denied = list[SettledPod](), dict[str, Pod](), set[str](), set[str]()
        for admit in self.ledger.admits:
            uid = admit.uid
            if uid not in self._shown:
                request = steps.request(admit.pod, kubelet.rules)
                self._shown[uid] = shows_admission(kubelet, observation, request)
            is_over = self._shown[uid]
            if kubelet.runtime is None:  # the NRI policy grants nothing before images are pulled, however long it takes
                is_over = is_over or ledgers.is_absent(admit, heard_at, limits.absence)
            if is_over:
                shown[uid] = admit.pod
                settled += self._settle(admit, AdmissionResult.ADMITTED, state=state)
                continue
            if ledgers.is_ignored(admit, heard_at, running_since, limits.absence):
                ignored.add(uid)
            elif ledgers.is_denied(admit, observation.listed, heard_at, limits.mirror):
                denied.add(uid)
            if uid in released or uid in left:
                settled += self._settle(admit, AdmissionResult.LEFT)
            elif uid in ignored or ledgers.is_lost(admit, now, limits.assume):
                settled += self._settle(admit, AdmissionResult.LOST)
        # 2. The ledger without them.
        ledger = ledgers.confirm(self.ledger, shown.keys() | ignored) if shown or ignored else self.ledger
        ledger = ledgers.end(ledgers.forget_mirrors(ledger, denied), left, now)
        ledger = ledgers.expire(ledger, state.pod_uids, now, assume_seconds=limits.assume)
        # 3. Pods that the report shows before their init containers have given memory back.
        starting = {
            uid: pod
            for uid, pod in {**ledger.starting, **shown}.items()
            if uid not in ledger.left and kubelet.memory_static and gives_back(state, steps.request(pod, kubelet.rules))
        }
        self.ledger = ledger if starting == ledger.starting else replace(ledger, starting=starting)
        self._settled = self._settled & {a.uid for a in self.ledger.admits} or NO_PODS
        return settled

    def _kubelet_start(self, observation: Observation, heard_at: float) -> float:
        """When the kubelet started, by its last report: inf if it is stopped, -inf if the report does not tell."""
        if self._running_since is None or self._running_since[0] != observation.identity:
            since = -inf if observation.kubelet_seconds is None else heard_at - observation.kubelet_seconds
            self._running_since = observation.identity, inf if observation.kubelet_listens is False else since
        return self._running_since[1]

    def _unknown_pods(
        self, observation: Observation, state: ManagerState, now: float, *, watch_is_live: bool
    ) -> tuple[frozenset[str], frozenset[str]]:
        """Pods of the report that the watch does not show: those that do not exist, and those that may not exist.

        Both cases are possible at first, because the watch may be late, and a kubelet releases the resources of a pod
        only when it admits the next one. Later, the pods that the kubelet lists exist. A pod that runs according to the
        watch and is not in the kubelet's list stays uncertain until they agree. A kubelet that has just started lists
        no pod, and admits the running ones again when its first list comes.
        """
        unknown = NO_PODS
        if watch_is_live:
            unknown = state.pod_uids - self._watched - self._mirrors.keys() - self.ledger.left.keys()
            unknown -= {a.uid for a in self.ledger.admits}
        since = self._unknown_since = {uid: self._unknown_since.get(uid, now) for uid in sorted(unknown)}
        recent = frozenset(uid for uid, at in since.items() if now < at + self._timeouts.ghost)
        vanished = unknown - recent - observation.listed
        contradicted = self._contradicted(observation) & state.pod_uids
        return vanished or NO_PODS, recent | observation.unlisted - vanished | contradicted or NO_PODS

    def _contradicted(self, observation: Observation) -> frozenset[str]:
        """Pods that the watch shows on the node and not finished, but that the kubelet does not count."""
        return observation.left & self._watched

    def _settle_refused(self, uid: str, reason: str, has_restarted: Callable[[float], bool]) -> Iterator[SettledPod]:
        """Settle a pod that the kubelet has refused.

        The refusal says nothing about the predicted admission if the pod had started before, or if its kubelet has
        stopped since the binding: a kubelet that starts admits its first list by other rules.
        """
        admit = self.ledger.find(uid)
        if admit is not None:
            says_nothing = admit.started_at is not None or has_restarted(admit.since)
            result = AdmissionResult.LEFT if says_nothing else AdmissionResult.REFUSED
            yield from self._settle(admit, result, reason=reason)

    def _settle(
        self, admit: Admit, result: AdmissionResult, *, state: ManagerState | None = None, reason: str = ""
    ) -> Iterator[SettledPod]:
        """Settle a pod in flight with a prediction, at most once."""
        given, projection = self.projection.given, self.projection.now
        verdicts = None if projection is None else projection.verdicts.get(admit.uid)
        if given is None or projection is None or verdicts is None or admit.uid in self._settled or admit.static:
            return
        self._settled |= {admit.uid}
        known_ends = given.leaving | given.released | given.vanished | given.ledger.left.keys()
        knew_ends = state is None or given.reported.pod_uids - state.pod_uids <= known_ends
        yield SettledPod(
            node_name=self.name,
            pod=admit.pod,
            kubelet=given.kubelet,
            result=result,
            verdicts=verdicts,
            complete=projection.complete and knew_ends,
            state=state,
            reason=reason,
            is_ours=admit.is_ours,
            predict_again=partial(_predict_again, given, admit.uid),
        )


def _predict_again(given: ProjectionInput, uid: str, kubelet: Kubelet) -> tuple[tuple[Verdict, ...], bool]:
    projection = project(replace(given, kubelet=kubelet))
    return projection.verdicts.get(uid, ()), projection.complete


def shows_admission(kubelet: Kubelet, observation: Observation, request: PodRequest, *, whole: bool = True) -> bool:
    """Whether the report shows all that the kubelet allocates to the pod, or the kubelet allocates nothing to it.

    *whole*: and all that the NRI topology-aware policy grants.
    """
    if not whole:
        kubelet = replace(kubelet, runtime=None)
    if is_indifferent(kubelet, request):
        return True
    state = observation.state
    if state is None or request.uid not in state.pod_uids:
        return False
    held = held_by(state, request.uid)
    return all(key in held for key in _expected(kubelet, state, observation.hidden, request))


def _expected(
    kubelet: Kubelet, state: ManagerState, hidden: Collection[Provider], request: PodRequest
) -> Iterator[str]:
    """The resources that a pod has while it is active. Its ordinary init containers may have released theirs."""
    for c in request.containers:
        if c.reusable:
            continue
        if kubelet.runtime is not None:
            yield f"nri/{c.name}"
        if c.cpus and kubelet.cpu_static and Provider.CPU not in hidden:
            yield f"cpu/{c.name}"
        if c.memory_bytes and kubelet.memory_static and Provider.MEMORY not in hidden:
            yield f"memory/{c.name}"
        for resource, count in c.devices.items():
            known = resource in state.devices.devices and resource not in c.dra_resources
            if count and known and Provider.DEVICE not in hidden:
                yield f"device/{c.name}/{resource}"
