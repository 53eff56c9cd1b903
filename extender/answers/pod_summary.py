"""A workload after defaulting: what it requests from the managers, and oddities."""

from extender.answers.notes import NEWEST_RULES, pod_notes
from extender.replay.pod import resolve
from extender.scheduling.totals import format_milli, pod_requests
from extender.wire.workloads import PodWorkload


def pod_summary(workload: PodWorkload) -> dict[str, object]:
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
        "notes": pod_notes(workload),
    }
