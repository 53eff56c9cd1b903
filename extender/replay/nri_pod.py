"""A pod as the NRI topology-aware policy sees it: the amounts that the kubelet passes to the container runtime."""

from extender.kubelet.pod import Container, ContainerKind, PodRequest, PodSpec
from extender.kubelet.resolve import has_pod_level_resources, peak, value
from extender.kubelet.rules import Rules
from extender.nri.admission import NriContainerKind, UnplacedContainer
from extender.nri.objects import NO_METADATA, NriPod, QoS
from extender.nri.state import NriPodRequest
from extender.replay.pod import Pod


def nri_pod(request: PodRequest) -> NriPodRequest:
    """The pod as the kubelet whose request it is passes it to the runtime."""
    spec, rules = request.spec, request.rules
    metadata, is_critical = (spec.metadata, spec.is_node_critical) if isinstance(spec, Pod) else (NO_METADATA, False)
    seen = NriPod(
        id=request.uid,
        uid=request.uid,
        namespace=spec.namespace,
        name=request.name,
        qos=QoS(request.qos.value),
        labels=metadata.labels,
        annotations=metadata.annotations,
        device_nodes={},
        late=metadata.late,
    )
    return NriPodRequest(seen, _containers(spec, rules, is_critical=is_critical), metadata.excess)


def _containers(pod: PodSpec, rules: Rules, *, is_critical: bool) -> tuple[UnplacedContainer, ...]:
    """The containers with the amounts that the kubelet passes to the runtime.

    Source: kuberuntime_container_linux.go generateLinuxContainerResources, qos/policy.go GetContainerOOMScoreAdjust.
    Where a container has no limit, the pod's counts. The score of a sidecar is that of the smallest app container, if
    its own request is smaller. The rest of the pod's request is divided among its containers.
    """
    has_pod_level = rules.pod_level_qos and has_pod_level_resources(pod)
    limits = (pod.pod_limits_milli or {}) if has_pod_level else {}
    share = _unassigned_memory(pod) // max(1, len(pod.containers)) if has_pod_level else 0
    smallest = min((_memory(c) for c in pod.containers if c.kind is ContainerKind.APP), default=0)
    found = []
    for c in pod.containers:
        kind = _kind(c.kind, rules)
        cpu_limit = c.limits_milli.get("cpu", 0) or limits.get("cpu", 0)
        scored = share + max(_memory(c), smallest if kind is NriContainerKind.SIDECAR else 0)
        found.append(
            UnplacedContainer(
                name=c.name,
                kind=kind,
                cpu_request_milli=c.requests_milli.get("cpu", cpu_limit),
                cpu_limit_milli=cpu_limit,
                memory_request_bytes=None if is_critical else scored,
                memory_limit_bytes=value(c.limits_milli.get("memory", 0) or limits.get("memory", 0)),
            )
        )
    return tuple(found)


def _memory(c: Container) -> int:
    return value(c.requests_milli.get("memory", 0))


def _unassigned_memory(pod: PodSpec) -> int:
    """The bytes that the pod requests beyond its containers (qos/policy.go remainingPodMemReqPerContainer)."""
    requested = value((pod.pod_requests_milli or {}).get("memory", 0))
    roles = ((c.kind is ContainerKind.INIT, c.kind is ContainerKind.SIDECAR, _memory(c)) for c in pod.containers)
    return max(0, requested - peak(roles)) if requested else 0


def _kind(kind: ContainerKind, rules: Rules) -> NriContainerKind:
    is_plain_init = kind is ContainerKind.SIDECAR and not rules.sidecars
    return NriContainerKind.INIT if is_plain_init else NriContainerKind(kind.value)
