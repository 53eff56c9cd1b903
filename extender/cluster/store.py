"""All nodes in memory: the last report of each, the events since then, and its class.

Rules of this file
- Synchronous and without locks: only the event loop's thread calls it, so what a call reads is of one moment.
- No clock: the time of each call is an argument, in seconds of one monotonic clock. Only `expire` applies timeouts; a
  read returns what follows as of the last `expire` or change.
- An older report never replaces a newer one. A report that is refused changes nothing.
- A node's class follows from its report and its ledger alone (`projection`). Verbs read classes, never records.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

from extender.cluster.class_index import ClassIndex, FiledNodes, NodeView
from extender.cluster.events import PodAssumed, PodEvent, SettledPod, Watching, ignore
from extender.cluster.ledger import NO_PODS
from extender.cluster.node import (
    ClusterFullError,
    Deadlines,
    NodeObjects,
    NodeRecord,
    Observation,
    OutdatedError,
    Restarts,
    UnknownNodeError,
    past_boots_after,
)
from extender.cluster.node_class import UNKNOWN, NodeClass
from extender.cluster.node_projection import Allowance, LateProjection
from extender.cluster.pod_tracker import PodTracker, Timeouts
from extender.cluster.steps import LOOP_STEPS, LOOP_STEPS_OF_ALL
from extender.kubelet.budget import Shared
from extender.kubelet.kubelet import Kubelet
from extender.nri.counts import NriCounts
from extender.replay.counts import Counted
from extender.replay.pod import Pod
from extender.replay.possible_states import NO_STATES

CATCH_UP: Final = 1000
"""Nodes that show a change of the pod watch in one step, which takes 0.1 to 0.2 s."""


class NodeStore:
    """The nodes of the cluster. Reads come first, then changes."""

    def __init__(
        self,
        *,
        stale_after_seconds: float,
        max_nodes: int,
        timeouts: Timeouts | None = None,
        settled: Callable[[SettledPod], None] = ignore,
        awaited_until: float | None = None,
        restarts: Restarts | None = None,
    ) -> None:
        """*settled* is called once for each pod whose admission is over.

        *awaited_until*: nodes without a report are `AWAITED` until then, and `UNKNOWN` later; None: from the start.
        """
        self._max_nodes: Final = max_nodes
        self._timeouts: Final = timeouts or Timeouts()
        self._on_settled: Final = settled
        self._restarts: Final = restarts or Restarts()
        self.restarting: Final = self._restarts.recorded  # for reading only: those that `starting` may return
        self.silent: Final = self._restarts.silent  # for reading only
        self._nodes: Final = FiledNodes(self._view, awaited_until)
        self.classes: Final = self._nodes.classes  # for reading only
        self.await_report: Final = self._nodes.await_report
        self._no_pods: Final = PodTracker("", self._timeouts)
        self._trackers: dict[str, PodTracker] = {}
        """One for each node with a report or an event: a ledger can begin before the first report."""
        self.node_objects: Final = NodeObjects()
        self._deadlines: Final = Deadlines(stale_after_seconds)
        self._watching = Watching.NOT
        self._behind: list[str] = []
        """Nodes that do not show the state of the pod watch yet."""
        self.score_only: Final[set[str]] = set()
        """Nodes whose predictions do not count; for reading only."""
        kubelets: Final = Shared[str, Kubelet]()
        self.kubelet_with, self._shared_kubelet = kubelets.get, kubelets.of
        """The kubelet of an earlier report, by its digest; None if there is none. Any thread may call it."""
        self._later: Callable[[str], bool] | None = None
        self._allowance = Allowance()

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[NodeRecord]:
        """Every node, in no particular order."""
        self._file_all()
        return self._nodes.records()

    @property
    def class_count(self) -> int:
        """Number of node classes."""
        self._file_all()
        return len(self.classes)

    def get(self, name: str) -> NodeRecord | None:
        """The record of one node; None if there is no report of it."""
        return self._nodes.get(name)

    def observation(self, name: str) -> Observation | None:
        """The last report of the node. Cheap: nothing is computed from it."""
        record = self._nodes.as_stored(name)
        return None if record is None else record.observation

    def classes_of(self, names: Iterable[str]) -> list[NodeClass]:
        """The class of each name as of the last `expire`, in order; `UNKNOWN` or `AWAITED` for names never reported."""
        self._file_all()
        return [self._nodes.index[name] for name in names]

    @property
    def index(self) -> ClassIndex:
        """The class of every node as of the last `expire`, by slot."""
        self._file_all()
        return self._nodes.index

    def observe(self, observation: Observation, now: float) -> NodeRecord:
        """Store a report. The current report, sent again, counts as a heartbeat.

        Raises:
            OutdatedError: it is older than the current one, of an earlier boot, or has the same sequence and another
                content.
            ClusterFullError: the node is new, and the limit of nodes is reached.
        """
        held = self._nodes.as_stored(observation.node_name)
        if held and held.observation.counts is None and held.observation.identity == observation.identity:
            is_same = held.observation.version_from_node == observation.version_from_node
            if is_same and not held.observation.has_other_pools:
                return self._touch(held, now)
            return self._put(observation, held.past_boots, now)
        return self._put(observation, past_boots_after(held, observation), now)

    def observe_counts(self, counted: Counted, now: float) -> NodeRecord:
        """Store counts of a node that does not report. Nothing changes if there is a fresh report.

        Raises:
            ClusterFullError: the node is new, and the limit of nodes is reached.
        """
        self.expire(now)
        name = counted.node_name
        held = self._nodes.as_stored(name)
        if held and held.observation.counts is None and self._deadlines.is_fresh(name):
            return self._with_pools(held, counted.counts.nri, now)
        if held and held.observation.counts == counted.counts:
            return self._touch(held, now)
        observation = Observation.of_counts(counted)
        return self._put(observation, held.past_boots if held else (), now)

    def drop_pools(self, name: str, now: float) -> None:
        """Drop the pools that the NRI plugin published: nothing confirms them any longer."""
        held = self._nodes.as_stored(name)
        if held is not None and held.observation.pools is not None:
            self._with_pools(held, None, now)

    def _with_pools(self, held: NodeRecord, pools: NriCounts | None, now: float) -> NodeRecord:
        """The node where the NRI plugin publishes *pools*; see `Observation.beside`."""
        observation = held.observation.beside(pools)
        if observation is not held.observation:
            self._nodes.put(replace(held, observation=observation))
            self._reconcile(held.name, now)
        return self._nodes[held.name]

    def heartbeat(self, name: str, *, boot_id: str, sequence: int, digest: str, now: float) -> None:
        """Record that the current report is still valid.

        Raises:
            UnknownNodeError: there is no report of the node.
            OutdatedError: the current report is another one, or must be read again: it has no kubelet version, and the
                version in the Node object has changed.
        """
        if (held := self._nodes.as_stored(name)) is None:
            raise UnknownNodeError(name)
        if held.observation.identity != (boot_id, sequence, digest):
            raise OutdatedError("this is not the current report", held.observation)
        if held.observation.has_other_pools:
            raise OutdatedError("the NRI plugin publishes other pools than those that are replayed", held.observation)
        version = self.node_objects.version_of(name)
        if held.observation.version_from_node not in (None, version):
            raise OutdatedError(f"the Node object names kubelet {version!r}", held.observation)
        self._touch(held, now)

    def compute_elsewhere(self, later: Callable[[str], bool]) -> None:
        """From now on no read computes a projection that takes long: the node's name is passed to *later*.

        *later* returns whether it has the projection computed, by its `work` and `finish`. Until then the node is
        changing, and no verdict on it is certain. Call this before there are nodes.
        """
        self._later, self._allowance = later, Allowance(LOOP_STEPS)

    def is_changing(self, name: str) -> bool:
        """Whether the node's projection is being computed elsewhere."""
        projection = self.pods_of(name).projection
        if not projection.is_changing:  # most nodes: their class can wait for the next read
            return False
        self._nodes.get(name)
        return projection.is_changing

    def finish(self, name: str, late: LateProjection) -> None:
        """Take the result of the projection's `work`, if it is still that of the node."""
        if name in self._nodes:
            self.pods_of(name).projection.finish(late)
            self._nodes.changed(name)

    def pods_of(self, name: str) -> PodTracker:
        """The pods of a node, for reading; none for an unknown node."""
        return self._trackers.get(name, self._no_pods)

    @property
    def pods_in_flight(self) -> int:
        """Number of pods that are bound or being bound, and that no report shows yet."""
        return sum(len(tracker.ledger.admits) for tracker in self._trackers.values() if tracker.ledger.events)

    def is_admitted(self, name: str, uid: str) -> bool:
        """True if every predicted outcome for the pod in flight is admission, or there is no prediction."""
        return name in self.score_only or self.pods_of(name).projection.is_admitted(uid)

    def survives_sudden_exit(self, name: str, uid: str, now: float) -> Callable[[int], bool] | None:
        """See `NodeProjection.survives_sudden_exit`; None as well where no prediction counts."""
        record = self._nodes.as_stored(name)
        if record is None or name in self.score_only or not record.observation.is_replayable:
            return None
        return self._trackers[name].projection.survives_sudden_exit(uid, now)

    def apply(self, *events: PodEvent, now: float) -> None:
        """Apply events in order. The changed nodes are reconciled once, at the end."""
        changed = list[str]()
        for event in events:
            tracker = self._tracker(event.node_name)
            before, unread = tracker.ledger, len(tracker.unread)
            for settled in tracker.apply(event, now, partial(self._restarts.has_restarted, event.node_name)):
                self._on_settled(settled)
            if tracker.ledger is not before or len(tracker.unread) != unread:
                changed.append(event.node_name)
        for name in dict.fromkeys(changed):
            self._reconcile(name, now)

    def assume(self, name: str, pod: Pod, now: float) -> Callable[[], bool]:
        """Assume a pod that is about to be bound to the node, until `PodForgotten`.

        The result says whether that is safe. False: the kubelet may now refuse this pod, or another one in flight that
        was certain to be admitted, because kubelets do not always admit pods in the order of their bindings; or the
        node is changing. Always True for a score-only node.
        """
        projection = self._tracker(name).projection
        before = projection.now
        self.apply(PodAssumed(name, pod), now=now)
        at_risk = NO_PODS if before is None else before.at_risk
        return lambda: name in self.score_only or projection.is_safe(at_risk)

    def starting(self, now: float) -> Collection[str]:
        """Nodes whose kubelets are stopped or have just started; see `Restarts`."""
        return self._restarts.names(now, lambda name, started_at: self.pods_of(name).lacks_pods(started_at))

    def set_existing(self, names: Iterable[str], now: float) -> None:
        """Every node that the API server has."""
        self.node_objects.set_existing(names, self._nodes, now)

    def drop_node(self, name: str) -> None:
        """The node was deleted. A later node of the same name is another node."""
        self.node_objects.forget(name)
        self._trackers.pop(name, None)
        self.score_only.discard(name)
        self._deadlines.forget(name)
        self._restarts.forget(name)
        self._nodes.drop(name)

    def withdraw(self, name: str, why: str, now: float) -> None:
        """Drop what is assumed of a node that has not reported: it is unknown until its first report."""
        held = self.observation(name)
        if held is not None and held.kubelet is not None and held.kubelet.borrowed:
            problem = {"source": "extender", "path": "", "reason": why, "severity": "warning"}
            facts = {**held.facts, "problems": [problem]}
            self._put(Observation(node_name=name, kubelet=None, state=None, facts=facts), (), now)

    def set_watching(self, watching: Watching, now: float) -> None:
        """Set the state of the pod watch. While it is silent, every node counts as stale.

        The first `CATCH_UP` nodes show it at once, and as many more with each `expire`, so that no call waits for all.
        """
        if watching is not self._watching:
            self._watching, self._behind = watching, list(self._nodes)
            self._catch_up(now)

    def _catch_up(self, now: float) -> None:
        """Let the next nodes show the state of the pod watch."""
        for name in self._behind[-CATCH_UP:]:
            self._reconcile(name, now)
        del self._behind[-CATCH_UP:]

    def set_score_only(self, name: str, now: float, *, score_only: bool) -> NodeRecord:
        """Set whether the node is score-only, because too many predictions for it were wrong.

        Raises:
            UnknownNodeError: there is no report of the node.
        """
        if name not in self._nodes:
            raise UnknownNodeError(name)
        if (name in self.score_only) is not score_only:
            (self.score_only.add if score_only else self.score_only.discard)(name)
            self._reconcile(name, now)
        return self._nodes[name]

    def expire(self, now: float) -> None:
        """Apply expired timeouts; the reads do not. Cost: one step for each node that changes."""
        self._catch_up(now)
        self._nodes.expire(now)
        if self.node_objects.strays or now >= self._deadlines.next:
            for name in self.node_objects.take_strays(now):
                self.drop_node(name)
            for name in self._deadlines.expired(now):
                self._reconcile(name, now)

    def _put(self, observation: Observation, past_boots: tuple[str, ...], now: float) -> NodeRecord:
        """Replace what is known of the node by another report."""
        name = observation.node_name
        before = self._nodes.as_stored(name)
        if before is None and len(self._nodes) >= self._max_nodes:
            raise ClusterFullError(f"reports of {self._max_nodes} nodes are held, and no more are allowed")
        digest, kubelet = observation.kubelet_digest, observation.kubelet
        if digest and kubelet is not None:  # equal kubelets are one object
            shared = self._shared_kubelet(digest, lambda: kubelet)
            observation = observation if shared is kubelet else replace(observation, kubelet=shared)
        if before is not None and before.observation.pools is not None:
            observation = observation.beside(before.observation.pools)
        self.node_objects.note_report(name, now)
        self._nodes.put(NodeRecord(observation=observation, heard_at=now, node_class=UNKNOWN, past_boots=past_boots))
        self._deadlines.note_message(name, now)
        for due in self._restarts.observe(observation, now):
            self._deadlines.add_timeout(name, due)
        self._reconcile(name, now)
        return self._nodes[name]

    def _touch(self, held: NodeRecord, now: float) -> NodeRecord:
        """The current report still holds."""
        was_stale = not self._deadlines.is_fresh(held.name)
        self._nodes.put(replace(held, heard_at=now))
        self._deadlines.note_message(held.name, now)
        if was_stale or self.pods_of(held.name).ledger.events:
            self._reconcile(held.name, now)
        return self._nodes[held.name]

    def _tracker(self, name: str) -> PodTracker:
        if (tracker := self._trackers.get(name)) is None:
            tracker = self._trackers[name] = PodTracker(name, self._timeouts, self._allowance)
        return tracker

    def _reconcile(self, name: str, now: float) -> None:
        """Record that the node has changed: its class is computed at the next read."""
        record = self._nodes.as_stored(name)
        self._restarts.expire(name, now, is_fresh=self._deadlines.is_fresh(name))
        self._nodes.changed(name)
        if record is None or not record.observation.is_replayable:
            self._trim(name, now)
            return
        tracker, is_live = self._tracker(name), self._watching is Watching.LIVE
        for settled in tracker.reconcile(record.observation, record.heard_at, now, watch_is_live=is_live):
            self._on_settled(settled)
        self._await_due(tracker, now)

    def _trim(self, name: str, now: float) -> None:
        """Drop ended events of a node that does not report, and everything of a node that does not exist."""
        tracker = self._trackers.get(name)
        if tracker is None:
            return
        has_pods = tracker.trim(now)
        if not has_pods and name not in self._nodes and not self.node_objects.may_exist(name):
            del self._trackers[name]
        else:
            self._await_due(tracker, now)

    def _await_due(self, tracker: PodTracker, now: float) -> None:
        if (due := tracker.next_due(now)) is not None:
            self._deadlines.add_timeout(tracker.name, due)

    def _file_all(self) -> None:
        """Compute the class of every node that has changed."""
        if self._nodes.has_changed:
            self._allowance.limit(inf if self._later is None else LOOP_STEPS_OF_ALL)
            self._nodes.file_all()
            self._allowance.limit()

    def _view(self, record: NodeRecord) -> NodeView:
        name, state, possible = record.name, record.observation.state, NO_STATES
        if state is not None and record.observation.is_replayable:
            possible = self._tracker(name).projection.possible(state, lambda: bool(self._later and self._later(name)))
        unread, silent_since = tuple(self.pods_of(name).unread), self.silent.get(name)
        is_outdated = not self._deadlines.is_fresh(name) or self._watching is Watching.SILENT
        return NodeView(
            possible=possible,
            stale=is_outdated or bool(unread) or silent_since is not None,
            score_only=name in self.score_only,
            unread=unread,
            silent_since=silent_since,
        )
