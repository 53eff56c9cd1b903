"""The alignment that a pod demands by its annotations, or its namespace by its labels, whatever the policy of the node.

No kubelet reads a demand; `replay.demands` says whether a replayed placement meets it. A pod without a demand has
`NO_DEMAND`, and callers test for it first.
"""

from collections.abc import Collection
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
    """`no-remote-memory`: the memory and the exclusive CPUs of a container are on the same NUMA nodes."""

    NO_REMOTE_MEMORY = "no-remote-memory"
    NONE = "none"


CPU: Final = "cpu"
MEMORY: Final = "memory"
DEVICES: Final = "devices"
"""Words for resources that must be together. `devices`: all of them; one kind is named by its resource."""
_MUST: Final = (AlignmentDemand.SINGLE_NUMA_NODE, AlignmentDemand.SAME_SOCKET)


class ContainerDemand(NamedTuple):
    """What is demanded for one container. A field is None if nothing is said.

    `resources`: those that `alignment` is about, sorted; None: everything that the container gets.
    """

    alignment: AlignmentDemand | None = None
    memory: MemoryDemand | None = None
    resources: tuple[str, ...] | None = None

    @property
    def is_required(self) -> bool:
        """Whether there are placements that it does not accept."""
        return self.alignment in _MUST or self.memory is MemoryDemand.NO_REMOTE_MEMORY

    def or_default(self, default: "ContainerDemand") -> "ContainerDemand":
        """This demand; what it leaves open is taken from *default*."""
        return ContainerDemand(
            self.alignment or default.alignment,
            self.memory or default.memory,
            default.resources if self.resources is None else self.resources,
        )


NOTHING_SAID: Final = ContainerDemand()


class Demand(NamedTuple):
    """A field is None if the pod says nothing. `fault`: what is not understood, as part of a sentence.

    `resources`: see `ContainerDemand`. `containers`: what is said for single containers, by name, sorted. A tuple,
    because it is a part of every cached pod shape.
    """

    alignment: AlignmentDemand | None = None
    scope: DemandScope | None = None
    memory: MemoryDemand | None = None
    fault: str = ""
    resources: tuple[str, ...] | None = None
    containers: tuple[tuple[str, ContainerDemand], ...] = ()

    @property
    def is_required(self) -> bool:
        """Whether there are placements that the pod does not accept. True for a demand that is not understood."""
        return bool(self.fault) or any(each.is_required for each in self.parts)

    @property
    def parts(self) -> list[ContainerDemand]:
        """What is demanded for containers without keys of their own, and for each container that has some."""
        return [self.of(), *(self.of(name) for name, _ in self.containers)]

    def of(self, container: str = "") -> ContainerDemand:
        """What is demanded for the container, by its own keys and those of the pod; "": by those of the pod.

        Resources without an alignment must be on one NUMA node.
        """
        whole = ContainerDemand(self.alignment, self.memory, self.resources)
        own = dict(self.containers).get(container) if self.containers else None
        wanted = whole if own is None else own.or_default(whole)
        if wanted.alignment is None and wanted.resources is not None:
            return wanted._replace(alignment=AlignmentDemand.SINGLE_NUMA_NODE)
        return wanted

    def is_own(self, container: str) -> bool:
        """Whether something is said for this container."""
        return any(name == container for name, _ in self.containers)

    def with_preferences(self) -> "Demand":
        """The demand in which one NUMA node is required where it was preferred."""

        def sharper(alignment: AlignmentDemand | None) -> AlignmentDemand | None:
            return AlignmentDemand.SINGLE_NUMA_NODE if alignment is AlignmentDemand.PREFERRED else alignment

        containers = tuple((name, each._replace(alignment=sharper(each.alignment))) for name, each in self.containers)
        return self._replace(alignment=sharper(self.alignment), containers=containers)

    def or_default(self, default: "Demand", names: Collection[str]) -> "Demand":
        """This demand, with *default* for the parts that it leaves open. *names*: the names of the pod's containers."""
        own, other = dict(self.containers), dict(default.containers)
        containers = {
            name: own.get(name, NOTHING_SAID).or_default(other.get(name, NOTHING_SAID))
            for name in sorted(own.keys() | (other.keys() & set(names)))
        }
        return Demand(
            self.alignment or default.alignment,
            self.scope or default.scope,
            self.memory or default.memory,
            self.fault or default.fault,
            default.resources if self.resources is None else self.resources,
            tuple(containers.items()),
        )


NO_DEMAND: Final = Demand()
