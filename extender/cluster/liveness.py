"""What is known of nodes beside their reports: which exist, which are silent, and whose kubelets are not ready.

Rules of this file
- No clock: times are arguments, in seconds of one monotonic clock.
- A kubelet that starts admits the pods of its first list before its pod sources are ready, and until then its managers
  do not release the resources of ended pods. So a pod can be refused although resources seem to be free.
- The end of the first list is not visible, so a kubelet counts as starting for some time after its start, and longer
  while pods that must be in its first list are missing from its reports: the API server may be away. Both times are
  bounded. A kubelet that stays stopped does not exclude its node for ever either: the node controller then marks the
  node as not ready.

Mirrors: kubelet `kubelet.go` syncLoopIteration (sourcesReady), `cm/{cpumanager,memorymanager}` removeStaleState,
`cm/devicemanager` UpdateAllocatedDevices; the same from 1.27 on.
"""

import heapq
from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Iterator
from math import inf
from typing import Final

from extender.cluster.node import Observation

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
    """*start_seconds*: how long a kubelet counts as starting; *down_seconds*: the longest time for that.

    A stopped kubelet counts as stopped for *down_seconds*, at most.
    """

    def __init__(self, *, start_seconds: float = 10.0, down_seconds: float = 50.0) -> None:
        self._start_seconds: Final = start_seconds
        self._down_seconds: Final = down_seconds
        self._until: Final[dict[str, float]] = {}
        self._started: Final[dict[str, float]] = {}
        """Start times of kubelets whose pods may still be missing in reports."""
        self.recorded: Final = ChainMap(self._until, self._started)
        """The nodes that `names` may return; for reading only."""

    def observe(self, observation: Observation, now: float) -> None:
        """A report has arrived. A report without this information counts as one of a running kubelet."""
        name, listens, seconds = observation.node_name, observation.kubelet_listens, observation.kubelet_seconds
        self.forget(name)
        if listens is None or seconds is None:
            return
        until = now - seconds + (self._start_seconds if listens else self._down_seconds)
        if until > now:
            self._until[name] = until
        if listens and seconds < self._down_seconds:
            self._started[name] = now - seconds

    def forget(self, name: str) -> None:
        """The node is gone."""
        self._until.pop(name, None)
        self._started.pop(name, None)

    def has_restarted(self, name: str, since: float) -> bool:
        """Whether the node's kubelet is stopped, or has started after *since*, as far as its last report says."""
        started = self._started.get(name)
        return name in self._until if started is None else started > since

    def names(self, now: float, lacks_pods: Callable[[str, float], bool]) -> Collection[str]:
        """The nodes that should get no pod now. Cost: one step for each recorded kubelet.

        *lacks_pods*: (node, start of its kubelet) -> whether pods of the kubelet's first list are missing.
        """
        for name in [name for name, until in self._until.items() if until <= now]:
            del self._until[name]
        for name in [name for name, at in self._started.items() if at + self._down_seconds <= now]:
            del self._started[name]
        late = [name for name, at in self._started.items() if name not in self._until and lacks_pods(name, at)]
        return self._until.keys() | late if late else self._until.keys()
