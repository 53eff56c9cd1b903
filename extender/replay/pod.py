"""The requests of a pod to the managers.

`Pod` is the spec as far as admission reads it, quantities as exact ints in thousandths of the base unit (the API
stores milli precision, rounded up). `resolve` converts it to a `PodRequest` under a kubelet's rules: exclusive CPUs,
pinned memory and devices of each container, and the totals in pod scope. A PodRequest is computed once for each pod and
set of rules, and used on every node.

Mirrors: kubelet `pkg/apis/core/v1/helper/qos`, `cm/cpumanager/policy_static.go` (guaranteedCPUs, podGuaranteedCPUs),
`cm/memorymanager/policy_static.go` (getRequestedResources, getPodRequestedResources), `component-helpers/resource`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from extender.replay.demand import NO_DEMAND, Demand
from extender.replay.nri.admission import NriContainerKind, UnplacedContainer
from extender.replay.nri.objects import NO_METADATA, Metadata, QoS
from extender.replay.nri.objects import Pod as PolicyPod
from extender.replay.nri.state import NriPod
from extender.replay.rules import Rules

HUGEPAGES_PREFIX: Final = "hugepages-"
INT64_MAX: Final = 2**63 - 1
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage", "storage", "pods"})


class ContainerKind(StrEnum):
    """The kind of container. `sidecar`: an init container with restartPolicy Always."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


Claimed = Mapping[str, tuple[int, ...]]
"""See `PodRequest.claimed`."""


