"""Nodes whose kubelets are stopped or have just started: what ended pods held there is not free yet.

Laws of this file
- A kubelet that starts admits the pods of its first list before its pod sources are ready, and until then its managers
  release nothing that ended pods hold: a pod that meets this can be refused though there seems to be room.
- Nobody can see when the first list is over, so the time is bounded from the start of the kubelet. A kubelet that stays
  away does not keep its node closed for ever: the node controller then marks the node as not ready.
- No clock: times are arguments, in seconds of one monotonic clock.

Mirrors: kubelet `kubelet.go` syncLoopIteration (sourcesReady), `cm/{cpumanager,memorymanager}` removeStaleState,
`cm/devicemanager` UpdateAllocatedDevices; the same from 1.27 on.
"""

from collections.abc import Collection
from typing import Final

from extender.cluster.node import Observation


class Restarts:
    """*start_seconds*: how long after its start a kubelet counts as starting; *down_seconds*: as stopped, at most."""

    def __init__(self, *, start_seconds: float = 10.0, down_seconds: float = 50.0) -> None:
        self._start_seconds: Final = start_seconds
        self._down_seconds: Final = down_seconds
        self._until: Final[dict[str, float]] = {}

    def observe(self, observation: Observation, now: float) -> None:
        """A report has come. One that does not tell of the kubelet says that nothing is known against it."""
        name, listens, seconds = observation.node_name, observation.kubelet_listens, observation.kubelet_seconds
        self._until.pop(name, None)
        if listens is None or seconds is None:
            return
        until = now - seconds + (self._start_seconds if listens else self._down_seconds)
        if until > now:
            self._until[name] = until

    def forget(self, name: str) -> None:
        """The node is gone."""
        self._until.pop(name, None)

    def names(self, now: float) -> Collection[str]:
        """The nodes that should get no pod now. Cost: one step for each that is known."""
        for name in [name for name, until in self._until.items() if until <= now]:
            del self._until[name]
        return self._until.keys()
