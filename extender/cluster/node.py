"""What is known of nodes: their last reports, and which nodes exist, are silent, or have a kubelet that is not ready.

Rules of this file
- No clock: times are arguments, in seconds of one monotonic clock.
- A report has the id of the node's boot and a sequence number within it. Boots are in the order of arrival of their
  first reports. The ids of some past boots are kept, so that a late report of one is recognized.
- A kubelet that starts admits the pods of its first list before its pod sources are ready, and until then its managers
  do not release the resources of ended pods. So a pod can be refused although resources seem to be free.
- Nothing shows when the first list has ended. So a kubelet counts as starting for some time, and longer while its
  reports lack pods that must be in that list, because the API server may be away. Both times are bounded.
- A kubelet that does not answer for longer than a restart takes may end at each start, for instance because it refuses
  its state files. It then still renews its lease each time. While messages of its node say so, the node is stale, and
  gets no pod.

Mirrors: kubelet `kubelet.go` syncLoopIteration (sourcesReady), `cm/{cpumanager,memorymanager}` removeStaleState,
`cm/devicemanager` UpdateAllocatedDevices; the same from 1.27 on.
"""

import heapq
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, Self

from extender.cluster.ledger import NO_PODS
from extender.cluster.node_class import NOTHING_HIDDEN, NodeClass
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Certainty, Provider
from extender.nri.config import PolicyConfig
from extender.nri.counts import NriCounts, are_pools_of
from extender.replay.counts import Counted, Counts
from extender.replay.creation import policy_of
from extender.replay.possible_states import NO_STATES, PossibleStates

