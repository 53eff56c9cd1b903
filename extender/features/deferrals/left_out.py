"""Nodes that filter leaves out for a while, because bind or a kubelet has just refused the pod or one like it there.

`TotalsCheck` is for bind: it waits where pods that have just ended may still count.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from math import inf
from typing import Final

from extender.bounded import BoundedMap
from extender.cluster.pods import KnownPod, PodRegistry
from extender.cluster.store import NodeStore
from extender.kubelet.verdict import Certainty
from extender.replay.pod import Pod
from extender.scheduling.api_link import ApiServerLink
from extender.scheduling.binder import RETRY, BindFailure, NotBound
from extender.scheduling.node_totals import NodeTotals, TotalsFit
from extender.scheduling.objections import BindCall, FilterCall, Filtered, Objector, avoid, without
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.records.refusals import RecentRefusals

NO_OTHER: Final = f"{RefusalReason.STARTING.text}, and no other node can take the pod; try again in some seconds"
ENDED: Final = "no node can take the pod before kubelets release what ended pods held; try again in some seconds"
CHANGING: Final = f"{RefusalReason.CHANGING.text}, and no other node can take the pod; try again in some seconds"
AWAIT_SECONDS: Final = 20.0
"""A pod gets errors for at most this long. Then it is refused for as long, and may preempt."""
CHANGING_SECONDS: Final = 2.0
"""How long, in all, pods get errors because of one changing node."""
_REMEMBERED: Final = 4096
TOTALS: Final = NotBound(
    f"pods that have ended may still count in the kubelet's totals of the node; {RETRY}", BindFailure.TOTALS
)


class JustRefused(Objector):
    """Objects to nodes whose kubelets have just refused such a pod, as long as another node is feasible.

    *clock*: seconds of a monotonic clock.
    """

    def __init__(self, refusals: RecentRefusals, clock: Callable[[], float]) -> None:
        self._refusals, self._clock = refusals, clock
        self.grounds = refusals.kept

    async def filter(self, call: FilterCall, filtered: Filtered) -> Filtered:
        """The result without these nodes, or as it is if no other node is feasible."""
        return avoid(filtered, self._refusals.nodes(call.args.pod, call.now), RefusalReason.JUST_REFUSED)

    def kept_nodes(self, _known: KnownPod, _pod: Pod) -> Collection[str]:
        """The nodes whose kubelets have just refused any pod."""
        return [each.node_name for each in self._refusals.all(self._clock())]


class Deferrals(Objector):
    """Objects to nodes where bind deferred the pod less than *defer_seconds* ago, as long as another node is feasible.

    The pod's nominated node is not left out: victims made room there. *clock*: seconds of a monotonic clock.
    """

    def __init__(self, pods: PodRegistry, defer_seconds: float, clock: Callable[[], float]) -> None:
        self.grounds, self._defer_seconds, self._clock = pods.deferred, defer_seconds, clock

    async def filter(self, call: FilterCall, filtered: Filtered) -> Filtered:
        """The result without these nodes, or as it is if no other node is feasible."""
        now = self._clock()
        deferred = {name for name, at in call.known.deferred_from.items() if now - at < self._defer_seconds}
        names = deferred - {_nominated_node(call, now)}
        return avoid(filtered, names, RefusalReason.UNSETTLED, Certainty.POSSIBLE)


class StartingKubelets(Objector):
    """Objects to nodes whose kubelets are stopped or starting: bind refuses a pod there that they would align.

    A node whose kubelet has not answered for longer than a restart takes is refused even if no other node is feasible.
    The pod's nominated node is not left out.
    """

    def __init__(self, cluster: NodeStore, link: ApiServerLink, clock: Callable[[], float]) -> None:
        self._cluster, self._link, self._clock = cluster, link, clock
        self.grounds = cluster.restarting

    async def filter(self, call: FilterCall, filtered: Filtered) -> Filtered:
        """The result without these nodes; as an error if only a start is to be waited for, and this extender binds."""
        now, answers = self._clock(), call.answers
        names = set[str]() if answers is None else set(self._cluster.starting(now)).intersection(filtered.feasible)
        names.discard(_nominated_node(call, now))
        if not names or answers is None:
            return filtered
        judged, judgements = zip(answers.names, answers.codes.tolist(), strict=True), answers.kinds.judgements
        # where the judgement has no merit, the kubelet aligns nothing for the pod
        aligning = {name for name, code in judged if name in names and judgements[code].merit is not None}
        filtered = without(filtered, aligning & self._cluster.silent.keys(), RefusalReason.SILENT, Certainty.STALE)
        after = without(filtered, aligning, RefusalReason.STARTING)
        if after.feasible or after is filtered:
            return after
        return filtered if self._link.binder is None else replace(after, error=NO_OTHER)

    def kept_nodes(self, _known: KnownPod, _pod: Pod) -> Collection[str]:
        """The nodes whose kubelets are stopped or starting."""
        return self._cluster.starting(self._clock())


class Awaited(Objector):
    """Makes the answer an error where nodes whose refusals are about to pass, by *passing*, could take the pod.

    After a refusal kube-scheduler could let the pod wait for five minutes, or evict others in vain; after an error it
    tries the pod again after its back-off. Repeated errors would keep the pod from preemption for ever: see
    `AWAIT_SECONDS`. An error would also clear a nomination, so a pod with a nominated node gets none.

    *node_seconds*: the same for all pods that wait for one node: a node that never settles costs only itself.
    """

    is_for_refused = True

    def __init__(
        self,
        error: str,
        passing: Callable[[Mapping[str, str], float], Iterable[str]],
        clock: Callable[[], float],
        node_seconds: float = inf,
    ) -> None:
        self._error, self._passing, self._clock, self._node_seconds = error, passing, clock, node_seconds
        self._since: Final[BoundedMap[str, float]] = BoundedMap(_REMEMBERED)
        """Since when there are errors, by UID of the pod, and by name of the node."""

    async def filter(self, call: FilterCall, filtered: Filtered) -> Filtered:
        """The result as an error."""
        now = self._clock()
        if filtered.error or call.args.nominated_node:
            return filtered
        awaited = [
            name for name in self._passing(filtered.refused, now) if self._may_wait(name, now, self._node_seconds)
        ]
        is_error = awaited and self._may_wait(call.args.pod.uid, now, AWAIT_SECONDS)
        return replace(filtered, error=self._error) if is_error else filtered

    def _may_wait(self, key: str, now: float, seconds: float) -> bool:
        since = self._since.get(key, now)
        self._since[key] = since if now - since < 2 * AWAIT_SECONDS else now
        return now - self._since[key] < seconds


def ended_pods(cluster: NodeStore, clock: Callable[[], float]) -> Awaited:
    """Waits for kubelets that still count ended pods: kube-scheduler has seen the end of these pods."""

    def counted(refused: Mapping[str, str], now: float) -> Iterable[str]:
        names = (name for name, text in refused.items() if text == RefusalReason.UNSETTLED.text)
        return (name for name in names if cluster.pods_of(name).ledger.released_later(now))

    return Awaited(ENDED, counted, clock)


def changing_nodes(clock: Callable[[], float]) -> Awaited:
    """Waits for nodes whose possible states are being computed beside the event loop: most take milliseconds."""

    def changing(refused: Mapping[str, str], _now: float) -> Iterable[str]:
        return (name for name, text in refused.items() if text == RefusalReason.CHANGING.text)

    return Awaited(CHANGING, changing, clock, CHANGING_SECONDS)


def _nominated_node(call: FilterCall, now: float) -> str:
    nomination = call.known.nominated(now)
    return "" if nomination is None else nomination.node_name


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
