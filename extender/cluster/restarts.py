"""Nodes whose kubelets are stopped or have just started: resources of ended pods are not free there yet.

Rules of this file
- A kubelet that starts admits the pods of its first list before its pod sources are ready, and until then its managers
  do not release the resources of ended pods. So a pod can be refused although resources seem to be free.
- The end of the first list is not visible, so a kubelet counts as starting for some time after its start, and longer
  while pods that must be in its first list are missing from its reports: the API server may be away. Both times are
  bounded. A kubelet that stays stopped does not exclude its node for ever either: the node controller then marks the
  node as not ready.
- No clock: times are arguments, in seconds of one monotonic clock.

Mirrors: kubelet `kubelet.go` syncLoopIteration (sourcesReady), `cm/{cpumanager,memorymanager}` removeStaleState,
`cm/devicemanager` UpdateAllocatedDevices; the same from 1.27 on.
"""

from collections.abc import Callable, Collection
from typing import Final

from extender.cluster.node import Observation


class Restarts:
    """*start_seconds*: how long after its start a kubelet counts as starting, *down_seconds*: at most.

    A stopped kubelet counts as stopped for *down_seconds*, at most.
    """

    def __init__(self, *, start_seconds: float = 10.0, down_seconds: float = 50.0) -> None:
        self._start_seconds: Final = start_seconds
        self._down_seconds: Final = down_seconds
        self._until: Final[dict[str, float]] = {}
        self._started: Final[dict[str, float]] = {}
        """Start times of kubelets whose pods may still be missing in reports."""

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

        *lacks_pods*: whether pods are missing that must be in the first list of a node's kubelet, started at this time.
        """
        for name in [name for name, until in self._until.items() if until <= now]:
            del self._until[name]
        for name in [name for name, at in self._started.items() if at + self._down_seconds <= now]:
            del self._started[name]
        late = [name for name, at in self._started.items() if name not in self._until and lacks_pods(name, at)]
        return self._until.keys() | late if late else self._until.keys()
