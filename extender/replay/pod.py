"""A pod as the cluster knows it: what a kubelet reads, and what only the others read.

`Pod` adds to the kubelet's `PodSpec` the alignment that the pod demands, what the NRI topology-aware policy reads, and
the devices of DRA drivers. No kubelet reads these.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from extender.kubelet.pod import PodRequest, PodSpec
from extender.nri.objects import NO_METADATA, Metadata
from extender.replay.alignment_demand import NO_DEMAND, Demand


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
    in question; only the pod's own demand covers them. `claims`: NAMESPACE/NAME of all its claims in the order of
    `spec.resourceClaims`, NAMESPACE/TEMPLATE/NAME for one that does not exist yet. `templates`: NAMESPACE/NAME of the
    template of each, "" without one. `weight_bytes`: about how much memory it takes, with what may be parsed of its
    annotations; for those who keep pods.
    """

    created_at: int | None = None
    demand: Demand = NO_DEMAND
    metadata: Metadata = NO_METADATA
    is_node_critical: bool = False
    claimed: Claimed = field(default_factory=dict)
    claims: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
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
