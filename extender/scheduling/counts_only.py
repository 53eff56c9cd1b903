"""What can be said of a node of which only counts per NUMA node are known.

Laws of this file
- A refusal is a proof: whatever the CPU ids, core siblings, memory groups and device sets are that the counts hide,
  the kubelet refuses. Everything else passes.
- What a container gets for itself was free when the pod came: containers that reuse what an init container held do not
  break that. App containers hold what they get at the same time, so their CPUs add up.
- Memory proves nothing: its manager answers want of room with "no preference", and publishers count blocks that span
  NUMA nodes in different ways.
- Nothing is said of pods with pod-level resources: versions differ in what they make of them.

The counts are of the moment they were published. Pods that came since can only make a proof stronger; what pods gave
back since is missing, so a refusal is never for good.
"""

from extender.replay.config import Scope, TopologyPolicy
from extender.replay.counts import Counts
from extender.replay.pod import PodRequest
from extender.scheduling.reasons import Refusal


def refusal_by_counts(counts: Counts, request: PodRequest, *, pod_level: bool) -> Refusal | None:
    """The proven refusal of a pod; None: not proven. *pod_level*: the pod has `spec.resources`."""
    if pod_level or request.pod_level is not None:
        return None
    return _cpus_refused(counts, request) or _devices_refused(counts, request)


def _cpus_refused(counts: Counts, request: PodRequest) -> Refusal | None:
    by_node = counts.cpus_by_node()
    if by_node is None:
        return None
    largest = max((c.cpus for c in request.containers), default=0)
    together = sum(c.cpus for c in request.containers if not (c.reusable or c.sidecar))
    if max(largest, together) > sum(by_node):
        return Refusal.CPUS_NOW
    if counts.policy != TopologyPolicy.SINGLE_NUMA_NODE:
        return None
    on_one_node = max(largest, together) if counts.scope == Scope.POD else largest
    return Refusal.ALIGNMENT_NOW if on_one_node > max(by_node) else None


def _devices_refused(counts: Counts, request: PodRequest) -> Refusal | None:
    """Devices without a NUMA node help no single-numa-node hint, so the counts by zone are all that can."""
    if counts.policy != TopologyPolicy.SINGLE_NUMA_NODE or not counts.devices_current:
        return None
    for container in request.containers:
        for resource, wanted in container.devices.items():
            most = None if resource in container.dra_resources else counts.most_devices(resource)
            if most is not None and wanted > most:
                return Refusal.ALIGNMENT_NOW
    return None
