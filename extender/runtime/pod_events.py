"""Writes events on pods that fit on no node: for which reasons, and the nearest request that fits.

kube-scheduler's own event counts nodes by reason. This one also says what to request instead.

Rules of this file
- A pod gets an event if its last filter call refused every candidate in the last `RECENT_SECONDS`, and it has had no
  event for `AGAIN_SECONDS`. The candidates are the nodes that kube-scheduler's own filters left.
- The nearest request is searched on one of these nodes, in a thread: the one with the most free exclusive CPUs among
  those whose state is certain. See `questions.suggestions` for the limits of the search.
- One event every `STEP_SECONDS` at most, so that neither the search nor the writing is in the way of the scheduler's
  calls. Only the leader writes.
- Bounded: `MAX_KEPT` pods. A restart of this process may repeat events.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from extender.api.service import Service
from extender.bounded import BoundedMap
from extender.cluster.node_class import NodeClass
from extender.kube.client import JSON, Requester, path_of
from extender.kube.errors import KubeError
from extender.questions.free_room import free_cpus
from extender.questions.suggestions import nearest
from extender.replay.pod import Pod
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.records.decisions import Call

LOG: Final = logging.getLogger(__name__)
STEP_SECONDS: Final = 2.0
RECENT_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 300.0
MAX_KEPT: Final = 10_000
MAX_LOOKED: Final = 50
"""How many pods of the last calls one step looks at, the newest first."""
MAX_REASONS: Final = 5
MAX_TEXT: Final = 1_000
"""Characters. The newer API of events refuses more than 1,024 bytes."""
COMPONENT: Final = "numa-extender"
REASON: Final = "NoNUMANodeFits"


class PodEvents:
    """The events of one service. *can_write*: whether this process leads. *wall*: Unix seconds, for the events."""

    def __init__(
        self,
        service: Service,
        client: Requester,
        can_write: Callable[[], bool],
        *,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._service, self._client, self._can_write, self._wall = service, client, can_write, wall
        self._written_at: BoundedMap[str, float] = BoundedMap(MAX_KEPT)

    async def run(self) -> None:
        """Write events until cancelled."""
        while True:
            await asyncio.sleep(STEP_SECONDS)
            try:
                await self.step()
            except Exception:  # the next step may succeed, and nothing else depends on this one
                LOG.exception("an event was not written")

    async def step(self) -> str | None:
        """Write the event of one pod, if one is due; returns its message."""
        call = next(self._due(), None) if self._can_write() else None
        if call is None:
            return None
        self._written_at[call.pod.uid] = self._service.clock()
        message = await self._message(call)
        outcome = await asyncio.to_thread(self._write, call.pod, message)
        self._service.metrics.pod_events.labels(outcome).inc()
        return message

    def _due(self) -> Iterator[Call]:
        """The last filter calls of pods that are due, the newest first."""
        now, known = self._service.clock(), self._service.known
        for calls in self._service.records.decisions.newest(MAX_LOOKED):
            call = next((each for each in calls if each.verb == "filter"), None)
            if call is None or now - call.at > RECENT_SECONDS or known.pods.get(call.pod.uid).bound_to is not None:
                continue
            if now - self._written_at.get(call.pod.uid, -AGAIN_SECONDS) >= AGAIN_SECONDS and is_refused(call):
                yield call

    async def _message(self, call: Call) -> str:
        counts = Counter[RefusalReason]()
        for judgement, names in call.by_judgement():
            if judgement.refusal is not None:
                counts[judgement.refusal] += len(names)
        parts = [f"{why.text} ({count} node{'s' * (count > 1)})" for why, count in counts.most_common(MAX_REASONS)]
        text = f"0 of {call.count} candidate nodes fit: {', '.join(parts)}."
        found = roomiest(call)
        if found is not None:
            name, node_class = found
            assert node_class.kubelet is not None
            assert node_class.state is not None  # `roomiest` has looked
            nearby = await self._service.offload(nearest, node_class.kubelet, node_class.state, call.pod)
            own = next((each for each in nearby.suggestions if each.container is not None), None)
            if own is not None:
                text += f" On {name} the pod would fit with {own.change}."
        return text[:MAX_TEXT]

    def _write(self, pod: Pod, message: str) -> str:
        at = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        reference = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
        event: JSON = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{pod.name[:200]}.", "namespace": pod.namespace},
            "involvedObject": reference,
            "type": "Warning",
            "reason": REASON,
            "message": message,
            "source": {"component": COMPONENT},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        try:
            self._client.request("POST", path_of("/api/v1", "events", namespace=pod.namespace), body=event)
        except KubeError as error:
            LOG.warning("could not write an event of pod=%s/%s reason=%r", pod.namespace, pod.name, str(error))
            return "failed"
        return "written"


def is_refused(call: Call) -> bool:
    """Whether every candidate of the call was refused."""
    return call.seen is not None and all(judgement.refusal is not None for judgement, _ in call.by_judgement())


def roomiest(call: Call) -> tuple[str, NodeClass] | None:
    """The candidate with the most free exclusive CPUs among those whose state is certain. None if there is none."""
    best: tuple[int, str, NodeClass] | None = None
    rooms: dict[int, int] = {}
    for name, node_class in zip(call.names, call.classes or (), strict=True):
        judgement = call.judgements[node_class.id]
        if node_class.kubelet is None or not node_class.possible.is_certain or judgement.refusal is None:
            continue
        if judgement.refusal.never:
            continue
        assert node_class.state is not None  # it is certain
        room = rooms.get(node_class.id)
        if room is None:
            room = rooms[node_class.id] = free_cpus(node_class.kubelet, node_class.state).bit_count()
        if best is None or room > best[0]:
            best = room, name, node_class
    return None if best is None else best[1:]
