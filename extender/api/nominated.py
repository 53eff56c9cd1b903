"""Nominated pods in the verbs: what filter, bind and preempt look up, on the event loop, and replay elsewhere.

How kube-scheduler goes on after each answer decides what filter says (`docs/preemption.md`): a nominated node that only
waits for leaving pods passes, and the bind call waits. Refused, the scheduler would preempt on other nodes as soon as
it sees no terminating victim on this one.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from extender.api.service import Service
from extender.cluster.nominations import Nomination
from extender.replay.pod import Pod
from extender.scheduling.filter import Filtered, with_passed
from extender.scheduling.judge import PodShape
from extender.scheduling.preemption.nominated import PromisedNode, breaks_promise, waits_for_leavers
from extender.scheduling.reasons import NEVER_TEXTS, Refusal

MAX_PROMISES: Final = 8
"""Nominated pods of one node whose room is looked after for one question."""
MAX_NODES: Final = 64
"""Nodes with nominated pods that one filter call looks at; the bind gate looks at the node that is chosen."""


def note_nomination(service: Service, pod: Pod, priority: int, node_name: str) -> None:
    """The scheduler describes an unbound pod."""
    if service.pods.node_of(pod.uid) is None:
        service.pods.nominations.note(pod, priority, node_name, service.clock())


async def is_worth_waiting(service: Service, pod: Pod, node_name: str) -> bool:
    """Whether the pod is nominated to the node, and the node only waits for pods to leave."""
    now = service.clock()
    nomination = service.pods.nominations.of(pod.uid, now)
    if nomination is None or nomination.node_name != node_name:
        return False
    node = _promised_node(service, node_name, [nomination], now)
    return node is not None and await service.offload(waits_for_leavers, service.judge, PodShape(pod), node)


async def with_nominations(service: Service, pod: Pod, priority: int, filtered: Filtered) -> Filtered:
    """The answer of filter with the node passed that is the pod's own, and without those that are promised to others.

    Its own is the node of a binding whose outcome is not known, where it has its room already, or the one that it is
    nominated to, if that only waits for pods to leave.
    """
    nominations, unsure = service.pods.nominations, service.pods.unsure_node(pod.uid)
    if unsure is not None and unsure in filtered.refused:
        return with_passed(filtered, unsure)
    if not len(nominations):
        return filtered
    now = service.clock()
    nomination = nominations.of(pod.uid, now)
    if nomination is not None:
        name = nomination.node_name
        text = filtered.refused.get(name)
        if text is not None and text not in NEVER_TEXTS and await is_worth_waiting(service, pod, name):
            return with_passed(filtered, name)
    promised = sorted(nominations.by_node(now).keys() & set(filtered.passed))[:MAX_NODES]
    broken = await _broken(service, pod, priority, promised)
    if not broken:
        return filtered
    refused = {**filtered.refused, **dict.fromkeys(broken, Refusal.PROMISED.text)}
    return Filtered(passed=[name for name in filtered.passed if name not in broken], refused=refused)


async def breaks_promises(service: Service, pod: Pod, priority: int, node_name: str) -> bool:
    """Whether the pod would take room on the node that is promised to others."""
    return bool(await _broken(service, pod, priority, [node_name]))


async def _broken(service: Service, pod: Pod, priority: int, names: Iterable[str]) -> frozenset[str]:
    """Those of the nodes on which the pod would take room that is promised to others."""
    now, shape = service.clock(), PodShape(pod)
    asked: dict[str, tuple[list[PodShape], PromisedNode]] = {}
    for name in names:
        promises = promises_before(service, pod.uid, priority, name)
        node = _promised_node(service, name, promises, now) if promises else None
        if node is not None:
            asked[name] = [PodShape(each.pod) for each in promises], node

    def broken() -> frozenset[str]:
        return frozenset(name for name, question in asked.items() if breaks_promise(service.judge, shape, *question))

    return await service.offload(broken) if asked else frozenset()


def promises_before(service: Service, uid: str, priority: int, node_name: str) -> Sequence[Nomination]:
    """The nominations of a node that a pod must leave room for, the most important first."""
    now = service.clock()
    own = service.pods.nominations.of(uid, now)
    since = own.since if own is not None and own.node_name == node_name else now + 1.0
    there: Iterable[Nomination] = service.pods.nominations.by_node(now).get(node_name, ())
    before = [each for each in there if each.precedes(uid, priority, since)]
    return sorted(before, key=lambda each: (-each.priority, each.since))[:MAX_PROMISES]


def _promised_node(
    service: Service, node_name: str, nominations: Sequence[Nomination], now: float
) -> PromisedNode | None:
    record = service.cluster.get(node_name)
    if record is None or not record.states:
        return None
    leaving = set(service.cluster.may_be_gone(node_name, now))
    for each in nominations:
        leaving |= service.pods.nominations.victims(each.pod.uid, node_name, now)
    held = {uid for state in record.states for uid in state.pod_uids}
    return PromisedNode(node_class=record.node_class, states=record.states, leaving=leaving & held)
