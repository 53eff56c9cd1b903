"""A workload after defaulting: what it requests from the managers, and oddities."""

from collections.abc import Mapping
from typing import Final

from extender.kubelet.resolve import resolve
from extender.questions.notes import pod_notes
from extender.replay.counts import NEWEST_RULES
from extender.scheduling.node_totals import format_milli, pod_requests
from extender.wire.pod_replies import PodContainer, PodSummary
from extender.wire.workloads import PodWorkload

MAX_INTEGER: Final = 2**63 - 1
"""The greatest integer that the JSON library writes. Kubernetes has no greater amounts."""


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
