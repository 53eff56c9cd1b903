"""Pools of nodes, and an empty node of each.

A pool is the set of nodes with one value of a label of the setting `pool_labels`, such as a node group of a cloud. The
nodes of a NodePool of Karpenter have many instance types, so that each of them is a pool of its own.

Rules of this file
- The empty node of a pool is a node that has reported, with nothing allocated. A pool without such a node has the
  profiles of the setting `node_profiles` whose labels name the pool.
- Nodes of one pool may differ, and a new node may be like any of them. So a pool takes a pod only if the empty copies
  of its newest `MAX_COMPARED` nodes that have reported all take it.
- DaemonSet pods are not placed on the empty node. Cluster Autoscaler itself counts what they request.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

from extender.cluster.node import Observation
from extender.cluster.store import NodeStore
from extender.features.profiles import NodeProfile
from extender.kube.changes import Batch, Gone
from extender.kube.nodes import NodeObject
from extender.questions.capacity import Capacity
from extender.questions.node_context import LookUp, NodeContext, Subject, empty_node
from extender.scheduling.judge import Judge
from extender.wire.placement_rules import PlacementRules
from extender.wire.workloads import PodWorkload

HOSTNAME: Final = "kubernetes.io/hostname"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
KARPENTER_POOL: Final = "karpenter.sh/nodepool"
POOL_LABELS: Final = (
    "eks.amazonaws.com/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    "cluster.x-k8s.io/deployment-name",
    KARPENTER_POOL,
)
MAX_POOLS: Final = 200
"""How many pools are compared."""
MAX_COMPARED: Final = 4
"""How many nodes of a pool are compared."""
MAX_COPIES: Final = 16
MAX_NODES: Final = 1_000
"""The most nodes of a pool that has no limit of its own."""
_OF_STATE: Final = "node.kubernetes.io/"
"""Prefix of taints that say how a node is at the moment."""


class NodePool(NamedTuple):
    """One value of one label. `instance_type`: "" except for pools of Karpenter."""

    label: str
    value: str
    instance_type: str = ""

    @property
    def text(self) -> str:
        """LABEL=VALUE, for people."""
        return f"{self.label}={self.value}{f' ({self.instance_type})' * bool(self.instance_type)}"


@dataclass(frozen=True, slots=True)
class _PooledNode:
    hostname: str
    pools: tuple[NodePool, ...]


class Pools:
    """The pools of one cluster. *labels*: the label keys that name pools. *around*: what is known of a node."""

    def __init__(
        self, labels: Sequence[str], cluster: NodeStore, around: LookUp, profiles: Sequence[NodeProfile] = ()
    ) -> None:
        self._labels, self._cluster, self._around = tuple(labels), cluster, around
        self._profiles = tuple(profiles)
        self._nodes: dict[str, _PooledNode] = {}
        self._members: dict[NodePool, dict[str, int]] = {}
        """The names of each pool's nodes, with the time of their creation."""

    def apply(self, batch: Batch[NodeObject]) -> None:
        """Apply changes from the watch of nodes."""
        for change in batch.changes:
            node = change.value
            self._forget(node.name)
            if isinstance(change, Gone):
                continue
            pools = self._pools_of(node.labels)
            self._nodes[node.name] = _PooledNode(node.labels.get(HOSTNAME, node.name), pools)
            for pool in pools:
                self._members.setdefault(pool, {})[node.name] = node.created_at or 0

    def __contains__(self, name: str) -> bool:
        """Whether the API server has a node of this name."""
        return name in self._nodes

    def _forget(self, name: str) -> None:
        known = self._nodes.pop(name, None)
        for pool in () if known is None else known.pools:
            del self._members[pool][name]
            if not self._members[pool]:
                del self._members[pool]

    def hostnames(self, names: Sequence[str]) -> list[str]:
        """The label `kubernetes.io/hostname` of those of these nodes that are in a pool."""
        found = (self._nodes.get(name) for name in names)
        return sorted({node.hostname for node in found if node is not None and node.pools})

    def models(self) -> Mapping[NodePool, Sequence["Model"]]:
        """The nodes and profiles that stand for the new nodes of each pool; pools without any are left out."""
        pools = self._members.keys() | {pool for profile in self._profiles for pool in self._pools_of(profile.labels)}
        return {pool: models for pool in islice(sorted(pools), MAX_POOLS) if (models := self._models_of(pool))}

    def models_for(self, labels: Mapping[str, str]) -> Sequence["Model"]:
        """The nodes that stand for a new node with these labels, or the first profile whose labels it has."""
        found = [model for pool in self._pools_of(labels) for model in self._models_of(pool)]
        return found or [_model_of(each) for each in self._profiles if each.labels.items() <= labels.items()][:1]

    def kind_of(self, labels: Mapping[str, str]) -> Hashable:
        """Equal for labels with equal `models_for`."""
        return self._pools_of(labels), frozenset(
            each.name for each in self._profiles if each.labels.items() <= labels.items()
        )

    def _pools_of(self, labels: Mapping[str, str]) -> tuple[NodePool, ...]:
        found = (NodePool(label, labels[label]) for label in self._labels if labels.get(label))
        instance_type = labels.get(INSTANCE_TYPE, "")
        return tuple(
            pool._replace(instance_type=instance_type) if pool.label == KARPENTER_POOL else pool for pool in found
        )

    def _models_of(self, pool: NodePool) -> Sequence["Model"]:
        profiles = (each for each in self._profiles if pool in self._pools_of(each.labels))
        return list(self._of_members(pool)) or [_model_of(each) for each in islice(profiles, 1)]

    def _of_members(self, pool: NodePool) -> Iterator["Model"]:
        members = self._members.get(pool, {})
        newest = sorted(members, key=lambda name: (-members[name], name))
        reporting = (each for each in map(self._cluster.observation, newest) if each is not None and each.is_model)
        for observed in islice(reporting, MAX_COMPARED):
            yield Model(observed.node_name, observed, self._around(observed.node_name))


