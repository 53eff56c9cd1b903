"""Answers the admission checks of Workloads, and holds the places that it has found.

Rules of this file
- Only the leader acts. A step begins with what the watches show. Before an answer the Workload is read again, and the
  answer is written only if it is still as it was read. So a process may end between any two actions.
- `Ready`: all pods get places, which are held from before the write. `Retry`: they do not, or the Workload cannot be
  read. `Rejected`: no empty node of a flavor would ever take a pod, also at the second try, since Kueue deactivates the
  Workload for good. `Pending`: the state of nodes is not known. After `UNSURE_SECONDS` with quota this becomes `Retry`,
  so that others get the quota.
- Kueue tries again after the time of a `Retry`: until pods that are terminating are gone, or places of others end; if
  there are none, twice as long each time.
- A new process holds places again for Workloads that were answered `Ready` within the time for which places are held,
  for their pods that are not bound.
- Namespaces take turns, and one with `PER_NAMESPACE` Workloads with places has none. One that got no answer waits for
  `AGAIN_SECONDS`. Plans take at most `1 / (1 + PAUSE_SHARE)` of the time.
- With `dry-run` nothing is written or held. Each Workload is judged once when it has quota, whatever its checks are.
"""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import ceil, inf
from typing import Any, Final, NamedTuple

import msgspec

from extender.bounded import BoundedMap
from extender.cluster.node import UnknownNodeError
from extender.features.kueue.held import HeldPlaces
from extender.features.kueue.objects import (
    Check,
    CheckState,
    Flavor,
    KueueObjects,
    Phase,
    WorkloadHead,
    decode_workload,
    entry_of,
)
from extender.features.kueue.places import FoundPlaces, Planner
from extender.features.kueue.workloads import PodSet, read_pod_sets
from extender.kube.changes import Batch, Gone
from extender.kube.client import JSON
from extender.kube.errors import KubeError, NoReplyError
from extender.kube.objects import integer, items, mapping, text
from extender.observability.logs import FewWarnings
from extender.questions.asked import QuestionError
from extender.runtime.connection import LeaderTask
from extender.wire.errors import WireError

LOG: Final = logging.getLogger(__name__)
LOG.addFilter(FewWarnings())
UNSURE_SECONDS: Final = 60
AGAIN_SECONDS: Final = 10.0
ENDING_SECONDS: Final = 15
"""Pods that are terminating are mostly gone after this time."""
RETRY_SECONDS: Final = 60
MAX_RETRY_SECONDS: Final = 1800
PAUSE_SHARE: Final = 3.0
MAX_ANSWERS: Final = 8
"""Of one step."""
MAX_LOOKED: Final = 200
"""Namespaces, and nodes with terminating pods, that one step looks at."""
MAX_SHOWN: Final = 500
MAX_MESSAGE: Final = 2_000


class Answer(NamedTuple):
    """`seconds`: until Kueue tries again; None: not said. `found`: the places of a Workload that is `Ready`."""

    state: CheckState
    message: str
    seconds: int | None = None
    found: FoundPlaces | None = None


class Shown(NamedTuple):
    """The last answer to a Workload. `at`: Unix seconds. `is_written`: whether the API server has it."""

    head: WorkloadHead
    answer: Answer
    at: float
    is_written: bool


