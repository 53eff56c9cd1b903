"""What filter and bind ask other features: may this pod go to this node now, although the kubelet would admit it?

Filter and bind first judge what the kubelet would do. Then they ask each objector in the order in which `scheduling`
lists them. The methods have the names of the stages of kube-scheduler's framework. Filter and bind name no feature.

Rules of this file
- Filter first asks objectors that `simulate`. If one answers, filter has no other effects.
- Filter calls `filter` of each objector with the result of the ones before it. An objector only takes nodes away, or
  gives back a node that was refused for a reason which this feature knows better. An objector without a `filter`
  of its own, or without grounds (`grounds`), is not called.
- Prioritize calls `score` of each objector with the scores of the ones before it.
- Bind calls `pre_bind` and then `permit` of each objector before it judges the node, and `reserve` directly before the
  room is reserved, with nothing awaited in between. Each attempt ends with `post_bind`, whatever its outcome is.
- A feature that is switched off is not in the list.
- In `Filtered` names keep their order, and every candidate is either feasible or refused with a reason: kube-scheduler
  shows no reason at all for a node that a reply leaves out.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from extender.cluster.pods import KnownPod
from extender.kubelet.verdict import Certainty
from extender.replay.pod import Pod
from extender.scheduling.binder import BindOutcome, NotBound
from extender.scheduling.judgement import Judgement
from extender.scheduling.pod_shape import NodeAnswers
from extender.scheduling.reasons import NEVER_TEXTS, RefusalReason
from extender.wire.scheduler import SchedulerArgs

Scores = NDArray[np.uint8]
"""The score of each candidate, 0 to 10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """`feasible` in the order of the names that were asked for; the text of the reason by name of each other node.

    `resolvable` has the refusals that preemption may resolve, if they are told apart; the others are in `refused`.
    `error`: an error to reply with, so that kube-scheduler tries the pod again after its back-off; empty: none.
    `instead`: the judgement in place of the kubelet's, by name of each node that an objector refused. `place`: the only
    node that the pod is offered; the others are left out without a reason. "": there is no such node.
    """

    feasible: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)
    resolvable: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    instead: Mapping[str, Judgement] = field(default_factory=dict)
    place: str = ""


def without(
    filtered: Filtered,
    names: Collection[str],
    reason: RefusalReason,
    certainty: Certainty = Certainty.EXACT,
    text: str = "",
) -> Filtered:
    """*filtered*, with the feasible nodes of *names* refused. *text*: what people see; "": the text of *reason*."""
    unwanted = frozenset(names)
    refused = {name: text or reason.text for name in filtered.feasible if name in unwanted}
    if not refused:
        return filtered
    return replace(
        filtered,
        feasible=[name for name in filtered.feasible if name not in refused],
        refused={**filtered.refused, **refused},
        instead={**filtered.instead, **dict.fromkeys(refused, Judgement(reason, certainty))},
    )


def avoid(
    filtered: Filtered, names: Collection[str], reason: RefusalReason, certainty: Certainty = Certainty.EXACT
) -> Filtered:
    """As `without`. If no other node is feasible, *filtered* is unchanged."""
    after = without(filtered, names, reason, certainty)
    return after if after.feasible else filtered


def refuse_all(filtered: Filtered, reason: RefusalReason, text: str = "") -> Filtered:
    """*filtered* with all feasible nodes refused. *text*: as of `without`."""
    return without(filtered, filtered.feasible, reason, text=text)


def only(filtered: Filtered, name: str) -> Filtered:
    """*filtered* with one feasible node. The others are left out without a reason: they do not refuse the pod."""
    if not name:
        return filtered
    return replace(filtered, feasible=[name], place=name if len(filtered.feasible) > 1 else filtered.place)


def with_feasible(filtered: Filtered, *names: str) -> Filtered:
    """*filtered* with these refused nodes made feasible."""
    return replace(
        filtered,
        feasible=[*filtered.feasible, *names],
        refused={each: why for each, why in filtered.refused.items() if each not in names},
        instead={each: why for each, why in filtered.instead.items() if each not in names},
        error="",
    )


def with_resolvable(filtered: Filtered) -> Filtered:
    """*filtered* with the refusals that preemption may resolve in `resolvable`."""
    parts: tuple[dict[str, str], dict[str, str]] = {}, {}
    for name, text in filtered.refused.items():
        parts[text in NEVER_TEXTS][name] = text
    return replace(filtered, resolvable=parts[False], refused=parts[True])


@dataclass(frozen=True, slots=True)
class FilterCall:
    """A filter call.

    `known`: the record of its pod. `answers`: what is known of the nodes; None if no kubelet aligns the pod.

    `now`: seconds of the service's clock, when the call was judged.
    """

    args: SchedulerArgs
    known: KnownPod
    answers: NodeAnswers | None
    now: float


@dataclass(frozen=True, slots=True)
class BindCall:
    """One attempt to bind a pod. `known`: the record of the pod when the attempt began."""

    pod: Pod
    node_name: str
    known: KnownPod


class Objector:
    """A feature that may object. The methods of this class object to nothing.

    `grounds`: what the feature can object for at the moment, such as pods or nodes. Filter does not ask while it is
    empty; None: filter always asks. `is_for_refused`: filter asks only if no node is feasible. `simulate`: answers a
    call that only simulates, so that nothing of it is recorded; None: it is a real call.
    """

    grounds: Sized | None = None
    is_for_refused = False
    simulate: Callable[[SchedulerArgs], Awaitable[Filtered | None]] | None = None

    async def filter(self, _call: FilterCall, filtered: Filtered, /) -> Filtered:
        """The result without the nodes that the feature objects to."""
        return filtered

    async def score(self, _args: SchedulerArgs, _answers: NodeAnswers, _scores: Scores, /) -> Scores | None:
        """The scores in place of these, in the order of the candidates, 0 to 10; None: they stay."""
        return None

    def pre_bind(self, pod: Pod, _node_name: str, /) -> Pod:
        """The pod with what the feature knows of it on the node."""
        return pod

    async def permit(self, _call: BindCall, /) -> NotBound | None:
        """Why the pod must not be bound to the node now; None if it may be."""
        return None

    def reserve(self, _call: BindCall, /) -> NotBound | None:
        """What has changed since `permit`: the room must not be reserved. None: it may be reserved."""
        return None

    def post_bind(self, _call: BindCall, _outcome: BindOutcome, /) -> None:
        """The attempt has ended."""

    async def passes_soon(self, _known: KnownPod, _node_name: str, _refused: NotBound, /) -> bool:
        """Whether bind is likely to succeed within the same call, so that it is worth a wait."""
        return False

    def kept_nodes(self, _known: KnownPod, _pod: Pod, /) -> Collection[str] | None:
        """The nodes that `filter` may refuse at the moment whatever the pod requests; None: all of them."""
        return ()

    async def details(self, _pod: Pod, _refused: Mapping[str, RefusalReason | None], /) -> str:
        """What people should know of the nodes that `filter` has refused, by reason, in a sentence; "": nothing."""
        return ""

    def released(self) -> Collection[str]:
        """The nodes on which the feature has given up room since the last call."""
        return ()
