"""A pod as the cluster knows it: what a kubelet reads, and what only the others read.

`Pod` adds to the kubelet's `PodSpec` the alignment that the pod demands, what the NRI topology-aware policy reads, and
the devices of DRA drivers. No kubelet reads these. A demand is by annotations, whatever the policy of the node; the
extender replays where the kubelet would place the pod (`extender.replay.demands`).

`PodSteps` are the merges of its admission, in the order in which the kubelet's providers are asked. Where free amounts
decide an admission, only these and the amounts matter. `cluster.free_table` has the rest.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from extender.kubelet.pod import INT64_MAX, ContainerRequest, PodRequest, PodSpec
from extender.nri.objects import NO_METADATA, Metadata
from extender.replay.free_amounts import Layout


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
        """What is demanded for containers of which nothing is said, and for each of the others."""
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
        """The demand with one NUMA node where that is preferred."""

        def sharper(alignment: AlignmentDemand | None) -> AlignmentDemand | None:
            return AlignmentDemand.SINGLE_NUMA_NODE if alignment is AlignmentDemand.PREFERRED else alignment

        containers = tuple((name, each._replace(alignment=sharper(each.alignment))) for name, each in self.containers)
        return self._replace(alignment=sharper(self.alignment), containers=containers)

    def or_default(self, default: "Demand", names: Collection[str]) -> "Demand":
        """This demand; what it leaves open is taken from *default*. *names*: the names of the pod's containers."""
        if default == NO_DEMAND:
            return self
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


class ClaimedDevice(NamedTuple):
    """A device that a DRA driver gives. `numa`: raw bits of the NUMA nodes that it is local to, 0: not known."""

    numa: int
    is_cpus: bool = False
    """Whether it stands for exclusive CPUs, on this NUMA node."""


Claimed = Mapping[str, tuple[ClaimedDevice, ...]]
"""The devices that DRA drivers have allocated to a pod, by container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod(PodSpec):
    """A pod, as `PodSpec`.

    `created_at`: Unix seconds, None if unknown: a kubelet that starts admits older pods first. `demand`: the alignment
    that the pod demands. `metadata`: the parts that the NRI topology-aware policy reads. `is_node_critical`: its
    priority class is `system-node-critical`. `claimed`: the devices that DRA drivers have allocated to it on the node
    in question; only the pod's own demand covers them. `weight_bytes`: about how much memory it takes, with what may be
    parsed of its annotations; for those who keep pods.
    """

    created_at: int | None = None
    demand: Demand = NO_DEMAND
    metadata: Metadata = NO_METADATA
    is_node_critical: bool = False
    claimed: Claimed = field(default_factory=dict)
    weight_bytes: int = field(default=1500, compare=False)

    @property
    def wants_devices(self) -> bool:
        """Whether a container requests an extended resource."""
        return any("/" in name for container in self.containers for name in container.limits_milli)

    @property
    def has_claims(self) -> bool:
        """Whether a container uses ResourceClaims."""
        return any(container.claims for container in self.containers)

    @property
    def nri_shape(self) -> tuple[object, ...]:
        """What a node with the NRI topology-aware policy reads besides `shape`; labels matter to later pods only."""
        known = self.metadata
        return self.namespace, tuple(sorted(known.annotations.items())), known.excess, self.is_node_critical

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal for pods that differ only in names, for every kubelet and in the alignment that they demand.

        Part of the key of a cached verdict.
        """
        return (
            tuple(
                (
                    c.name,
                    c.kind,
                    _items(c.requests_milli),
                    _items(c.limits_milli),
                    None if c.allocated_milli is None else _items(c.allocated_milli),
                    c.dra_resources,
                )
                for c in self.containers
            ),
            None if self.pod_requests_milli is None else _items(self.pod_requests_milli),
            None if self.pod_limits_milli is None else _items(self.pod_limits_milli),
            self.status_qos,
            self.demand,
            tuple(sorted(self.claimed.items())),
        )

    @property
    def whole_shape(self) -> tuple[object, ...]:
        """Equal for pods that differ only in names, on nodes of every kind."""
        return self.shape, self.nri_shape


def _items(mapping: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(mapping.items()))


def claimed_of(request: PodRequest) -> Claimed:
    """The devices that DRA drivers have allocated to the pod of a request."""
    return request.spec.claimed if isinstance(request.spec, Pod) else {}


class PodStep(NamedTuple):
    """One merge of an admission: what is wanted of each resource, in the order in which providers are asked.

    `stays`: what is taken stays taken while later containers are admitted.
    """

    wanted: tuple[tuple[str, int], ...]
    memory: Mapping[str, int]
    cpus: int
    stays: bool


class PodSteps:
    """The merges of one pod under the rules of a kubelet. Immutable."""

    __slots__ = ("_by_pod", "_cpus_of_containers", "by_container", "cpus", "memory_types")

    def __init__(self, pod: PodRequest) -> None:
        self.by_container: Final = _steps_by_container(pod)
        """The steps in scope container. They say in scope pod as well what the pod takes."""
        self._by_pod = _steps_by_pod(pod, self.by_container)
        self._cpus_of_containers = tuple(c.cpus for c in pod.containers)
        self.cpus = sum(self._cpus_of_containers)
        self.memory_types = frozenset(name for c in pod.containers for name in c.memory_bytes or ())

    def of(self, *, by_pod: bool) -> tuple[PodStep, ...] | None:
        """The merges of the admission in scope pod or container; None where free amounts decide none."""
        return self._by_pod if by_pod else self.by_container

    def takes_whole_cores(self, layout: Layout) -> bool:
        """Whether each container requests a multiple of a core's CPUs."""
        return all(cpus % layout.cpus_per_core == 0 for cpus in self._cpus_of_containers)


def _is_plain(container: ContainerRequest) -> bool:
    """Whether free amounts can decide the container's requests."""
    memory = container.memory_bytes
    return (
        not (container.reusable and (container.cpus or container.devices))
        and not container.dra_resources
        and (memory is None or (len(memory) > 0 and max(memory.values()) <= INT64_MAX))
        and all(container.devices.values())
    )


def _step(cpus: int, memory: Mapping[str, int], devices: Mapping[str, int], *, stays: bool) -> PodStep:
    wanted = [*devices.items(), *([(CPU, cpus)] if cpus else []), *memory.items()]
    return PodStep(tuple(wanted), memory, cpus, stays)


def _steps_by_container(pod: PodRequest) -> tuple[PodStep, ...] | None:
    if pod.pod_level is not None or not all(map(_is_plain, pod.containers)):
        return None
    return tuple(_step(c.cpus, c.memory_bytes or {}, c.devices, stays=not c.reusable) for c in pod.containers)


def _steps_by_pod(pod: PodRequest, by_container: tuple[PodStep, ...] | None) -> tuple[PodStep, ...] | None:
    """The merge in scope pod.

    A NUMA node with room for the totals has room for each container in turn, if all types of memory are in the totals.
    """
    types = {name for c in pod.containers for name in c.memory_bytes or ()}
    if by_container is None or types != pod.total_memory_bytes.keys():
        return None
    return (_step(pod.total_cpus, pod.total_memory_bytes, pod.total_devices, stays=True),)
