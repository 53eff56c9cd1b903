"""The nodes of a question, live and hypothetical ones, with the properties that kube-scheduler's own filters check.

Rules of this file
- None always means "not known", and an unknown property is reported as not checked.
- A subject is a value: no question can change the cluster.
- `Subject.states` are the node's own, with the ids of its own devices. The states of its class differ only in such ids.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from extender.cluster.node_class import NodeClass
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.startup import initial_state
from extender.kubelet.state import Device, ManagerState
from extender.replay.possible_states import PossibleStates
from extender.scheduling.node_totals import node_allocatable

CPU_DRIVER: Final = "dra.cpu"
"""The driver that allocates CPUs by claims."""


class DynamicDevice(NamedTuple):
    """One device of a node. `claim`: NAMESPACE/NAME, "": free.

    `numa`: the NUMA nodes that it is local to, as raw bits; 0: the driver does not say. `is_predicted`: kube-scheduler
    has not allocated it to the claim yet.
    """

    driver: str
    pool: str
    name: str
    numa: int = 0
    claim: str = ""
    is_predicted: bool = False

    @property
    def is_cpus(self) -> bool:
        """Whether the device stands for CPUs."""
        return self.driver == CPU_DRIVER

    @property
    def is_for_extended(self) -> bool:
        """Whether it is predicted for an extended resource (`for_extended`)."""
        return self.claim.startswith("/")

    @property
    def key(self) -> tuple[str, str, str]:
        """How a claim names the device."""
        return self.driver, self.pool, self.name


def for_extended(position: int) -> str:
    """The claim of devices that are predicted for extended resources of a container, by its position in the pod."""
    return f"/{position}"


class WatchedPod(NamedTuple):
    """One pod on a node that has not finished, as the API server has it.

    `uid` as the kubelet knows it, `api_uid` that of the API object: they differ for static pods, which cannot be
    evicted. `mirror`: the object says that it is the mirror of one. Times are Unix seconds, None if unset. `manifest`:
    JSON of a v1.Pod with the parts that questions read.
    """

    uid: str
    api_uid: str
    namespace: str
    name: str
    priority: int
    created_at: int | None
    started_at: int | None
    terminating: bool
    manifest: bytes
    mirror: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """One taint of a node. `value` may be empty."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """`allocatable_milli` as `node_totals`; `requested_milli`: what all pods of the node request together.

    `pods`: all of them that have not finished. `devices`: those of DRA drivers. `claims`: what a `ClaimForecast` reads
    of the node. Each is the same object as long as nothing in it changes. `forecast`: the `ClaimForecast`; None: claims
    are left out. `served`: extended resources that claims serve there: kube-scheduler does not check their totals.
    """

    labels: Mapping[str, str] | None = None
    taints: Sequence[Taint] | None = None
    unschedulable: bool | None = None
    allocatable_milli: Mapping[str, int] | None = None
    requested_milli: Mapping[str, int] | None = None
    pods: Sequence[WatchedPod] | None = None
    devices: Sequence[DynamicDevice] | None = None
    claims: object = None
    forecast: object = None
    served: Collection[str] = ()


NOTHING_KNOWN: Final = NodeContext()
LookUp = Callable[[str], NodeContext]
"""Returns the context of a live node, by name. Cheap: it is called for each node of a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One node of a question. `states` is empty if no verdict is possible; the first one is the most likely.

    `facts` come from the report (`cluster.node.Observation`).
    """

    name: str
    node_class: NodeClass
    states: tuple[ManagerState, ...]
    hypothetical: bool = False
    around: NodeContext = NOTHING_KNOWN
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def kubelet(self) -> Kubelet | None:
        """None if no verdict is possible."""
        return self.node_class.kubelet


def empty_node(
    name: str, kubelet: Kubelet, devices: Mapping[str, Mapping[str, Device]], around: NodeContext, number: int = 1
) -> Subject:
    """A node on which nothing runs, with this kubelet and these devices. *number*, from 1: of its class."""
    state = initial_state(kubelet, devices)
    allocatable = node_allocatable(kubelet, state.devices)
    return Subject(
        name=name,
        node_class=NodeClass(id=-number, kubelet=kubelet, possible=PossibleStates((state,))),
        states=(state,),
        hypothetical=True,
        around=replace(around, allocatable_milli=allocatable, requested_milli={}, pods=(), claims=None),
    )


def subject_of(name: str, node_class: NodeClass, state: ManagerState | None, around: NodeContext) -> Subject:
    """A live node from its parts. *state* is the node's own; None if no verdict is possible."""
    if node_class.kubelet is None or state is None:
        return Subject(name=name, node_class=node_class, states=(), around=around)
    if around.allocatable_milli is None:
        around = replace(around, allocatable_milli=node_allocatable(node_class.kubelet, state.devices))
    return Subject(name=name, node_class=node_class, states=(state, *node_class.states[1:]), around=around)
