"""Bind waits where the totals of a node do not suffice because of pods that have just ended."""

from collections.abc import Callable
from typing import Final

from extender.cluster.pods import KnownPod, PodRegistry
from extender.scheduling.api_link import ApiServerLink
from extender.scheduling.binder import RETRY, BindFailure, NotBound
from extender.scheduling.node_totals import NodeTotals, TotalsFit
from extender.scheduling.objections import BindCall, Objector

TOTALS: Final = NotBound(
    f"pods that have ended may still count in the kubelet's totals of the node; {RETRY}", BindFailure.TOTALS
)


class TotalsCheck(Objector):
    """Objects in bind where the node's totals are too small for the pod now. The pod is recorded as deferred.

    If they are large enough without the finished pods, the pod waits until those are gone. Otherwise kube-scheduler may
    have learned of a pod's end before this service, which will learn of it soon. Totals that stay too small and
    unchanged for *defer_seconds* are wrong, not late: then kube-scheduler's own check decides. How long the pod itself
    has waited does not matter. *clock*: seconds of a monotonic clock.
    """

    def __init__(
        self,
        totals: NodeTotals,
        pods: PodRegistry,
        link: ApiServerLink,
        defer_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._totals, self._pods, self._link = totals, pods, link
        self._defer_seconds, self._clock = defer_seconds, clock

    async def permit(self, call: BindCall) -> NotBound | None:
        """The totals of the node must suffice."""
        now = self._clock()
        fit, unchanged_seconds = self._totals.fit(call.pod, call.node_name, now)
        if fit is TotalsFit.TOO_LITTLE and not self._link.may_miss_exits(call.node_name, now):
            fit = TotalsFit.TOO_LITTLE if unchanged_seconds < self._defer_seconds else TotalsFit.ENOUGH
        if fit is TotalsFit.ENOUGH:
            return None
        self._pods.defer(call.pod.uid, call.node_name, now)
        return TOTALS

    async def passes_soon(self, _known: KnownPod, _node_name: str, refused: NotBound) -> bool:
        """The ended pods are about to be gone."""
        return refused.failure is BindFailure.TOTALS
