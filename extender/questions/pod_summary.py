"""A workload as people see it after defaulting: what it asks of the managers, and what is odd about it."""

from collections.abc import Iterator
from typing import Final

from extender.replay.pod import ContainerKind, Pod, PodRequest, QOSClass, resolve
from extender.replay.rules import NEWEST_MINOR, Rules
from extender.verbs.totals import format_milli, pod_requests
from extender.wire.workloads import Workload

NEWEST_RULES: Final = Rules.of(f"v1.{NEWEST_MINOR}.0", {}, {})


def pod_summary(workload: Workload) -> dict[str, object]:
    """The workload as a `PodSummary` of the API."""
    request = resolve(workload.pod, NEWEST_RULES)
    wanted = pod_requests(workload.pod, workload.rules.overhead_milli)
    kinds = {c.name: c.kind for c in workload.pod.containers}
    return {
        "kind": workload.kind,
        "namespace": workload.namespace,
        "name": workload.name,
        "replicas": workload.replicas,
        "qos": request.qos.value,
        "requests": {name: format_milli(name, milli) for name, milli in wanted.items()},
        "containers": [
            {
                "name": c.name,
                "kind": kinds[c.name].value,
                "exclusive_cpus": c.cpus,
                "memory_bytes": c.memory_bytes or {},
                "devices": c.devices,
            }
            for c in request.containers
        ],
        "notes": [*_oddities(workload.pod), *_unpinned(workload.pod, request)],
    }


def _oddities(pod: Pod) -> Iterator[str]:
    """What the API server would not take, or the kubelet would not count."""
    for c in pod.containers:
        for name, amount in c.requests_milli.items():
            limit = c.limits_milli.get(name)
            if limit is not None and amount > limit:
                yield f"container {c.name} requests more {name} than its limit: the API server would refuse the pod"
            elif limit is None and "/" in name:
                yield f"container {c.name} requests {name} without a limit: the API server would refuse the pod"


def _unpinned(pod: Pod, request: PodRequest) -> Iterator[str]:
    """Why a pod that looks as if it wanted CPUs of its own gets none."""
    if request.qos is not QOSClass.GUARANTEED and any("cpu" in c.requests_milli for c in pod.containers):
        yield (
            f"the pod is {request.qos.value}, not Guaranteed (requests equal to limits, for CPU and memory, in every "
            "container): its CPUs and memory are not pinned"
        )
        return
    for c in pod.containers:
        milli = c.requests_milli.get("cpu", 0)
        if request.guaranteed and milli % 1000 and c.kind is not ContainerKind.INIT:
            yield f"container {c.name} asks for {milli}m, not for whole CPUs: it runs in the shared pool"
