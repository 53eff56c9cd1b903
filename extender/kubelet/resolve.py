"""From a pod to what it requests from the managers of a kubelet.

`resolve` converts a `PodSpec` to a `PodRequest` under a kubelet's rules: exclusive CPUs, pinned memory and devices of
each container, and the totals in pod scope. A PodRequest is computed once for each pod and set of rules, and used on
every node.

Mirrors: kubelet `pkg/apis/core/v1/helper/qos`, `cm/cpumanager/policy_static.go` (guaranteedCPUs, podGuaranteedCPUs),
`cm/memorymanager/policy_static.go` (getRequestedResources, getPodRequestedResources), `component-helpers/resource`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from extender.kubelet.pod import (
    HUGEPAGES_PREFIX,
    Container,
    ContainerKind,
    ContainerRequest,
    PodLevelRequest,
    PodRequest,
    PodSpec,
    QOSClass,
)
from extender.kubelet.rules import Rules

_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage", "storage", "pods"})


def qos_class(pod: PodSpec, rules: Rules) -> QOSClass:
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


def _pod_level_decides_qos(pod: PodSpec, rules: Rules) -> bool:
    if rules.pod_level_qos_needs_amounts:
        return has_pod_level_resources(pod)
    return pod.pod_requests_milli is not None or pod.pod_limits_milli is not None


def _positive(amounts: Mapping[str, int]) -> dict[str, int]:
    return {k: amounts[k] for k in ("cpu", "memory") if amounts.get(k, 0) > 0}


def _add(total: dict[str, int], amounts: Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def resolve(pod: PodSpec, rules: Rules) -> PodRequest:
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
        total_cpus=peak((c.reusable, c.sidecar, c.cpus) for c in containers),
        total_memory_bytes=_total_memory(containers) if pinned else {},
        total_devices=_total_devices(pod, containers, rules),
        pod_level=_pod_level(pod, pinned=pinned) if managed else None,
        spec=pod,
        rules=rules,
    )


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


def _pod_level(pod: PodSpec, *, pinned: bool) -> PodLevelRequest:
    requests = (pod.pod_requests_milli or {}) if pinned else {}
    memory = {
        k: value(v) for k, v in sorted(requests.items()) if v > 0 and (k == "memory" or k.startswith(HUGEPAGES_PREFIX))
    }
    return PodLevelRequest(cpus=_whole_cpus(requests), memory_bytes=memory)


def _total_devices(pod: PodSpec, containers: tuple[ContainerRequest, ...], rules: Rules) -> dict[str, int]:
    """Devices of each resource for which pod scope needs hints.

    Source: cm/devicemanager/topology_hints.go, getPodDeviceRequest. Since 1.28 it counts sidecars as long-running, one
    minor before the other managers do.
    """
    roles = [(c.reusable, c.sidecar) for c in containers]
    if rules.sidecars_in_device_totals:
        roles = [(c.kind is ContainerKind.INIT, c.kind is ContainerKind.SIDECAR) for c in pod.containers]
    return {
        name: peak((*role, c.devices.get(name, 0)) for role, c in zip(roles, containers, strict=True))
        for name in sorted({name for c in containers for name in c.devices})
    }


def _total_memory(containers: tuple[ContainerRequest, ...]) -> dict[str, int]:
    """Totals of the types that at least one app container requests. Types of init containers alone are left out."""
    types = {name for c in containers if not c.reusable and not c.sidecar for name in (c.memory_bytes or ())}
    return {
        name: peak((c.reusable, c.sidecar, (c.memory_bytes or {}).get(name, 0)) for c in containers)
        for name in sorted(types)
    }


def is_aligned(request: PodRequest) -> bool:
    """Whether a manager of any kubelet may have something to allocate for the pod."""
    return request.pod_level is not None or any(c.cpus or c.memory_bytes or c.devices for c in request.containers)


def value(milli: int) -> int:
    """A quantity's whole value, rounded up as Quantity.Value does."""
    return -(-milli // 1000)


def has_pod_level_resources(pod: PodSpec) -> bool:
    """Whether `spec.resources` names cpu, memory or hugepages.

    Source: component-helpers/resource/helpers.go, IsPodLevelResourcesSet.
    """
    keys = {*(pod.pod_requests_milli or ()), *(pod.pod_limits_milli or ())}
    return any(k in ("cpu", "memory") or k.startswith(HUGEPAGES_PREFIX) for k in keys)


def peak(parts: Iterable[tuple[bool, bool, int]]) -> int:
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
