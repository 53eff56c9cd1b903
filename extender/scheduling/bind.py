"""The bind gate: whether a pod goes to the node that the scheduler has chosen.

Filter is advice, bind decides: kube-scheduler sends the filter call of the next pod before the bind call of the last,
so what filter saw may be over. Under the node's lock the pod is judged again, on all that is known by now.

Laws of this file
- Pure: decides; who asks carries it out.
- A call that repeats one is answered as the first was: a pod that is on the node already is bound.
- A pod is bound only as the scheduler described it, under its own name and UID.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from extender.replay.pod import Pod
from extender.scheduling.judge import Judgement
from extender.scheduling.reasons import Refusal
from extender.wire.binding import ExtenderBindingArgs

AGAIN: Final = "the scheduler will try again"


@dataclass(frozen=True, slots=True)
class Bound:
    """The pod is on the node that was asked for."""


@dataclass(frozen=True, slots=True)
class Unbound:
    """The pod is not on the node and will not be through this call. `kind` is of a closed set, for metrics."""

    reason: str
    kind: str = "failed"


@dataclass(frozen=True, slots=True)
class Unsure:
    """Nobody knows whether the pod is on the node, or will yet be."""

    reason: str


BindOutcome = Bound | Unbound | Unsure


class Binds(Protocol):
    """Writes bindings to the API server."""

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> BindOutcome:
        """Bind the pod, in bounded time. Raises nothing."""


def look_up(args: ExtenderBindingArgs, pod: Pod | None, bound_to: str | None) -> Pod | Bound | Unbound:
    """The pod to bind, or the answer if there is nothing to decide. *bound_to*: the node it is known to be on."""
    if bound_to == args.Node:
        return Bound()
    if bound_to is not None:
        return Unbound(f"the pod is on node {bound_to} already", "conflict")
    if pod is None:
        return Unbound(f"no filter call has described the pod with UID {args.PodUID}; {AGAIN}", "unknown_pod")
    if (pod.namespace, pod.name) != (args.PodNamespace, args.PodName):
        described = f"{pod.namespace}/{pod.name}"
        return Unbound(f"the pod with UID {args.PodUID} is {described}", "conflict")
    return pod


def unsettled() -> Unbound:
    """The answer where what else happens on the node just now may decide."""
    return Unbound(f"{Refusal.UNSETTLED.text}; {AGAIN}", "unsettled")


def over_totals() -> Unbound:
    """The answer where the kubelet may count too much for its predicate of resources."""
    return Unbound(f"pods that have ended may still count in the kubelet's totals of the node; {AGAIN}", "totals")


def promised() -> Unbound:
    """The answer where the room is promised to a nominated pod."""
    return Unbound(f"{Refusal.PROMISED.text}; {AGAIN}", "promised")


def starting() -> Unbound:
    """The answer while the node's kubelet is stopped or starts."""
    return Unbound(f"the node's kubelet is starting and releases nothing yet; {AGAIN}", "starting")


def gate(judgement: Judgement) -> Unbound | None:
    """Why the node no longer takes the pod; None if it does."""
    if judgement.refusal is None:
        return None
    return Unbound(f"{judgement.refusal.text}; {AGAIN}", "refused")
