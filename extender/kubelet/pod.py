"""A pod, and what it requests from the managers of a kubelet.

`PodSpec` is a pod as far as admission reads it, quantities as exact ints in thousandths of the base unit (the API
stores milli precision, rounded up). `PodRequest` is the same pod under one kubelet's rules, in the units of the
managers; `resolve` computes it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from extender.kubelet.rules import Rules

HUGEPAGES_PREFIX: Final = "hugepages-"
INT64_MAX: Final = 2**63 - 1


class ContainerKind(StrEnum):
    """The kind of container. `sidecar`: an init container with restartPolicy Always."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


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
    that it uses, named as those of the pod; no manager of the kubelet reads them.
    """

    name: str
    kind: ContainerKind
    requests_milli: Mapping[str, int] = field(default_factory=dict)
    limits_milli: Mapping[str, int] = field(default_factory=dict)
    allocated_milli: Mapping[str, int] | None = None
    dra_resources: frozenset[str] = frozenset()
    claims: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSpec:
    """A pod. `containers` in the kubelet's order: init containers and sidecars as listed, then app containers.

    `pod_requests_milli` / `pod_limits_milli` are `spec.resources`: None if the spec has none, empty if
    `spec.resources` has no amounts.
    """

    uid: str
    name: str
    namespace: str
    containers: tuple[Container, ...]
    pod_requests_milli: Mapping[str, int] | None = None
    pod_limits_milli: Mapping[str, int] | None = None
    status_qos: QOSClass | None = None


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

    `total_cpus`, `total_memory_bytes`, `total_devices` are the request in pod scope. `pod_level` is set only if
    the managers allocate pod-level resources. No manager reads `spec` and `rules`, of which it was computed: they are
    for a policy of the container runtime.
    """

    uid: str
    name: str
    qos: QOSClass
    containers: tuple[ContainerRequest, ...]
    total_cpus: int
    total_memory_bytes: Mapping[str, int]
    total_devices: Mapping[str, int]
    spec: PodSpec = field(repr=False)
    rules: Rules = field(repr=False)
    pod_level: PodLevelRequest | None = None

    @property
    def guaranteed(self) -> bool:
        """Whether the pod is of QoS class Guaranteed."""
        return self.qos is QOSClass.GUARANTEED

    def copy(self, uid: str) -> "PodRequest":
        """A copy of this request for another pod, whose UID and name are *uid*."""
        return replace(self, uid=uid, name=uid)
