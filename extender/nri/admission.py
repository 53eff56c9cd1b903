"""What happens to the containers of a pod that is bound to a node with the NRI topology-aware policy.

The policy decides when a container is created, so nothing is refused at admission: a pod of which one container is
refused stays in `CreateContainerError`. Containers are created in the order of the kubelet
(`pkg/kubelet/kuberuntime/kuberuntime_manager.go` computePodActions): init containers one after the other, each ended
before the next unless it is a sidecar, then the others in the order of the spec.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TypeAlias

from extender.kubelet.budget import Budget
from extender.nri.books import Grant
from extender.nri.estimates import oom_score_adj, runtime_resources
from extender.nri.events import NewContainer, Node, create, remove, run_pod, stop
from extender.nri.objects import NriPod
from extender.nri.pinning import Pins
from extender.nri.verdict import NriRefusal


class NriContainerKind(Enum):
    """When a container runs; SIDECAR is an init container that restarts always."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


class NriReason(StrEnum):
    """Why a pod would not run. All but the first one leave the pod in `CreateContainerError`.

    CRASH: the plugin's process would end. The runtime then creates containers without it.
    """

    CRASH = "NRIPluginCrash"
    NO_CPU = "NRINotEnoughCPU"
    NO_MEMORY = "NRINotEnoughMemory"
    STRICT_HINT = "NRIStrictTopologyHint"
    STRICT_ISOLATION = "NRINotEnoughIsolatedCPUs"
    ANNOTATION = "NRIBadAnnotation"


_REASONS: Mapping[NriRefusal, NriReason] = {
    NriRefusal.SLICE: NriReason.NO_CPU,
    NriRefusal.TAKE: NriReason.NO_CPU,
    NriRefusal.FRACTION: NriReason.NO_CPU,
    NriRefusal.OFFER: NriReason.NO_MEMORY,
    NriRefusal.STRICT_HINT: NriReason.STRICT_HINT,
    NriRefusal.STRICT_ISOLATION: NriReason.STRICT_ISOLATION,
    NriRefusal.AFFINITY: NriReason.ANNOTATION,
    NriRefusal.REQUEST: NriReason.ANNOTATION,
    NriRefusal.PANIC: NriReason.CRASH,
}


Granted: TypeAlias = tuple[str, int, int]
"""(name of the pool, exclusive CPUs, mCPU of shared or reserved ones)."""


@dataclass(frozen=True, slots=True)
class UnplacedContainer:
    """A container of a pod that is not placed yet: requests and limits in mCPU and bytes, 0 is "not set".

    `cpu_request_milli`: what cpu.shares come from, which is the limit where the spec has no request.
    `memory_request_bytes`: what oom_score_adj comes from; None: of a node-critical pod, whose score is fixed.
    """

    name: str
    kind: NriContainerKind = NriContainerKind.APP
    cpu_request_milli: int = 0
    cpu_limit_milli: int = 0
    memory_request_bytes: int | None = 0
    memory_limit_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PlacedContainer:
    """Where a container would go. `pool`: the name of the pool; `widened`: containers whose memory moves for it."""

    name: str
    kind: NriContainerKind
    pool: str
    grant: Grant
    pins: Pins
    widened: tuple[str, ...]

    @property
    def granted(self) -> Granted:
        """The CPUs of the grant, in a form that later decisions for other containers do not change."""
        return self.pool, self.grant.exclusive, self.grant.portion


@dataclass(frozen=True, slots=True)
class NriVerdict:
    """The containers that would be created, in order, and why the next one would not be.

    `node` is the node with these containers. `reason` None: all are created. `container`: the one that is refused, ""
    where the pod as a whole is; `detail` says why, for people, and `refusal` is the policy's own class.
    """

    node: Node
    placed: tuple[PlacedContainer, ...]
    reason: NriReason | None = None
    container: str = ""
    detail: str = ""
    refusal: NriRefusal | None = None


def place_pod(node: Node, pod: NriPod, containers: Sequence[UnplacedContainer], budget: Budget) -> NriVerdict:
    """Create the containers of *pod* on *node*.

    Raises:
        BudgetError: the replay takes more steps than *budget* has.
    """
    total = node.books.setup.topology.machine.memory_total_bytes
    after, placed = run_pod(node, pod), list[PlacedContainer]()
    for container in in_order(containers):
        new = new_container(pod, container, total)
        after, outcome = create(after, new, budget)
        if outcome.grant is None or outcome.pins is None:
            reason = NriReason.ANNOTATION if outcome.refusal is None else _REASONS[outcome.refusal]
            return NriVerdict(after, tuple(placed), reason, container.name, outcome.reason, outcome.refusal)
        grant = outcome.grant
        widened = tuple(sorted(id_ for id_, pins in outcome.updates.items() if pins.mems is not None))
        pool = after.books.setup.tree.pools[grant.pool].name
        placed.append(PlacedContainer(container.name, container.kind, pool, grant, outcome.pins, widened))
        if container.kind is NriContainerKind.INIT:
            after, _ = stop(after, new.id)
            after = remove(after, new.id)
    return NriVerdict(after, tuple(placed))


def in_order(containers: Sequence[UnplacedContainer]) -> list[UnplacedContainer]:
    """The containers in the order in which the kubelet creates them."""
    return sorted(containers, key=lambda c: c.kind is NriContainerKind.APP)


def new_container(pod: NriPod, container: UnplacedContainer, memory_total_bytes: int) -> NewContainer:
    """What a runtime would pass with the creation of *container*. *memory_total_bytes*: MemTotal of the node."""
    return NewContainer(
        id=f"{pod.id}/{container.name}",
        pod_id=pod.id,
        name=container.name,
        resources=runtime_resources(
            container.cpu_request_milli, container.cpu_limit_milli, container.memory_limit_bytes
        ),
        oom_score_adj=oom_score_adj(pod.qos, container.memory_request_bytes, memory_total_bytes),
    )