class QOSClass(StrEnum):
    """`status.qosClass`."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container, with amounts in thousandths by resource name.

    `allocated_milli` is `status.containerStatuses[].allocatedResources`: None if the container has no status entry.
    `dra_resources` are extended resources of this container that a DRA claim satisfies. `claims`: the ResourceClaims
    that it uses, as NAMESPACE/NAME, "" for one that does not exist yet; no manager of the kubelet reads them.
    """

    name: str
    kind: ContainerKind
    requests_milli: Mapping[str, int] = field(default_factory=dict)
    limits_milli: Mapping[str, int] = field(default_factory=dict)
    allocated_milli: Mapping[str, int] | None = None
    dra_resources: frozenset[str] = frozenset()
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A pod. `containers` in the kubelet's order: init containers and sidecars as listed, then app containers.

    `pod_requests_milli` / `pod_limits_milli` are `spec.resources`: None if the spec has none, empty if
    `spec.resources` has no amounts. `created_at`: Unix seconds, None if unknown: a kubelet that starts admits older
    pods first. `demand`: the alignment that the pod demands, which no kubelet reads. `metadata`: the parts that the NRI
    topology-aware policy reads. `is_node_critical`: its priority class is `system-node-critical`. `claimed`: the
    devices that DRA drivers have allocated to it on the node in question, as `PodRequest`.
    """

    uid: str
    name: str
    namespace: str
    containers: tuple[Container, ...]
    pod_requests_milli: Mapping[str, int] | None = None
    pod_limits_milli: Mapping[str, int] | None = None
    status_qos: QOSClass | None = None
    created_at: int | None = None
    demand: Demand = NO_DEMAND
    metadata: Metadata = NO_METADATA
    is_node_critical: bool = False
    claimed: Claimed = field(default_factory=dict)

    @property
    def has_claims(self) -> bool:
        """Whether a container uses ResourceClaims."""
        return any(container.claims for container in self.containers)

    @property
    def nri_shape(self) -> tuple[object, ...]:
        """What a node with the NRI topology-aware policy reads besides `shape`; labels matter to later pods only."""
        return self.namespace, tuple(sorted(self.metadata.annotations.items())), self.is_node_critical

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    """What one container requests from each manager.

    `cpus`: exclusive CPUs, 0 for the shared pool. `memory_bytes`: by type, including zero amounts; None if the memory
    manager does not handle it. `devices`: every extended resource in the limits, rounded up to whole devices.
    `reusable`: an ordinary init container, whose CPUs, memory and devices later containers may take over.
    """

    name: str
    reusable: bool
    sidecar: bool
    cpus: int
    memory_bytes: Mapping[str, int] | None
    devices: Mapping[str, int]
    dra_resources: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLevelRequest:
    """`spec.resources` under PodLevelResourceManagers: the budget of the whole pod.

    `cpus`: 0 if the pod-level CPU request is missing or not whole. `memory_bytes`: positive amounts only. Both are
    empty for pods that are not Guaranteed.
    """

    cpus: int
    memory_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """A pod under one kubelet's rules.

    `total_cpus`, `total_memory_bytes`, `total_devices` are the request in pod scope. `pod_level` is set only if the
    managers allocate pod-level resources. `aligned` is False if no manager allocates anything for it. `nri`: the pod as
    the NRI topology-aware policy sees it. `claimed`: the NUMA node of each device that DRA drivers have allocated to
    it, as raw bits by container, 0 for an unknown one; no manager reads it, only the pod's own demand covers it.
    """

    uid: str
    name: str
    qos: QOSClass
    containers: tuple[ContainerRequest, ...]
    total_cpus: int
    total_memory_bytes: Mapping[str, int]
    total_devices: Mapping[str, int]
    pod_level: PodLevelRequest | None = None
    nri: NriPod | None = None
    claimed: Claimed = field(default_factory=dict)

    @property
    def guaranteed(self) -> bool:
        """Whether the pod is of QoS class Guaranteed."""
        return self.qos is QOSClass.GUARANTEED

    @property
    def aligned(self) -> bool:
        """Whether any manager may have something to allocate for the pod."""
        return self.pod_level is not None or any(c.cpus or c.memory_bytes or c.devices for c in self.containers)

    def copy(self, uid: str) -> "PodRequest":
        """The same request of another pod, which has *uid* as its name as well."""
        nri = self.nri and replace(self.nri, pod=replace(self.nri.pod, id=uid, uid=uid, name=uid))
        return replace(self, uid=uid, nri=nri)


def value(milli: int) -> int:
    """A quantity's whole value, rounded up as Quantity.Value does."""
    return -(-milli // 1000)


def has_pod_level_resources(pod: Pod) -> bool:
    """Whether `spec.resources` names cpu, memory or hugepages.

    Source: component-helpers/resource/helpers.go, IsPodLevelResourcesSet.
    """
    keys = {*(pod.pod_requests_milli or ()), *(pod.pod_limits_milli or ())}
    return any(k in ("cpu", "memory") or k.startswith(HUGEPAGES_PREFIX) for k in keys)


def qos_class(pod: Pod, rules: Rules) -> QOSClass:
    """The QoS class in a kubelet with these rules.

    Source: pkg/apis/core/v1/helper/qos/qos.go, GetPodQOS and ComputePodQOS.
    """
    if rules.qos_from_status and pod.status_qos is not None:
        return pod.status_qos
    if rules.pod_level_qos and _pod_level_decides_qos(pod, rules):
        requests = _positive(pod.pod_requests_milli or {})
        limits = _positive(pod.pod_limits_milli or {})
        guaranteed = limits.keys() == {"cpu", "memory"}
    else:
        requests, limits, guaranteed = {}, {}, True
        for c in pod.containers:
            _add(requests, _positive(c.requests_milli))
            container_limits = _positive(c.limits_milli)
            _add(limits, container_limits)
            guaranteed = guaranteed and container_limits.keys() == {"cpu", "memory"}
    if not requests and not limits:
        return QOSClass.BEST_EFFORT
    return QOSClass.GUARANTEED if guaranteed and requests == limits else QOSClass.BURSTABLE


def _pod_level_decides_qos(pod: Pod, rules: Rules) -> bool:
    if rules.pod_level_qos_needs_amounts:
        return has_pod_level_resources(pod)
    return pod.pod_requests_milli is not None or pod.pod_limits_milli is not None


def _positive(amounts: Mapping[str, int]) -> dict[str, int]:
    return {k: amounts[k] for k in ("cpu", "memory") if amounts.get(k, 0) > 0}


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def resolve(pod: Pod, rules: Rules) -> PodRequest:
    """What the pod requests from the managers of a kubelet with these rules."""
    qos = qos_class(pod, rules)
    guaranteed = qos is QOSClass.GUARANTEED
    pod_level_set = has_pod_level_resources(pod)
    managed = pod_level_set and rules.pod_level_managers
    ignored = pod_level_set and rules.pod_level_skips_managers and not managed
    pinned = guaranteed and not ignored
    containers = tuple(_resolve_container(c, rules, pinned=pinned, pod_level=managed) for c in pod.containers)
    return PodRequest(
        uid=pod.uid,
        name=pod.name,
        qos=qos,
        containers=containers,
        total_cpus=_peak((c.reusable, c.sidecar, c.cpus) for c in containers),
        total_memory_bytes=_total_memory(containers) if pinned else {},
        total_devices=_total_devices(pod, containers, rules),
        pod_level=_pod_level(pod, pinned=pinned) if managed else None,
        nri=_policy_pod(pod, qos, rules),
        claimed=pod.claimed,
    )


def _policy_pod(pod: Pod, qos: QOSClass, rules: Rules) -> NriPod:
    """The pod and its containers with the amounts that the kubelet passes to the runtime."""
    metadata = pod.metadata
    seen = PolicyPod(
        id=pod.uid,
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        qos=QoS(qos.value),
        labels=metadata.labels,
        annotations=metadata.annotations,
        documents=metadata.documents,
        annotated_resources=metadata.annotated_resources,
        device_nodes={},
    )
    return NriPod(seen, _policy_containers(pod, rules), metadata.is_too_long)


def _policy_containers(pod: Pod, rules: Rules) -> tuple[UnplacedContainer, ...]:
    """The containers with the amounts that the kubelet passes to the runtime.

    Source: kuberuntime_container_linux.go generateLinuxContainerResources, qos/policy.go GetContainerOOMScoreAdjust.
    Where a container has no limit, the pod's counts. The score of a sidecar is that of the smallest app container, if
    its own request is smaller. What the pod requests and its containers do not is divided among them.
    """
    has_pod_level = rules.pod_level_qos and has_pod_level_resources(pod)
    limits = (pod.pod_limits_milli or {}) if has_pod_level else {}
    share = _unassigned_memory(pod) // max(1, len(pod.containers)) if has_pod_level else 0
    smallest = min((_memory(c) for c in pod.containers if c.kind is ContainerKind.APP), default=0)
    found = []
    for c in pod.containers:
        kind = _policy_kind(c.kind, rules)
        cpu_limit = c.limits_milli.get("cpu", 0) or limits.get("cpu", 0)
        scored = share + max(_memory(c), smallest if kind is NriContainerKind.SIDECAR else 0)
        found.append(
            UnplacedContainer(
                name=c.name,
                kind=kind,
                cpu_request_milli=c.requests_milli.get("cpu", cpu_limit),
                cpu_limit_milli=cpu_limit,
                memory_request_bytes=None if pod.is_node_critical else scored,
                memory_limit_bytes=value(c.limits_milli.get("memory", 0) or limits.get("memory", 0)),
            )
        )
    return tuple(found)


def _memory(c: Container) -> int:
    return value(c.requests_milli.get("memory", 0))


def _unassigned_memory(pod: Pod) -> int:
    """The bytes that the pod requests, and its containers do not (qos/policy.go remainingPodMemReqPerContainer)."""
    requested = value((pod.pod_requests_milli or {}).get("memory", 0))
    roles = ((c.kind is ContainerKind.INIT, c.kind is ContainerKind.SIDECAR, _memory(c)) for c in pod.containers)
    return max(0, requested - _peak(roles)) if requested else 0


def _policy_kind(kind: ContainerKind, rules: Rules) -> NriContainerKind:
    is_plain_init = kind is ContainerKind.SIDECAR and not rules.sidecars
    return NriContainerKind.INIT if is_plain_init else NriContainerKind(kind.value)


def _resolve_container(c: Container, rules: Rules, *, pinned: bool, pod_level: bool) -> ContainerRequest:
    requests = c.requests_milli
    if rules.allocated_resources_from_status and c.allocated_milli is not None:
        requests = c.allocated_milli
    exclusive = pinned and (not pod_level or _is_guaranteed_by_itself(c))
    sidecar = c.kind is ContainerKind.SIDECAR and rules.sidecars
    memory: Mapping[str, int] | None = None
    if pinned:
        memory = (
            {k: value(v) for k, v in sorted(requests.items()) if k == "memory" or k.startswith(HUGEPAGES_PREFIX)}
            if exclusive
            else {}
        )
    return ContainerRequest(
        name=c.name,
        reusable=c.kind is not ContainerKind.APP and not sidecar,
        sidecar=sidecar,
        cpus=_whole_cpus(requests) if exclusive else 0,
        memory_bytes=memory,
        devices={
            k: value(v)
            for k, v in sorted(c.limits_milli.items())
            if k not in _NATIVE and not k.startswith(HUGEPAGES_PREFIX)
        },
        dra_resources=c.dra_resources if rules.dra_extended_skip else frozenset(),
    )


def _whole_cpus(requests: Mapping[str, int]) -> int:
    whole, rest = divmod(requests.get("cpu", 0), 1000)
    return 0 if rest else whole


def _is_guaranteed_by_itself(c: Container) -> bool:
    """Non-zero cpu and memory requests equal to their limits.

    Source: kubelet cm/qos/helpers.go, IsContainerEquivalentQOSGuaranteed.
    """
    return all(
        c.requests_milli.get(k, 0) > 0 and c.requests_milli.get(k, 0) == c.limits_milli.get(k)
        for k in ("cpu", "memory")
    )


def _pod_level(pod: Pod, *, pinned: bool) -> PodLevelRequest:
    requests = (pod.pod_requests_milli or {}) if pinned else {}
    memory = {
        k: value(v) for k, v in sorted(requests.items()) if v > 0 and (k == "memory" or k.startswith(HUGEPAGES_PREFIX))
    }
    return PodLevelRequest(cpus=_whole_cpus(requests), memory_bytes=memory)


def _peak(parts: Iterable[tuple[bool, bool, int]]) -> int:
    """Peak of one amount over the pod's life. A part is (ordinary init container, sidecar, amount).

    Ordinary init containers run one by one, together with the sidecars that are listed before them.
    """
    peak_init = sidecars = apps = 0
    for is_init, is_sidecar, amount in parts:
        if is_init:
            peak_init = max(peak_init, sidecars + amount)
        elif is_sidecar:
            sidecars += amount
        else:
            apps += amount
    return max(peak_init, apps + sidecars)


def _total_devices(pod: Pod, containers: tuple[ContainerRequest, ...], rules: Rules) -> dict[str, int]:
    """Devices of each resource for which pod scope needs hints.

    Source: cm/devicemanager/topology_hints.go, getPodDeviceRequest. Since 1.28 it counts sidecars as long-running, one
    minor before the other managers do.
    """
    roles = [(c.reusable, c.sidecar) for c in containers]
    if rules.sidecars_in_device_totals:
        roles = [(c.kind is ContainerKind.INIT, c.kind is ContainerKind.SIDECAR) for c in pod.containers]
    return {
        name: _peak((*role, c.devices.get(name, 0)) for role, c in zip(roles, containers, strict=True))
        for name in sorted({name for c in containers for name in c.devices})
    }


def _total_memory(containers: tuple[ContainerRequest, ...]) -> dict[str, int]:
    """Totals of the types that at least one app container requests. Types of init containers alone are left out."""
    types = {name for c in containers if not c.reusable and not c.sidecar for name in (c.memory_bytes or ())}
    return {
        name: _peak((c.reusable, c.sidecar, (c.memory_bytes or {}).get(name, 0)) for c in containers)
        for name in sorted(types)
    }
