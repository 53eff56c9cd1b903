"""A workload after defaulting: what it requests from the managers, and oddities."""

from collections.abc import Mapping
from typing import Annotated, Final

from extender.answers.notes import pod_notes
from extender.kubelet.pod import ContainerKind, QOSClass
from extender.kubelet.resolve import resolve
from extender.replay.counts import NEWEST_RULES
from extender.scheduling.node_totals import format_milli, pod_requests
from extender.wire.replies import ReplyBody, about
from extender.wire.workloads import PodWorkload

MAX_INTEGER: Final = 2**63 - 1
"""The greatest integer that the JSON library writes. Kubernetes has no greater amounts."""


class PodContainer(ReplyBody):
    """The requests of one container, as the newest known kubelet reads them."""

    name: Annotated[str, about("Its name.")]
    kind: Annotated[ContainerKind, about("The kind of container. `sidecar`: an init container that keeps running.")]
    exclusive_cpus: Annotated[int, about("Exclusive CPUs; 0: it runs in the shared pool.")]
    memory_bytes: Annotated[dict[str, int], about("Memory pinned to NUMA nodes, in bytes by type; empty: none.")]
    devices: Annotated[dict[str, int], about("Devices by resource.")]


class PodSummary(ReplyBody):
    """The pod of the question, after defaulting."""

    kind: Annotated[str, about("Kind of the document: `Pod`, `Deployment`…")]
    namespace: Annotated[str, about("`default` if the document has none.")]
    name: Annotated[str, about("Name of the document.")]
    replicas: Annotated[int, about("Number of replicas in the document; 1 if it has none.")]
    qos: Annotated[QOSClass, about("QoS class.")]
    requests: Annotated[
        dict[str, str], about("Requests as the scheduler counts them, as quantities.", {"cpu": "8", "memory": "16Gi"})
    ]
    containers: Annotated[list[PodContainer], about("In the kubelet's order: init, sidecars, app.")]
    notes: Annotated[list[str], about("Remarks, such as why it gets no exclusive CPUs, and what is not checked.")]


def pod_summary(workload: PodWorkload) -> PodSummary:
    """The summary of a workload."""
    request = resolve(workload.pod, NEWEST_RULES)
    wanted = pod_requests(workload.pod, workload.rules.overhead_milli)
    kinds = {c.name: c.kind for c in workload.pod.containers}
    return PodSummary.filled(
        workload,
        qos=request.qos,
        requests={name: format_milli(name, milli) for name, milli in wanted.items()},
        containers=[
            PodContainer(
                name=c.name,
                kind=kinds[c.name],
                exclusive_cpus=min(c.cpus, MAX_INTEGER),
                memory_bytes=_bounded(c.memory_bytes or {}),
                devices=_bounded(c.devices),
            )
            for c in request.containers
        ],
        notes=pod_notes(workload),
    )


def _bounded(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: min(amount, MAX_INTEGER) for name, amount in amounts.items()}
