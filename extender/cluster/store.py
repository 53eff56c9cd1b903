"""All nodes, in memory: the last report of each, and what has happened since.

Laws of this file
- Synchronous and without locks: only the event loop's thread calls it, so every picture taken of it is consistent.
- No clock: the time of each call is an argument, in seconds of one monotonic clock.
- An older report never replaces a newer one; a report that is refused changes nothing.
- What the next pod would meet follows from the report and the node's ledger alone (`following`). It is computed when
  somebody looks at the node after one of them has changed, and is the same as if it were computed at every change.
- `_class_of` always mirrors `_nodes`: verbs look at classes, never at records.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from typing import Final

from extender.cluster.in_flight import InFlight, Settled, Timeouts, ignore
from extender.cluster.ledger import Ledger
from extender.cluster.node import REMEMBERED_BOOTS, NodeRecord, Observation
from extender.cluster.node_class import AWAITED, UNKNOWN, ClassTable, NodeClass
from extender.cluster.projection import MAX_END_ADMISSIONS
from extender.cluster.restarts import Restarts
from extender.cluster.snapshot import ClassIndex, ClusterSnapshot
from extender.replay.counts import Counted
from extender.replay.pod import Pod
from extender.replay.rules import Rules


class OutdatedError(Exception):
    """What was said is older than what is held, or contradicts it; the held report's order is in the message."""

    def __init__(self, reason: str, held: Observation) -> None:
        super().__init__(f"{reason}; held is boot {held.boot_id!r}, sequence {held.sequence}")


class UnknownNodeError(LookupError):
    """No report of this node is held."""


class ClusterFullError(Exception):
    """A report of one more node than the service is set up for."""


class Watching(Enum):
    """What is known of the pods on nodes, beside reports."""

    NOT = "not"
    """Nobody watches pods: only what we bind ourselves."""
    LIVE = "live"
    """Every pod, as the API server has it."""
    SILENT = "silent"
    """The watch has gone silent: pods may have come and gone."""


