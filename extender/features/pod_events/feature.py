"""Writes events on pods that fit on no node: for which reasons, and the nearest request that fits.

kube-scheduler's own event counts nodes by reason. This one also says what to request instead.

Rules of this file
- A pod gets an event if its last filter call refused every candidate in the last `RECENT_SECONDS`, and it has had no
  event for `AGAIN_SECONDS`. The candidates are the nodes that kube-scheduler's own filters left.
- The nearest request is searched on one of these nodes: the one with the most free exclusive CPUs among those whose
  state is certain. See `questions.suggestions` for the limits of the search.
- The request is named only if filter would pass it. So no event names a node that has changed since the call, whose
  kubelet starts or has just refused a pod, or whose room is kept for other pods. Pods of a group get no advice.
- The text is made in a thread: reading a call about thousands of nodes takes milliseconds.
- One event every `STEP_SECONDS` at most, so that the search and the writing do not slow the scheduler's calls. Only the
  leader writes.
- Bounded: `MAX_KEPT` pods. A restart of this process may repeat events.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from extender.bounded import BoundedMap
from extender.cluster.node_class import NodeClass
from extender.kube.errors import KubeError
from extender.kube.objects import ObjectName
from extender.kube.pod_objects import write_event
from extender.kubelet.verdict import Certainty
from extender.questions.free_room import free_cpus
from extender.questions.suggestions import nearest
from extender.questions.words import plural
from extender.replay.pod import Pod
from extender.runtime.connection import ApiConnection, ConnectedFeature, LeaderTask
from extender.scheduling.judgement import Judgement
from extender.scheduling.node_totals import pod_requests
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.records.decisions import Call
from extender.wire.pod_replies import NearestRequest

LOG: Final = logging.getLogger(__name__)
STEP_SECONDS: Final = 2.0
RECENT_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 300.0
MAX_KEPT: Final = 10_000
MAX_LOOKED: Final = 50
"""How many pods of the last calls one step looks at, the newest first."""
MAX_REASONS: Final = 5
REASON: Final = "NoNUMANodeFits"


@dataclass(frozen=True, slots=True)
class Advice:
    """Requests that fit on a node while it is of this class, the nearest first."""

    node_name: str
    node_class: NodeClass
    suggestions: Sequence[NearestRequest]


class PodEventsFeature(ConnectedFeature):
    """Writes an event on a pod that fits on no node."""

    def connect(self, connection: ApiConnection) -> None:
        """Write events."""
        connection.every(STEP_SECONDS, PodEvents(self.service, connection.client, connection.leads).step)


make = PodEventsFeature


@dataclass
class PodEvents(LeaderTask):
    """The events of one service."""

    _written_at: BoundedMap[str, float] = field(default_factory=lambda: BoundedMap(MAX_KEPT), init=False)

    async def step(self) -> str | None:
        """Write the event of one pod, if one is due; returns its message."""
        call = next(self._due(), None) if self.can_write() else None
        if call is None:
            return None
        self._written_at[call.pod.uid] = self.service.clock()
        message = await self._message(call)
        outcome = await asyncio.to_thread(self._write, call.pod, message)
        self.service.metrics.pod_events.labels(outcome).inc()
        return message

    def _due(self) -> Iterator[Call]:
        """The last filter calls of pods that are due, the newest first."""
        now, known = self.service.clock(), self.service.known
        for call in self.service.records.decisions.filtered(MAX_LOOKED, now - RECENT_SECONDS):
            is_due = now - self._written_at.get(call.pod.uid, -AGAIN_SECONDS) >= AGAIN_SECONDS
            if call.is_refused and is_due and known.pods.get(call.pod.uid).bound_to is None:
                yield call

    async def _message(self, call: Call) -> str:
        text, advice = await self.service.offload(message_about, call, self._kept_nodes(call.pod))
        refused = {name: each.refusal for name, each in call.instead.items()}
        for each in self.service.scheduling.objectors:
            if details := await each.details(call.pod, refused):
                text += f" {details[0].upper()}{details[1:]}."
        suggestion = None if advice is None else self._still_right(call.pod, advice)
        if advice is not None and suggestion is not None:
            text += f" With {suggestion.change}, the pod would fit on {advice.node_name} now{_doubt(suggestion)}."
        return text

    def _kept_nodes(self, pod: Pod) -> Collection[str] | None:
        """The nodes that filter may refuse whatever the pod requests; None: every node."""
        kept: set[str] = set()
        known = self.service.known.pods.get(pod.uid)
        for objector in self.service.scheduling.objectors:
            if (names := objector.kept_nodes(known, pod)) is None:
                return None
            kept.update(names)
        return kept

    def _still_right(self, pod: Pod, advice: Advice) -> NearestRequest | None:
        """The nearest request that still fits on the node, also by its totals."""
        known = self.service.known
        record = known.nodes.get(advice.node_name)
        if record is None or record.node_class is not advice.node_class:
            return None
        left = known.totals.left(advice.node_name)
        return next((each for each in advice.suggestions if _fits_totals(pod, each, left)), None)

    def _write(self, pod: Pod, message: str) -> str:
        try:
            write_event(self.client, ObjectName(pod.uid, pod.namespace, pod.name), REASON, message, self.wall())
        except KubeError as error:
            LOG.warning("could not write an event of pod=%s/%s reason=%r", pod.namespace, pod.name, str(error))
            return "failed"
        return "written"


def message_about(call: Call, left_out: Collection[str] | None) -> tuple[str, Advice | None]:
    """Why all candidates were refused, and requests that fit on one that is not *left_out*; None: no request does."""
    names, classes = call.names, () if call.classes is None else call.classes.tolist()
    reasons = Counter(each.refusal for each in call.instead.values())
    nodes: dict[NodeClass, tuple[str, Judgement]] = {}
    for name, node_class, judgement in zip(names, classes, call.judgements, strict=bool(classes)):
        if name not in call.instead:
            reasons[judgement.refusal] += 1
        if left_out is not None and name not in left_out:
            nodes[node_class] = name, judgement
    found = roomiest(nodes)
    return _reasons_text(call, reasons), None if found is None else advice_on(*found, call.pod)


def _reasons_text(call: Call, reasons: Mapping[RefusalReason | None, int]) -> str:
    shown = sorted(((why, n) for why, n in reasons.items() if why is not None), key=lambda each: -each[1])
    fault = f": {call.pod.demand.fault}" if call.pod.demand.fault else ""
    if call.count == 1:
        why = "".join(why.text for why, _ in shown)
        return f"The only node that passed kube-scheduler's own filters cannot take the pod: {why}{fault}."
    parts = [f"{why.text}{fault} ({plural(n, 'node')})" for why, n in shown[:MAX_REASONS]]
    if rest := sum(n for _, n in shown[MAX_REASONS:]):
        parts.append(f"other reasons ({plural(rest, 'node')})")
    head = f"None of the {call.count} nodes that passed kube-scheduler's own filters can take the pod"
    return f"{head}: {', '.join(parts)}."


def roomiest(nodes: Mapping[NodeClass, tuple[str, Judgement]]) -> tuple[str, NodeClass] | None:
    """The one of *nodes* with the most free exclusive CPUs among those whose state is certain; None: there is none.

    *nodes*: name and judgement of one node of each class.
    """
    best: tuple[int, str, NodeClass] | None = None
    for node_class, (name, judgement) in nodes.items():
        is_known = judgement.certainty in (Certainty.EXACT, Certainty.ASSUMED) and node_class.possible.is_certain
        refusal, kubelet, state = judgement.refusal, node_class.kubelet, node_class.state
        if kubelet is None or state is None or not is_known:
            continue
        if refusal is None or refusal is RefusalReason.NEWER:
            continue
        room = free_cpus(kubelet, state).bit_count()
        if best is None or room > best[0]:
            best = room, name, node_class
    return None if best is None else best[1:]


def advice_on(name: str, node_class: NodeClass, pod: Pod) -> Advice:
    """The requests that fit on the node instead of *pod*, by replay."""
    assert node_class.kubelet is not None
    assert node_class.state is not None  # `roomiest` returns only classes with a state
    found, _ = nearest(node_class.kubelet, node_class.state, pod)
    return Advice(name, node_class, [each for each in found if each.container is not None])


def _fits_totals(pod: Pod, suggestion: NearestRequest, left: Mapping[str, int] | None) -> bool:
    """Whether the totals of the node allow the request too. kube-scheduler has compared those of the pod itself."""
    if suggestion.kind != "whole-cores":  # all others request less
        return True
    more = (int(suggestion.instead) - int(suggestion.wanted)) * 1000
    return left is not None and left.get("cpu", 0) >= pod_requests(pod, {}).get("cpu", 0) + more


def _doubt(suggestion: NearestRequest) -> str:
    certainty = suggestion.verdict.certainty
    return "" if certainty is Certainty.EXACT else f" (certainty: {certainty.value})"