REMEMBERED_BOOTS: Final = 8
"""Number of earlier boots of a node whose ids are kept, so that a late report of one is recognized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One report, interpreted.

    `digest` is the SHA-256 of the body it came in. `observed_at` is Unix seconds by the node's clock, for people only.
    `version_from_node`: the kubelet version that the Node object named when the report came, "" if it was not known;
    None if the report itself has it. `kubelet_digest`: SHA-256 of the parts of the report that describe the kubelet, ""
    if they describe none. `facts` are passed on unread, for people: a JSON object.

    `kubelet` and `state` are None if the report is not enough for any verdict; `hidden` names the managers whose state
    is not in it. `contradictory`: the state contradicts itself, so that no verdict is certain. `counts`: all that is
    known, instead of a report. `kubelet_listens`: whether the kubelet answered on its podresources socket when the
    report was made; `kubelet_seconds`: for how long that was so by then. Both are None if it is not known.
    `kubelet_certain`: an older exporter also says that it does not answer if the exporter cannot reach it.

    `pod_uids` are the pods that the report knows of; None if it could not list them. `listed`: those of them that the
    kubelet itself lists. `left`: those that it does not count. They are gone, unless they are alive in the pod watch.
    For the others it is not known whether they are counted. `unlisted`: pods that hold something and are not in the
    list, although it has the UIDs of all its pods.

    `nri_config`: the configuration of the NRI policy, None if it is not known. `pools`: those that the NRI plugin
    publishes. They are kept only if the report does not know what the policy has granted, or if the replayed policy
    would have other pools (`has_other_pools`): then another plugin runs, and the policy is hidden.
    """

    node_name: str
    kubelet: Kubelet | None
    state: ManagerState | None
    boot_id: str = ""
    sequence: int = 0
    digest: str = ""
    observed_at: float = 0.0
    hidden: frozenset[Provider] = NOTHING_HIDDEN
    contradictory: bool = False
    pod_uids: frozenset[str] | None = None
    listed: frozenset[str] = NO_PODS
    left: frozenset[str] = NO_PODS
    unlisted: frozenset[str] = NO_PODS
    version_from_node: str | None = None
    kubelet_listens: bool | None = None
    kubelet_seconds: float | None = None
    kubelet_certain: bool = False
    kubelet_digest: str = ""
    counts: Counts | None = None
    pools: NriCounts | None = None
    has_other_pools: bool = False
    nri_config: PolicyConfig | None = None
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, int, str]:
        """Equal for a report that was sent again."""
        return self.boot_id, self.sequence, self.digest

    @property
    def is_replayable(self) -> bool:
        """Whether the report is enough for verdicts."""
        return self.kubelet is not None and self.state is not None

    @property
    def is_model(self) -> bool:
        """Whether an empty copy may stand for another node: the kubelet is its own, and has no NRI policy."""
        kubelet = self.kubelet
        return self.is_replayable and kubelet is not None and not kubelet.borrowed and kubelet.runtime is None

    def beside(self, pools: NriCounts | None) -> Self:
        """The observation where the NRI plugin publishes *pools*; None: it publishes none, or they are too old."""
        kubelet, state = self.kubelet, self.state
        if (
            pools is not None
            and state is not None
            and kubelet is not None
            and (policy := policy_of(kubelet)) is not None
            and not are_pools_of(policy.setup.tree, pools.pools)
        ):
            return replace(
                self,
                pools=pools,
                hidden=self.hidden | {Provider.RUNTIME},
                has_other_pools=True,
                kubelet=replace(kubelet, runtime=None),
                state=replace(state, runtime=None),
            )
        is_wanted = Provider.RUNTIME in self.hidden and self.pools != pools
        return replace(self, pools=pools) if is_wanted else self

    @classmethod
    def of_counts(cls, counted: Counted) -> Self:
        """The observation of a node that does not report."""
        return cls(node_name=counted.node_name, kubelet=None, state=None, counts=counted.counts, facts=counted.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node at present. `heard_at`: when its last report or heartbeat arrived, seconds of the service's own clock.

    `possible`: the possible states for the next pod: the reported state with the events since then. They equal those of
    the class except for the ids of pods and devices. `past_boots`: earlier boot ids. `unread`: UIDs of pods that may be
    in flight, and whose requests cannot be read. `silent_since`: since when its kubelet has not answered, as seconds of
    the same clock; None: it answers, or may be restarting.
    """

    observation: Observation
    heard_at: float
    node_class: NodeClass
    possible: PossibleStates = NO_STATES
    past_boots: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    silent_since: float | None = None

    @property
    def name(self) -> str:
        """The node's name in the cluster."""
        return self.observation.node_name

    @property
    def certainty(self) -> Certainty:
        """Certainty of verdicts on this node, except for pods with random device choices."""
        found = self.node_class
        if Provider.RUNTIME in found.hidden and not found.stale:
            return Certainty.UNKNOWN if found.pools is None else Certainty.DEGRADED
        if found.kubelet is None:
            if found.counts is not None:
                return Certainty.STALE if found.stale else Certainty.DEGRADED
            return Certainty.UNKNOWN
        if found.stale or found.possible.contradictory:
            return Certainty.STALE if found.stale else Certainty.POSSIBLE
        return found.kubelet.certainty

    @property
    def states(self) -> tuple[ManagerState, ...]:
        """The possible states of the node; empty if no verdict is possible."""
        return self.possible.states

    @property
    def state(self) -> ManagerState | None:
        """The most likely of `states`; None if no verdict is possible."""
        return self.possible.first

    @property
    def kubelet(self) -> Kubelet | None:
        """The kubelet. Nodes with equal kubelets share one object."""
        return self.node_class.kubelet


class OutdatedError(Exception):
    """A report or heartbeat is older than the current report, or contradicts it. The message names both."""

    def __init__(self, reason: str, held: Observation) -> None:
        super().__init__(f"{reason}; the current report is of boot {held.boot_id!r}, sequence {held.sequence}")


class UnknownNodeError(LookupError):
    """There is no report of this node. The only argument is its name."""

    def __str__(self) -> str:
        """The error as a sentence."""
        return f"there is no report of node {str(self.args[0])[:253]!r}"


class ClusterFullError(Exception):
    """A report of a new node, although the limit of nodes is reached."""


def past_boots_after(held: NodeRecord | None, observation: Observation) -> tuple[str, ...]:
    """The past boots of the node after *observation* replaces the report in *held*.

    Raises:
        OutdatedError: it may not replace that report.
    """
    if held is None:
        return ()
    known = held.observation
    if known.counts is not None:
        return held.past_boots
    if observation.boot_id in held.past_boots:
        raise OutdatedError(f"boot {observation.boot_id!r} is over", known)
    if observation.boot_id != known.boot_id:
        return (*held.past_boots, known.boot_id)[-REMEMBERED_BOOTS:]
    if observation.sequence == known.sequence:
        raise OutdatedError(f"sequence {observation.sequence} was used for another report", known)
    if observation.sequence < known.sequence:
        raise OutdatedError(f"sequence {observation.sequence} is older", known)
    return held.past_boots


STRAY_SECONDS: Final = 60.0
"""How long a node is kept that has reported and is not in the API server: its watch can be late."""


class NodeObjects:
    """The nodes of the API server, as the watch of nodes shows them. The rules of `store` hold here too."""

    def __init__(self) -> None:
        self._existing: frozenset[str] | None = None
        self._versions: dict[str, str] = {}
        self.strays: Final[dict[str, float]] = {}
        """Nodes that have reported and that the API server does not have, and since when. For reading only."""

    def set_existing(self, names: Iterable[str], reported: Iterable[str], now: float) -> None:
        """Every node that the API server has. *reported*: every node with a report."""
        before, self._existing = self._existing, frozenset(names)
        if before is None:
            self.strays.update(dict.fromkeys(set(reported) - self._existing, now))

    def may_exist(self, name: str) -> bool:
        """False only for a node that certainly does not exist in the API server."""
        return self._existing is None or name in self._existing

    def see_version(self, name: str, version: str) -> None:
        """Set the kubelet version in the node's API object; "" while the kubelet has not registered."""
        self._versions[name] = version

    def version_of(self, name: str) -> str:
        """The kubelet version in the node's API object; "" if unknown."""
        return self._versions.get(name, "")

    def note_report(self, name: str, now: float) -> None:
        """There is a report of the node."""
        if not self.may_exist(name):
            self.strays.setdefault(name, now)

    def take_strays(self, now: float) -> Iterator[str]:
        """Nodes that have reported and that the API server has not had for a while. Each is returned once."""
        while self.strays:
            name, since = next(iter(self.strays.items()))
            if now - since < STRAY_SECONDS:
                return
            del self.strays[name]
            if not self.may_exist(name):
                yield name

    def forget(self, name: str) -> None:
        """The node was deleted. A later node of the same name is another node."""
        self._versions.pop(name, None)
        self.strays.pop(name, None)


class Deadlines:
    """The deadlines of all nodes. *stale_after_seconds*: a node is stale if it was silent for longer."""

    def __init__(self, stale_after_seconds: float) -> None:
        self._stale_after: Final = stale_after_seconds
        self._heard_at: dict[str, float] = {}
        """The last message of each node that is not stale. The node that was silent for longest is the first."""
        self._due: list[tuple[float, str]] = []
        """Heap of timeouts."""
        self.next: float = inf
        """`expired` returns no node before this time; for reading only."""

    def is_fresh(self, name: str) -> bool:
        """Whether the node is known and not stale, as of the last `expired`."""
        return name in self._heard_at

    def note_message(self, name: str, now: float) -> None:
        """The node has sent a message."""
        self._heard_at.pop(name, None)
        self._heard_at[name] = now
        self.next = min(self.next, now + self._stale_after)

    def add_timeout(self, name: str, due: float) -> None:
        """A timeout changes the node at *due*."""
        heapq.heappush(self._due, (due, name))
        self.next = min(self.next, due)

    def forget(self, name: str) -> None:
        """The node no longer exists. `expired` may still return its name."""
        self._heard_at.pop(name, None)

    def expired(self, now: float) -> set[str]:
        """The nodes that have changed since the last call. Cost: one step for each deadline that has passed."""
        changed = set()
        while self._due and self._due[0][0] <= now:
            changed.add(heapq.heappop(self._due)[1])
        while self._heard_at:
            name, heard_at = next(iter(self._heard_at.items()))
            if now - heard_at <= self._stale_after:
                break
            del self._heard_at[name]
            changed.add(name)
        oldest = next(iter(self._heard_at.values()), inf)
        self.next = min(oldest + self._stale_after, self._due[0][0] if self._due else inf)
        return changed


class Restarts:
    """Which kubelets are stopped, or have just started, and which have not answered for longer than a restart takes.

    A kubelet has started when it has answered for *start_seconds*. One that stops before that goes on being stopped:
    it may end at every start. One that has not started after *down_seconds* is silent, until a report says otherwise
    or the node sends no message any longer. Pods of its first list may be missing in reports for *down_seconds*.
    """

    def __init__(self, *, start_seconds: float = 10.0, down_seconds: float = 50.0) -> None:
        self._start_seconds: Final = start_seconds
        self._down_seconds: Final = down_seconds
        self._down: Final[dict[str, tuple[float, float]]] = {}
        """Since when each kubelet has not answered (inf: it answers), and until when it is down (inf: unknown)."""
        self._started: Final[dict[str, float]] = {}
        """Start times of kubelets whose pods may still be missing in reports."""
        self.recorded: Final = ChainMap[str, Any](self._down, self._started)
        """The nodes that `names` may return; for reading only."""
        self.silent: Final[dict[str, float]] = {}
        """Since when each silent kubelet has not answered, as of the last `expire`; for reading only."""

    def observe(self, observation: Observation, now: float) -> Iterator[float]:
        """A report has arrived. A report without this information counts as one of a running kubelet.

        Returns when `expire` is due.
        """
        name, listens, seconds = observation.node_name, observation.kubelet_listens, observation.kubelet_seconds
        since, until = self._down.get(name, (inf, now))
        self.forget(name)
        if listens is None or seconds is None:
            return
        is_down = observation.kubelet_certain and not listens
        since = min(since if now < until else inf, now - seconds if is_down else inf)
        until = inf if is_down else now - seconds + (self._start_seconds if listens else self._down_seconds)
        if now < until:
            self._down[name] = since, until
            yield from (due for due in (since + self._down_seconds, until) if now < due < inf)
        if listens and seconds < self._down_seconds:
            self._started[name] = now - seconds

    def expire(self, name: str, now: float, *, is_fresh: bool) -> None:
        """Apply the time to one node. *is_fresh*: it still sends messages."""
        since, until = self._down.get(name, (inf, now))
        self.silent.pop(name, None)
        if is_fresh and since + self._down_seconds <= now < until:
            self.silent[name] = since

    def forget(self, name: str) -> None:
        """The node is gone."""
        self._down.pop(name, None)
        self._started.pop(name, None)
        self.silent.pop(name, None)

    def has_restarted(self, name: str, since: float) -> bool:
        """Whether the node's kubelet is stopped, or has started after *since*, as far as its last report says."""
        started = self._started.get(name)
        return name in self._down if started is None else started > since

    def names(self, now: float, lacks_pods: Callable[[str, float], bool]) -> Collection[str]:
        """The nodes that should get no pod now. Cost: one step for each recorded kubelet.

        *lacks_pods*: (node, start of its kubelet) -> whether pods of the kubelet's first list are missing.
        """
        for name in [name for name, (_, until) in self._down.items() if until <= now]:
            del self._down[name]
        for name in [name for name, at in self._started.items() if at + self._down_seconds <= now]:
            del self._started[name]
        down = {name for name, (since, _) in self._down.items() if now < since + self._down_seconds}
        late = {name for name, at in self._started.items() if lacks_pods(name, at)}
        return down | late | self.silent.keys()
