"""The alignment that a pod demands by its annotations, whatever the policy of the node.

The kubelet knows nothing of it. The extender replays where the kubelet would place the pod (`extender.replay.demands`).
"""

from enum import StrEnum
from typing import Final, NamedTuple


class AlignmentDemand(StrEnum):
    """`single-numa-node` and `same-socket` must be met. `preferred` only changes scores."""

    SINGLE_NUMA_NODE = "single-numa-node"
    SAME_SOCKET = "same-socket"
    PREFERRED = "preferred"
    NONE = "none"


class DemandScope(StrEnum):
    """Whether each container must be aligned by itself, or all containers together."""

    CONTAINER = "container"
    POD = "pod"


class MemoryDemand(StrEnum):
    """`no-remote-memory`: all memory of a container is on NUMA nodes of its exclusive CPUs."""

    NO_REMOTE_MEMORY = "no-remote-memory"
    NONE = "none"


class Demand(NamedTuple):
    """A field is None if the pod says nothing. `fault`: what is not understood, as part of a sentence.

    A tuple, because it is a part of every cached pod shape.
    """

    alignment: AlignmentDemand | None = None
    scope: DemandScope | None = None
    memory: MemoryDemand | None = None
    fault: str = ""

    @property
    def is_required(self) -> bool:
        """Whether there are placements that the pod does not accept. True for a demand that is not understood."""
        return bool(
            self.fault
            or self.alignment in (AlignmentDemand.SINGLE_NUMA_NODE, AlignmentDemand.SAME_SOCKET)
            or self.memory is MemoryDemand.NO_REMOTE_MEMORY
        )

    def or_default(self, default: "Demand") -> "Demand":
        """This demand; what it leaves open is taken from *default*."""
        if default == NO_DEMAND:
            return self
        return Demand(
            self.alignment or default.alignment,
            self.scope or default.scope,
            self.memory or default.memory,
            self.fault or default.fault,
        )


NO_DEMAND: Final = Demand()
