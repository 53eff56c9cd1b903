"""Judgements of nodes of which only counts per NUMA node are known.

Rules of this file
- A refusal is a proof: the kubelet refuses the pod whatever CPU ids, core siblings, memory groups and device sets are
  behind the counts. Everything else passes.
- A container gets only what was free when the pod came, or what an init container held before. App containers run at
  the same time, so their CPUs add up.
- Memory proves nothing. Its manager answers a shortage with "no preference", and publishers count memory that spans
  NUMA nodes in different ways.
- Pods with pod-level resources are not refused: kubelet versions treat them differently.

The counts are as old as their object. Pods that were added later make a proof stronger. Room that pods gave back later
is not in the counts, so a refusal is never permanent.
"""

from extender.kubelet.config import Scope, TopologyPolicy
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import has_pod_level_resources, is_aligned
from extender.kubelet.verdict import Certainty
from extender.nri.counts import NriCounts, refusal_by_pools
from extender.replay.counts import Counts
from extender.replay.nri_pod import nri_pod
from extender.scheduling.judgement import INDIFFERENT, Action, Judgement, UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason, refusal_by_reason


def judged_by_counts(shape: PodShape, counts: Counts, policy: UncertaintyPolicy, *, stale: bool) -> Judgement:
    """The judgement of a node of which only counts per NUMA node are known."""
    request = shape.request(counts.rules)
    if counts.nri is not None and not stale and policy.degraded is Action.REPLAY:
        refusal = refusal_by_policy(counts.nri, request)
        if refusal is not None or not is_aligned(request):
            return Judgement(refusal, Certainty.DEGRADED)
    if not is_aligned(request):
        return INDIFFERENT
    if stale:
        return Judgement(RefusalReason.STALE if policy.stale is Action.REFUSE else None, Certainty.STALE)
    if policy.degraded is Action.REPLAY:
        refusal = refusal_by_counts(counts, request, pod_level=has_pod_level_resources(shape.pod))
    else:
        refusal = RefusalReason.UNKNOWN if policy.degraded is Action.REFUSE else None
    return Judgement(refusal, Certainty.DEGRADED)


def refusal_by_counts(counts: Counts, request: PodRequest, *, pod_level: bool) -> RefusalReason | None:
    """Why the node is proven to refuse the pod; None if it is not. *pod_level*: the pod has `spec.resources`."""
    if pod_level or request.pod_level is not None:
        return None
    return _cpus_refused(counts, request) or _devices_refused(counts, request)


def refusal_by_policy(counts: NriCounts, request: PodRequest) -> RefusalReason | None:
    """Why the NRI topology-aware policy of the node is proven to refuse a container of the pod; None if it is not."""
    asked = nri_pod(request)
    if asked.excess:
        return None
    found = refusal_by_pools(counts, asked.pod, asked.containers)
    return None if found is None else refusal_by_reason(found[0])


def _cpus_refused(counts: Counts, request: PodRequest) -> RefusalReason | None:
    """Why the free CPUs are too few; None if that is not proven."""
    by_node = counts.cpus_by_node()
    if by_node is None:
        return None
    largest = max((c.cpus for c in request.containers), default=0)
    together = sum(c.cpus for c in request.containers if not (c.reusable or c.sidecar))
    if max(largest, together) > sum(by_node):
        return RefusalReason.CPUS_NOW
    if counts.policy != TopologyPolicy.SINGLE_NUMA_NODE:
        return None
    on_one_node = max(largest, together) if counts.scope == Scope.POD else largest
    return RefusalReason.ALIGNMENT_NOW if on_one_node > max(by_node) else None


def _devices_refused(counts: Counts, request: PodRequest) -> RefusalReason | None:
    """Only devices on a NUMA node can give a single-numa-node hint, so the counts of the zones decide."""
    if counts.policy != TopologyPolicy.SINGLE_NUMA_NODE or not counts.devices_current:
        return None
    for container in request.containers:
        for resource, wanted in container.devices.items():
            most = None if resource in container.dra_resources else counts.most_devices(resource)
            if most is not None and wanted > most:
                return RefusalReason.ALIGNMENT_NOW
    return None