class Model(NamedTuple):
    """What a new node of a pool is expected to be. `name`: the node or profile that it is taken from."""

    name: str
    observed: Observation
    around: NodeContext

    def empty(self) -> Subject:
        """The new node: nothing is allocated, and taints that only tell the present state are gone."""
        kubelet, state = self.observed.kubelet, self.observed.state
        assert kubelet is not None
        assert state is not None  # a node that is replayable, or a profile
        taints = [taint for taint in self.around.taints or () if not taint.key.startswith(_OF_STATE)]
        around = replace(self.around, taints=taints, unschedulable=False)
        return empty_node(self.name, kubelet, state.devices.devices, around)

    def has_labels_for(self, rules: PlacementRules) -> bool:
        """Whether it has the labels that a pod requires of a node."""
        labels, terms = self.around.labels or {}, rules.node_terms
        is_meant = terms is None or any(term.matches(self.name, labels) for term in terms)
        return is_meant and (rules.node_selector or {}).items() <= labels.items()


def _model_of(profile: NodeProfile) -> Model:
    return Model(f"profile {profile.name}", profile.observed, NodeContext(labels=profile.labels))


class Room(NamedTuple):
    """How many copies of a pod an empty node takes, at most `MAX_COPIES`, and why no further one fits.

    `nodes`: how many nodes the pool may get.
    """

    copies: int
    limit: str
    nodes: int = MAX_NODES


def rooms_in(
    models: Mapping[NodePool, Sequence[Model]], workload: PodWorkload, judge: Judge
) -> Mapping[NodePool, Room]:
    """The room on an empty node of each pool: the least that any of its models has.

    Two NUMA nodes with 8 free CPUs each take two pods of 5 CPUs under the policy `single-numa-node`, and not the three
    that the total of 16 CPUs suggests.
    """
    capacity = Capacity([workload], judge, MAX_COPIES)
    found = {}
    for pool, alike in models.items():
        if pool.instance_type:  # the new node is required to have the labels that the pod requires
            alike = [model for model in alike if model.has_labels_for(workload.rules)] or alike  # noqa: PLW2901
        nodes = [capacity.of(model.empty()) for model in alike]
        found[pool] = min(Room(node.copies, node.limited_by.why) for node in nodes)
    return found
