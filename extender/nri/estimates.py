"""Requests and limits that the plugin estimates from what the runtime passes on.

Mirrors: `pkg/resmgr/cache/utils.go` (estimateResourceRequirements), `pkg/kubernetes/resources.go` (SharesToMilliCPU,
QuotaToMilliCPU, OomAdjToMemReq, MilliCPUToShares) and `pkg/resmgr/cache/container.go` (SetResourceUpdates,
mergeNRIResources).
"""

from typing import Final

from extender.nri.objects import NriContainer, QoS, Resources, RuntimeResources

MIN_SHARES: Final = 2
MAX_SHARES: Final = 262_144
CFS_PERIOD_US: Final = 100_000
MIN_CFS_QUOTA_US: Final = 1000
MIN_BURSTABLE_OOM_SCORE_ADJ: Final = 3
MAX_BURSTABLE_OOM_SCORE_ADJ: Final = 999


def shares_of(millicpu: int) -> int:
    """cpu.shares for *millicpu*."""
    return MIN_SHARES if not millicpu else min(MAX_SHARES, max(MIN_SHARES, millicpu * 1024 // 1000))


def runtime_resources(cpu_request_milli: int, cpu_limit_milli: int, memory_limit_bytes: int) -> RuntimeResources:
    """What a kubelet passes to the runtime for a container; 0 is "not set".

    Mirrors the kubelet: `pkg/kubelet/cm/helpers_linux.go` (MilliCPUToShares, MilliCPUToQuota).
    """
    quota = max(MIN_CFS_QUOTA_US, cpu_limit_milli * CFS_PERIOD_US // 1000) if cpu_limit_milli else 0
    shares = shares_of(cpu_request_milli)
    return RuntimeResources(shares, quota, CFS_PERIOD_US if cpu_limit_milli else 0, memory_limit_bytes)


def oom_score_adj(qos: QoS, memory_request_bytes: int | None, memory_total_bytes: int) -> int:
    """The oom_score_adj of a container. None: of a node-critical pod.

    Mirrors the kubelet: `pkg/kubelet/qos/policy.go` (GetContainerOOMScoreAdjust).
    """
    if qos is QoS.GUARANTEED or memory_request_bytes is None:
        return -997
    if qos is QoS.BEST_EFFORT:
        return 1000
    adjusted = max(MIN_BURSTABLE_OOM_SCORE_ADJ, 1000 - 1000 * max(0, memory_request_bytes) // memory_total_bytes)
    return MAX_BURSTABLE_OOM_SCORE_ADJ if adjusted == 1000 else adjusted


def estimate(runtime: RuntimeResources, qos: QoS, oom_score_adj: int, memory_total_bytes: int) -> Resources:
    """The requests and limits that the plugin estimates. *memory_total_bytes*: MemTotal of /proc/meminfo."""
    requests: dict[str, int] = {}
    limits: dict[str, int] = {}
    millicpu = 0 if runtime.cpu_shares == MIN_SHARES else int(runtime.cpu_shares * 1000 / 1024 + 0.5)
    if millicpu > 0:
        requests["cpu"] = millicpu
    if runtime.memory_limit_bytes > 0:
        limits["memory"] = runtime.memory_limit_bytes
    if qos is QoS.GUARANTEED:
        limits["cpu"] = requests.get("cpu", 0)
        requests["memory"] = limits.get("memory", 0)
        return Resources(requests, limits)
    if qos is QoS.BURSTABLE:
        request = _memory_request(oom_score_adj, runtime.memory_limit_bytes, memory_total_bytes)
        if request:
            requests["memory"] = request
    if qos in (QoS.BURSTABLE, QoS.BEST_EFFORT) and runtime.cpu_period_us:
        millicpu = int(runtime.cpu_quota_us * 1000 / runtime.cpu_period_us + 0.5)
        if millicpu > 0:
            limits["cpu"] = millicpu
    return Resources(requests, limits)


def _memory_request(oom_score_adj: int, limit_bytes: int, total_bytes: int) -> int:
    """The smallest request with this oom_score_adj. 0 if it cannot be estimated or is not below the limit."""
    if not MIN_BURSTABLE_OOM_SCORE_ADJ <= oom_score_adj <= MAX_BURSTABLE_OOM_SCORE_ADJ:
        return 0
    request = -((oom_score_adj - 1000) * total_bytes // 1000)
    return request if not limit_bytes or request < limit_bytes else 0


def resized(container: NriContainer, runtime: RuntimeResources, qos: QoS, total_bytes: int) -> tuple[Resources, bool]:
    """The estimate after an update of *runtime*, and whether the policy sees a change.

    A value that the update does not contain stays as at creation. Only values of the new estimate are compared, so a
    removed request is not a change.
    """
    created = container.created
    merged = RuntimeResources(
        cpu_shares=runtime.cpu_shares or created.cpu_shares,
        cpu_quota_us=runtime.cpu_quota_us or created.cpu_quota_us,
        cpu_period_us=runtime.cpu_period_us or created.cpu_period_us,
        memory_limit_bytes=runtime.memory_limit_bytes or created.memory_limit_bytes,
    )
    new, old = estimate(merged, qos, container.oom_score_adj, total_bytes), container.resources
    changed = any(old.requests.get(k) != v for k, v in new.requests.items()) or any(
        old.limits.get(k) != v for k, v in new.limits.items()
    )
    return new, changed