class NodeStore:
    """The picture of the cluster that verbs look at."""

    def __init__(
        self,
        *,
        stale_after_seconds: float,
        max_nodes: int,
        timeouts: Timeouts | None = None,
        settled: Callable[[Settled], None] = ignore,
        awaited_until: float | None = None,
        restarts: Restarts | None = None,
    ) -> None:
        """*awaited_until*: when a node not heard of stops being `AWAITED` and is `UNKNOWN`; None: from the start."""
        self._stale_after: Final = stale_after_seconds
        self._max_nodes: Final = max_nodes
        self._nodes: dict[str, NodeRecord] = {}
        self._class_of: Final = ClassIndex(UNKNOWN if awaited_until is None else AWAITED)
        self._awaited_until = awaited_until
        self._classes: Final = ClassTable()
        self._fresh: dict[str, None] = {}
        """Names of nodes that are not stale, the one not heard of for longest first."""
        self._in_flight: Final = InFlight(timeouts or Timeouts(), settled)
        self._restarts: Final = restarts or Restarts()
        self._watching = Watching.NOT
        self._distrusted: set[str] = set()
        self._existing: frozenset[str] | None = None
        self._versions: dict[str, str] = {}
        self._batched: set[str] | None = None
        self._unfiled: dict[str, None] = {}
        """Nodes of which something has changed since they were filed under their class."""

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[NodeRecord]:
        """Every node, in no particular order."""
        self._file_all()
        return iter(self._nodes.values())

    @property
    def class_count(self) -> int:
        """How many different nodes there are, as far as verdicts go."""
        self._file_all()
        return len(self._classes)

    @property
    def rules(self) -> Collection[Rules]:
        """The rule sets of all known kubelets."""
        return self._classes.rules

    def get(self, name: str) -> NodeRecord | None:
        """What is known of one node; None if no report of it is held."""
        self._file(name)
        return self._nodes.get(name)

    def observation(self, name: str) -> Observation | None:
        """The last report of the node. Cheap: what follows from it is not computed."""
        record = self._nodes.get(name)
        return None if record is None else record.observation

    def _filed(self, name: str) -> NodeRecord:
        self._file(name)
        return self._nodes[name]

    def classes_of(self, names: Iterable[str]) -> list[NodeClass]:
        """The class of each name as of the last `expire`, in order; `UNKNOWN` or `AWAITED` for names never reported."""
        self._file_all()
        return [self._class_of[name] for name in names]

    def snapshot(self) -> ClusterSnapshot:
        """The class of every node as of the last `expire`. Cost: a copy, if a node has changed its class."""
        self._file_all()
        return self._class_of.snapshot()

    def changed_since(self, generation: int) -> Sequence[str] | None:
        """The nodes whose class has changed since the snapshot of *generation*; None: more changed than are kept."""
        return self._class_of.changed_since(generation)

    def observe(self, observation: Observation, now: float) -> NodeRecord:
        """Take a report in. The very report that is held counts as a heartbeat.

        Raises:
            OutdatedError: it is older than the one held, of an earlier boot, or has the held one's order and another
                content.
            ClusterFullError: the node is new and there is no room for it.
        """
        held = self._nodes.get(observation.node_name)
        if held is None:
            self._check_room()
            past_boots: tuple[str, ...] = ()
        elif held.observation.counts is not None:
            past_boots = held.past_boots
        else:
            if _is_same(held.observation, observation):
                if held.observation.version_from_node == observation.version_from_node:
                    return self._touch(held, now)
                return self._put(observation, held.past_boots, now)
            _check_newer(held, observation)
            past_boots = held.past_boots
            if observation.boot_id != held.observation.boot_id:
                past_boots = (*past_boots, held.observation.boot_id)[-REMEMBERED_BOOTS:]
        return self._put(observation, past_boots, now)

    def observe_counts(self, counted: Counted, now: float) -> NodeRecord:
        """Take in all that is known of a node that does not report: nothing changes where a fresh report is held.

        Raises:
            ClusterFullError: the node is new and there is no room for it.
        """
        self.expire(now)
        name = counted.node_name
        held = self._nodes.get(name)
        if held is None:
            self._check_room()
        elif held.observation.counts is None and name in self._fresh:
            return held
        elif held.observation.counts == counted.counts:
            return self._touch(held, now)
        observation = Observation(
            node_name=name,
            boot_id="",
            sequence=0,
            digest="",
            observed_at=0.0,
            kubelet=None,
            state=None,
            counts=counted.counts,
            facts=counted.facts,
        )
        return self._put(observation, held.past_boots if held else (), now)

    def heartbeat(self, name: str, *, boot_id: str, sequence: int, digest: str, now: float) -> None:
        """Take note that the report held is still true.

        Raises:
            UnknownNodeError: no report of the node is held.
            OutdatedError: another report is held, or it must be read again: it did not tell the kubelet's version, and
                the Node object now tells another one than it did.
        """
        held = self._nodes.get(name)
        if held is None:
            raise UnknownNodeError(name)
        if (held.observation.boot_id, held.observation.sequence, held.observation.digest) != (
            boot_id,
            sequence,
            digest,
        ):
            raise OutdatedError("this is not the report that is held", held.observation)
        if held.observation.version_from_node not in (None, self.version_of(name)):
            raise OutdatedError(f"the Node object names kubelet {self.version_of(name)!r}", held.observation)
        self._touch(held, now)

    @property
    def pods_in_flight(self) -> int:
        """Pods that are bound or about to be, and that no report shows yet."""
        return len(self._in_flight)

    @property
    def distrusted_count(self) -> int:
        """Nodes whose verdicts only rank."""
        return len(self._distrusted)

    def ledger(self, name: str) -> Ledger:
        """What has happened on a node since its report; empty for a node that nothing is known of."""
        return self._in_flight.ledger(name)

    @contextmanager
    def batch(self, now: float) -> Iterator[None]:
        """Bring ledgers and reports of changed nodes together once, at the end. Nothing may look at them before."""
        self._batched = set()
        try:
            yield
        finally:
            changed, self._batched = self._batched, None
            for name in changed:
                self._again(name, now)

    def assume(self, name: str, pod: Pod, now: float) -> bool:
        """We are about to bind the pod to the node: from now on its room is taken.

        False if that would endanger another pod on its way there, or this one: a kubelet that is told of several pods
        at once does not admit them in the order of their bindings. `forget` then takes it back. Always True for a node
        whose verdicts only rank.
        """
        refused_before = self._in_flight.refused(name)
        if self._in_flight.assume(name, pod, now):
            self._again(name, now)
        return name in self._distrusted or self._in_flight.is_safe(name, refused_before)

    def is_admitted(self, name: str, uid: str) -> bool:
        """Whether all that is foretold of a pod on its way is that it is admitted; True if nothing is."""
        return name in self._distrusted or self._in_flight.is_admitted(name, uid)

    def survives_sudden_exit(
        self, name: str, uid: str, now: float, max_admissions: int = MAX_END_ADMISSIONS
    ) -> Callable[[], bool] | None:
        """Tells whether a pod on its way is admitted whichever one other pod has ended.

        None: that is sure already, or nothing is predicted of the pod. A pure question about the present, which takes
        long on nodes with many pods: any thread may ask it.
        """
        record = self._nodes.get(name)
        if record is None or name in self._distrusted:
            return None
        return self._in_flight.survives_sudden_exit(record.observation, uid, now, max_admissions)

    def may_be_gone(self, name: str, now: float) -> frozenset[str]:
        """Pods of the node that its kubelet may count no more, and may still count; all of them are leaving."""
        return self._in_flight.may_be_gone(name, now)

    def forget(self, name: str, uid: str, now: float) -> None:
        """Our binding failed for certain: its room is free again."""
        if self._in_flight.forget(name, uid):
            self._again(name, now)

    def doubt(self, name: str, uid: str, now: float) -> None:
        """Nobody knows whether our binding has come to pass, or will."""
        if self._in_flight.doubt(name, uid):
            self._again(name, now)

    def see_pod(self, name: str, pod: Pod, now: float, *, started: bool, ordered: bool = True) -> None:
        """The API server has the pod on the node, alive; *started*: its kubelet has admitted it.

        *ordered*: this is told in the order of the bindings, not by a list.
        """
        if self._in_flight.see(name, pod, now, started=started, ordered=ordered):
            self._again(name, now)

    def see_refusal(self, name: str, uid: str, reason: str, now: float) -> None:
        """The kubelet has refused the pod, with this status reason."""
        if self._in_flight.refuse(name, uid, reason, now):
            self._again(name, now)

    def see_leaving(self, name: str, uid: str, now: float) -> None:
        """The pod's deletion was asked for: it may be gone at any moment."""
        if self._in_flight.ask_to_leave(name, uid):
            self._again(name, now)

    def see_finish(self, name: str, uid: str, now: float) -> None:
        """The pod is finished; its kubelet has yet to tear it down."""
        if self._in_flight.finish(name, uid, now):
            self._again(name, now)

    def see_end(self, name: str, uid: str, now: float) -> None:
        """The pod no longer exists."""
        if self._in_flight.gone(name, uid, now):
            self._again(name, now)

    def starting(self, now: float) -> Collection[str]:
        """Nodes whose kubelets are stopped or have just started; see `restarts`."""
        return self._restarts.names(now, self._in_flight.lacks_pods)

    def set_existing(self, names: Iterable[str]) -> None:
        """Every node that the API server has."""
        self._existing = frozenset(names)

    def may_exist(self, name: str) -> bool:
        """False only for a node that the API server is known not to have."""
        return self._existing is None or name in self._existing

    def see_version(self, name: str, version: str) -> None:
        """The node's API object names this kubelet version; "" while the kubelet has not registered."""
        self._versions[name] = version

    def version_of(self, name: str) -> str:
        """The kubelet version that the node's API object names; "" if it is not known."""
        return self._versions.get(name, "")

    def drop_node(self, name: str) -> None:
        """The node was deleted. What comes back under its name is another one."""
        self._versions.pop(name, None)
        self._in_flight.drop(name)
        self._distrusted.discard(name)
        self._fresh.pop(name, None)
        self._restarts.forget(name)
        self._unfiled.pop(name, None)
        if self._nodes.pop(name, None) is not None:
            self._classes.drop(self._class_of.remove(name))

    def set_watching(self, watching: Watching, now: float) -> None:
        """How much is known of pods from now on. While the watch is silent every node counts as stale."""
        if watching is self._watching:
            return
        self._watching = watching
        self._in_flight.watching = watching is Watching.LIVE
        for name in list(self._nodes):
            self._again(name, now)

    def set_distrusted(self, name: str, now: float, *, distrusted: bool) -> NodeRecord:
        """Whether the node's verdicts only rank, because its kubelet did other than foretold too often.

        Raises:
            UnknownNodeError: no report of the node is held.
        """
        if name not in self._nodes:
            raise UnknownNodeError(name)
        if (name in self._distrusted) is not distrusted:
            (self._distrusted.add if distrusted else self._distrusted.discard)(name)
            self._again(name, now)
        return self._filed(name)

    def expire(self, now: float) -> None:
        """Apply expired timeouts; the reads do not. Cost: one step for each node that changes."""
        if self._awaited_until is not None and now >= self._awaited_until:
            self._awaited_until = None
            self._class_of.set_unknown(UNKNOWN)
        for name in self._in_flight.due(now):
            self._again(name, now)
        while self._fresh:
            name = next(iter(self._fresh))
            record = self._nodes[name]
            if now - record.heard_at <= self._stale_after:
                return
            del self._fresh[name]
            self._update(record, now)

    def is_stale(self, record: NodeRecord) -> bool:
        """Whether the node was not heard of for too long, as of the last `expire`."""
        return record.name not in self._fresh

    def _check_room(self) -> None:
        if len(self._nodes) >= self._max_nodes:
            raise ClusterFullError(f"reports of {self._max_nodes} nodes are held, and no more are allowed")

    def _put(self, observation: Observation, past_boots: tuple[str, ...], now: float) -> NodeRecord:
        record = NodeRecord(
            observation=observation,
            heard_at=now,
            state=observation.state,
            node_class=UNKNOWN,
            past_boots=past_boots,
        )
        self._renew(observation.node_name)
        self._restarts.observe(observation, now)
        self._update(record, now)
        return self._filed(observation.node_name)

    def _touch(self, held: NodeRecord, now: float) -> NodeRecord:
        record = replace(held, heard_at=now)
        was_stale = self.is_stale(held)
        self._renew(held.name)
        if was_stale or self._in_flight.ledger(held.name).events:
            self._update(record, now)
        else:
            self._nodes[held.name] = record
        return self._filed(held.name)

    def _renew(self, name: str) -> None:
        self._fresh.pop(name, None)
        self._fresh[name] = None

    def _again(self, name: str, now: float) -> None:
        if self._batched is not None:
            self._batched.add(name)
            return
        record = self._nodes.get(name)
        if record is not None:
            self._update(record, now)

    def _update(self, record: NodeRecord, now: float) -> None:
        """Something of the node has changed: what follows is computed when somebody looks at it."""
        self._in_flight.update(record.observation, record.heard_at, now)
        self._nodes[record.name] = record
        self._unfiled[record.name] = None

    def _file_all(self) -> None:
        """File every node that has changed: the picture is whole then."""
        while self._unfiled:
            self._file(next(iter(self._unfiled)))

    def _file(self, name: str) -> None:
        """File the node under its class, if it has changed; the class it was filed under before loses a holder."""
        if name not in self._unfiled:
            return
        del self._unfiled[name]
        record = self._nodes[name]
        observation = record.observation
        following = self._in_flight.follow(observation)
        node_class = self._classes.hold(
            observation.kubelet,
            None if following is None else following.states[0],
            observation.hidden,
            stale=name not in self._fresh or self._watching is Watching.SILENT,
            others=() if following is None else following.states[1:],
            complete=following is None or following.complete,
            distrusted=name in self._distrusted,
            counts=observation.counts,
        )
        before = self._class_of.put(name, node_class)
        if before is not None:
            self._classes.drop(before)
        self._nodes[name] = replace(
            record,
            node_class=node_class,
            observation=replace(observation, kubelet=node_class.kubelet),
            state=None if following is None else following.states[0],
            others=() if following is None else following.states[1:],
        )


def _is_same(held: Observation, observation: Observation) -> bool:
    return (held.boot_id, held.sequence, held.digest) == (
        observation.boot_id,
        observation.sequence,
        observation.digest,
    )


def _check_newer(held: NodeRecord, observation: Observation) -> None:
    known = held.observation
    if observation.boot_id in held.past_boots:
        raise OutdatedError(f"boot {observation.boot_id!r} is over", known)
    if observation.boot_id != known.boot_id or observation.sequence > known.sequence:
        return
    if observation.sequence == known.sequence:
        raise OutdatedError(f"sequence {observation.sequence} was used for another report", known)
    raise OutdatedError(f"sequence {observation.sequence} is older", known)