@dataclass
class AlignmentController(LeaderTask):
    """The controller of one service."""

    planner: Planner
    held: HeldPlaces
    checks: dict[str, Check] = field(default_factory=dict, init=False)
    flavors: dict[str, Flavor] = field(default_factory=dict, init=False)
    shown: BoundedMap[str, Shown] = field(default_factory=lambda: BoundedMap(MAX_SHOWN), init=False)
    _queues: OrderedDict[str, OrderedDict[str, WorkloadHead]] = field(default_factory=OrderedDict, init=False)
    """Workloads that have quota, by namespace and UID. The next ones come first."""
    _tried: BoundedMap[str, float] = field(default_factory=lambda: BoundedMap(100_000), init=False)
    _given: BoundedMap[str, None] = field(default_factory=lambda: BoundedMap(100_000), init=False)
    """UIDs of Workloads whose places this process has held: they are not held a second time. In a dry run: judged."""
    _next_at: float = field(default=-inf, init=False)

    def __post_init__(self) -> None:
        """Nothing was read yet."""
        self._objects = KueueObjects(self.client)
        self._writes = self.service.settings.kueue == "on"

    # Watches

    def apply_checks(self, batch: Batch[Check]) -> None:
        """Apply changes from the watch of admission checks."""
        _keep(self.checks, batch)

    def apply_flavors(self, batch: Batch[Flavor]) -> None:
        """Apply changes from the watch of flavors."""
        _keep(self.flavors, batch)

    def apply_workloads(self, batch: Batch[WorkloadHead]) -> None:
        """Apply changes from the watch of Workloads."""
        for change in batch.changes:
            head = change.value
            queue = self._queues.setdefault(head.namespace, OrderedDict())
            answered_at = max((at for _, at in head.states.values()), default=head.reserved_at)
            until = answered_at + self.service.settings.kueue_hold_seconds
            if isinstance(change, Gone) or head.phase in (Phase.QUEUED, Phase.OVER):
                self.held.release(head.uid)
                self._tried.pop(head.uid, None)
                queue.pop(head.uid, None)
            elif head.phase is Phase.ADMITTED and self.wall() > until:
                queue.pop(head.uid, None)
            else:
                queue[head.uid] = head
            if not queue:
                del self._queues[head.namespace]

    # Steps

    async def step(self) -> None:
        """Answer some Workloads."""
        now = self.service.clock()
        if not self.can_write():
            self.held.expire(inf)
            self._given.clear()
            return
        self.held.expire(now)
        for check in [each for each in self.checks.values() if not each.is_active and self._writes]:
            try:
                await asyncio.to_thread(self._objects.activate, check, self.wall())
            except KubeError as error:
                LOG.warning("admission check not activated name=%s reason=%r", check.name, str(error))
        if self.service.known.link.trouble or self.planner.questions is None or now < self._next_at:
            return
        for head in list(islice(self._due(now), MAX_ANSWERS)):
            if head.namespace in self.held.full(self._queues):
                continue
            self._tried[head.uid] = now
            try:
                await self._look(head)
            except (KubeError, QuestionError, UnknownNodeError, msgspec.DecodeError) as error:
                self.service.metrics.kueue_answers.labels("failed").inc()
                LOG.warning("Workload not answered name=%s/%s reason=%r", head.namespace, head.name, str(error))
        self._next_at = self.service.clock() + PAUSE_SHARE * (self.service.clock() - now)

    def _due(self, now: float) -> Iterator[WorkloadHead]:
        """The Workloads that wait for an answer or for places, one of each namespace in turn."""
        full = self.held.full(self._queues)
        for namespace in list(islice(self._queues, MAX_LOOKED)):
            queue = self._queues[namespace]
            self._queues.move_to_end(namespace)
            for uid, head in list(islice(queue.items(), 0 if namespace in full else MAX_LOOKED // 10)):
                queue.move_to_end(uid)
                if not self._wants(head):
                    if head.phase is Phase.ADMITTED:
                        del queue[uid]
                elif now - self._tried.get(uid, -inf) >= AGAIN_SECONDS:
                    yield head
                    break

    def _wants(self, head: WorkloadHead) -> bool:
        """Whether the Workload waits for an answer, or for places that a process before this one has found."""
        if head.phase not in (Phase.RESERVED, Phase.ADMITTED):
            return False
        if not self._writes:
            return head.uid not in self._given
        is_pending = head.phase is Phase.RESERVED and bool(self._pending(head))
        return is_pending or (head.uid not in self._given and self._held_until(head) > self.wall())

    def _pending(self, head: WorkloadHead) -> list[str]:
        """The checks of ours that have no answer."""
        return [name for name, (state, _) in head.ours(self.checks).items() if state == CheckState.PENDING]

    def _held_until(self, head: WorkloadHead) -> float:
        """Until when places are held for a Workload that was answered `Ready`, Unix seconds; 0: it was not."""
        ready = [at for state, at in head.ours(self.checks).values() if state == CheckState.READY]
        return max(ready) + self.service.settings.kueue_hold_seconds if ready else 0.0

    async def _look(self, head: WorkloadHead) -> None:
        """Answer a Workload, or hold its places again."""
        read = await asyncio.to_thread(self._objects.workload, head)
        if read is None or not self._wants(head := decode_workload(read)[1]):
            return
        if self._writes and (head.phase is Phase.ADMITTED or not self._pending(head)):
            await self._hold_again(head, read)
            return
        answer = await self._answer(head, read)
        is_written = self._writes and await self._write(head, read, answer)
        self.shown[head.uid] = Shown(head, answer, self.wall(), is_written)
        if not self._writes:
            self._given[head.uid] = None
            LOG.info("would answer %s for=%s/%s: %s", answer.state, head.namespace, head.name, answer.message)

    async def _hold_again(self, head: WorkloadHead, read: JSON) -> None:
        """Hold places for those pods of the Workload that are not bound."""
        try:
            pod_sets = read_pod_sets(read, self.flavors)
            bound = Counter(self.held.bound.get((head.namespace, head.name), {}).values())
            left = [each.without(bound[each.name]) for each in pod_sets]
            left = [each for each in left if each.pods]
            found = await self.planner.find(left, head.uid) if left else FoundPlaces()
        except WireError:  # it has changed since it was answered
            return
        if found.short is not None:  # the nodes may be about to report
            self._tried.pop(head.uid, None)
            return
        self._given[head.uid] = None
        until = self.service.clock() + self._held_until(head) - self.wall()
        self.held.hold(head, _priority(read), until, found.places)

    async def _answer(self, head: WorkloadHead, read: JSON) -> Answer:
        """The answer. Raises QuestionError."""
        entries = items(mapping(read, "status"), "admissionChecks")
        tries = max((integer(each, "retryCount") for each in entries if text(each, "name") in self.checks), default=0)
        later = min(MAX_RETRY_SECONDS, RETRY_SECONDS * 2 ** min(tries, 10))
        try:
            pod_sets = read_pod_sets(read, self.flavors)
            if not pod_sets:
                return Answer(CheckState.READY, "the Workload has no pods")
            found = await self.planner.find(pod_sets, head.uid)
            if found.short is None:
                return self._ready(pod_sets, found)
            name = found.short.name
            if found.is_known and await self.planner.is_impossible(found.short):
                message = f"no node of the flavor can ever take a pod of pod set {name}: {found.reasons}"
                return Answer(CheckState.REJECTED, message) if tries else Answer(CheckState.RETRY, message, later)
        except WireError as error:
            return Answer(CheckState.RETRY, f"the Workload cannot be read: {error}", later)
        message = f"the pods do not fit together now; pod set {name}: {found.reasons or 'there is no node'}"
        if not found.is_known and self.wall() < head.reserved_at + UNSURE_SECONDS:
            return Answer(CheckState.PENDING, message)
        return Answer(CheckState.RETRY, message, min(later, self._ends(pod_sets) or later))

    def _ready(self, pod_sets: Sequence[PodSet], found: FoundPlaces) -> Answer:
        nodes = len({place.node_name for place in found.places})
        seconds = self.service.settings.kueue_hold_seconds
        parts = [f"{len(found.places)} pods have places on {nodes} nodes, held for {seconds:g} s"]
        if found.unsure:
            parts.append(f"the state of the nodes of {found.unsure} pods is not known exactly")
        if any(each.is_open for each in pod_sets):
            parts.append("Kueue assigns topology domains later, which were not checked")
        return Answer(CheckState.READY, "; ".join([*parts, *found.notes]), found=found)

    def _ends(self, pod_sets: Sequence[PodSet]) -> int | None:
        """In how many seconds something ends on the nodes of the pod sets; None: nothing is known to end."""
        names = self.planner.nodes_of(pod_sets)
        if (ends := self.held.ends(names)) is not None:
            return max(1, ceil(ends - self.service.clock()))
        look_up = self.service.surroundings
        ending = any(pod.terminating for name in islice(names, MAX_LOOKED) for pod in look_up(name).pods or ())
        return ENDING_SECONDS if ending else None

    async def _write(self, head: WorkloadHead, read: JSON, answer: Answer) -> bool:
        """Hold the places, and write the answer; whether it was written. Raises KubeError."""
        message = answer.message.encode()[:MAX_MESSAGE].decode(errors="ignore")
        last = self.shown.get(head.uid)
        if answer.state is CheckState.PENDING and last is not None and last.is_written and last.answer == answer:
            return True
        entry = entry_of(answer.state, message, self.wall(), answer.seconds)
        is_written = False
        if answer.found is not None:
            until = self.service.clock() + self.service.settings.kueue_hold_seconds
            self.held.hold(head, _priority(read), until, answer.found.places)
            self._given[head.uid] = None
        try:
            is_written = await asyncio.to_thread(
                self._objects.answer, head, read, dict.fromkeys(self._pending(head), entry)
            )
        except NoReplyError as error:
            is_written = error.maybe_done
            raise
        finally:
            if not is_written:
                self.held.release(head.uid)
                self._tried.pop(head.uid, None)
        self.service.metrics.kueue_answers.labels(answer.state.lower() if is_written else "failed").inc()
        return is_written


def _priority(workload: JSON) -> int:
    return integer(mapping(workload, "spec"), "priority")


def _keep(known: dict[str, Any], batch: Batch[Any]) -> None:
    """Bring *known*, by name, up to date."""
    for change in batch.changes:
        if isinstance(change, Gone):
            known.pop(change.value.name, None)
        else:
            known[change.value.name] = change.value
