"""Nodes that kube-scheduler has nominated pods to (`status.nominatedNodeName`), as filter, bind and preempt see them.

What kube-scheduler does after each answer decides what filter answers (`docs/preemption.md`). A nominated node that
only waits for pods to leave is feasible, and the bind call waits: after an error kube-scheduler would clear the
nomination, and other pods could take the room. If filter refused it, kube-scheduler would preempt pods on
other nodes as soon as it saw no terminating victim on this one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from extender.api.service import Service
from extender.cluster.pods import KnownPod, Nomination
from extender.features.preemption.nominated import NominatedNode, only_waits_for_leaving, takes_nominated_room
from extender.replay.pod import Pod
from extender.scheduling.binder import RETRY, BindFailure, NotBound
from extender.scheduling.objections import BindCall, FilterCall, Filtered, Objector, with_feasible, without
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import NEVER_TEXTS, RefusalReason

MAX_NOMINATIONS: Final = 8
"""The room of how many nominated pods of one node a call protects."""
MAX_NODES: Final = 64
"""How many nodes with nominated pods one filter call checks. Bind checks the chosen node in any case."""
NOT_FREE: Final = NotBound(f"{RefusalReason.PROMISED.text}; {RETRY}", BindFailure.PROMISED)


class Nominator(Objector):
    """Protects the room of nominated pods. Reads on the event loop, replays elsewhere."""

    def __init__(self, service: Service) -> None:
        self._cluster, self._pods, self._judge = service.known.nodes, service.known.pods, service.judging.judge
        self._clock, self._offload = service.clock, service.offload
        self.grounds = self._pods.holding

    async def only_waits_for_leaving_pods(self, known: KnownPod, node_name: str) -> bool:
        """Whether the pod is nominated to the node, and is certain to be admitted once leaving pods are gone."""
        now = self._clock()
        nomination = known.nominated(now)
        if nomination is None or nomination.node_name != node_name:
            return False
        node, shape = self._node(node_name, [nomination], now), PodShape(nomination.pod)
        return node is not None and await self._offload(only_waits_for_leaving, self._judge, shape, node)

    async def filter(self, call: FilterCall, filtered: Filtered) -> Filtered:
        """The result with the pod's own node made feasible, and without nodes whose room others hold.

        The pod's own node is the node where its binding is in doubt, because its room is reserved there already. It is
        also the node that the pod is nominated to, if that node only waits for pods to leave.
        """
        known, pod = call.known, call.args.pod
        if known.in_doubt_on is not None and known.in_doubt_on in filtered.refused:
            return with_feasible(filtered, known.in_doubt_on)
        now = self._clock()
        nomination = known.nominated(now)
        if nomination is not None:
            name = nomination.node_name
            text = filtered.refused.get(name)
            if text is not None and text not in NEVER_TEXTS and await self.only_waits_for_leaving_pods(known, name):
                return with_feasible(filtered, name)
        held = await self._held_by_others(pod, call.args.priority, filtered.feasible)
        return without(filtered, held, RefusalReason.PROMISED)

    async def permit(self, call: BindCall) -> NotBound | None:
        """The pod must not take room on the node that other pods are nominated to."""
        priority = self._pods.get(call.pod.uid).priority
        return NOT_FREE if await self._held_by_others(call.pod, priority, {call.node_name}) else None

    async def passes_soon(self, known: KnownPod, node_name: str, refused: NotBound) -> bool:
        """The pod is nominated to the node, and only pods that leave are in its way."""
        nomination = known.nominated(self._clock())
        if nomination is None or nomination.node_name != node_name:
            return False
        if refused.failure is BindFailure.UNSETTLED:
            return True
        return refused.failure is BindFailure.REFUSED and await self.only_waits_for_leaving_pods(known, node_name)

    def kept_nodes(self, _known: KnownPod, _pod: Pod) -> Collection[str]:
        """The nodes that pods are nominated to."""
        return self._pods.nominations(self._clock())

    async def _held_by_others(self, pod: Pod, priority: int, names: Iterable[str]) -> frozenset[str]:
        """The nodes of *names* on which the pod would take room that other pods are nominated to."""
        nominated = self.before(pod.uid, priority, names)
        if not nominated:
            return frozenset()
        now, shape = self._clock(), PodShape(pod)
        checks: dict[str, tuple[list[PodShape], NominatedNode]] = {}
        for name, before in islice(nominated.items(), MAX_NODES):
            node = self._node(name, before, now)
            if node is not None:
                checks[name] = [PodShape(nomination.pod) for nomination in before], node

        def held() -> frozenset[str]:
            return frozenset(name for name, check in checks.items() if takes_nominated_room(self._judge, shape, *check))

        return await self._offload(held) if checks else frozenset()

    def before(self, uid: str, priority: int, names: Iterable[str]) -> Mapping[str, Sequence[Nomination]]:
        """The nominations that the pod must leave room for, by node, the most important first.

        Nodes of *names* without such nominations are left out.
        """
        now = self._clock()
        nominations, own = self._pods.nominations(now), self._pods.get(uid).nominated(now)
        result = {}
        for name in sorted(nominations.keys() & names) if nominations else ():
            since = own.since if own is not None and own.node_name == name else now + 1.0
            before = [other for other in nominations[name] if other.precedes(uid, priority, since)]
            if before:
                result[name] = sorted(before, key=lambda other: (-other.priority, other.since))[:MAX_NOMINATIONS]
        return result

    def _node(self, node_name: str, nominations: Sequence[Nomination], now: float) -> NominatedNode | None:
        """The node and the pods that leave it: terminating ones and victims. None if no state of it is known."""
        record = self._cluster.get(node_name)
        if record is None or not record.states:
            return None
        leaving = set(self._cluster.pods_of(node_name).may_be_gone(now))
        for nomination in nominations:
            leaving |= self._pods.get(nomination.pod.uid).victims_on(node_name, now)
        held = {uid for state in record.states for uid in state.pod_uids}
        return NominatedNode(node_class=record.node_class, possible=record.possible, leaving=leaving & held)
