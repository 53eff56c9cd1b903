"""Carries plans out: one eviction at a time, each only after the replacement of the one before runs where it should.

Rules of this file
- Only the leader works, and one plan at a time. Every change of a plan is in the record before the next action.
- Only through the Eviction API, as a user of its own, with the UID as a precondition. Pods without a controller, pods
  of groups, and pods of namespaces without the label `MOVABLE` are not evicted. What a pod's author writes into the pod
  makes it movable nowhere.
- At most `room_per_hour` evictions in an hour, `MAX_EVICTIONS` of a plan, and `room_cooldown_seconds` between plans.
- Before each eviction: the pod is what and where the plan says, and every node of the plan is known exactly. If not,
  or if a disruption budget refuses, the plan is abandoned. All pods that were evicted for it run again by then.
- The controller stops, until the record is deleted, if after an eviction the replacement is on another node, fails, or
  does not run in time; if a kubelet of the plan refuses a pod; if the waiting pod does not come; or if a declared shape
  has lost a copy.
- A shape loses a copy if fewer fit in the cluster than before, and fewer than are declared. A plan of which a shape
  would lose one, by replay, is not carried out.
- A plan of a process that has ended is not continued: no further pod is evicted, and those that were are watched.
- Each step makes few calls, and lists at most `MAX_LISTED` pods.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

import msgspec

from extender.bounded import BoundedMap
from extender.features.room.cluster import ACCOUNT, Cluster, PodGoneError
from extender.features.room.objector import RoomObjector
from extender.features.room.planner import FoundPlan, RoomPlanner, changed_nodes
from extender.features.room.record import MovePlan, PodMove, RecordStore, RoomRecord
from extender.kube.client import KubeClient
from extender.kube.errors import ApiError, KubeError
from extender.kube.objects import Json, name_of
from extender.kube.pod_objects import controller_of, is_waiting, node_of
from extender.kubelet.verdict import Certainty
from extender.questions.asked import QuestionError
from extender.questions.shapes import DeclaredShape
from extender.runtime.connection import LeaderTask
from extender.wire.advice_replies import EvictedPod
from extender.wire.errors import WireError
from extender.wire.groups import group_of

LOG: Final = logging.getLogger(__name__)
STEP_SECONDS: Final = 1.0
HOUR: Final = 3600.0
MAX_WAITING: Final = 1000
MAX_LISTED: Final = 500
MAX_GRACE_SECONDS: Final = 300
LOOK_SECONDS: Final = 5.0
"""Between two looks at the record of a controller that has stopped."""
MAX_TRIED: Final = 5
"""Waiting pods that one step looks at."""
UNCLEAR_SECONDS: Final = 10.0
"""If the pod is not terminating after this time, an eviction without an answer was not carried out."""
_OWN_LABELS: Final = ("statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index")
"""Labels that the replacement of a pod may not have."""


class AbandonError(Exception):
    """The plan is given up; the message says why."""


@dataclass
class RoomController(LeaderTask):
    """One controller. `movable`: names of the namespaces whose pods may be moved. `shapes`: the declared ones."""

    client: KubeClient
    planner: RoomPlanner
    objector: RoomObjector
    movable: set[str] = field(default_factory=set)
    shapes: Mapping[str, DeclaredShape] = field(default_factory=dict)
    record: RoomRecord | None = None
    """None: not read yet, or this process does not lead."""
    finding: str = ""
    """Why the last search found no plan that is carried out; empty: it did, or there was none."""
    surprise: str = ""
    """What a watch has seen that must not happen during a plan."""

    def __post_init__(self) -> None:
        """Nothing waits yet."""
        settings = self.service.settings
        self._store = RecordStore(self.client, settings.lease_namespace)
        self._cluster = Cluster(self.client, self.client.acting_as(settings.lease_namespace, ACCOUNT))
        self._since: BoundedMap[str, float] = BoundedMap(MAX_WAITING)
        self._tried: BoundedMap[str, float] = BoundedMap(MAX_WAITING)
        self._looks_at = 0.0

    async def step(self) -> None:
        """Look once. A failure of the API server or of a question ends the step, and the next one tries again."""
        if not self.can_write():
            self.record = None
            self.objector.use(None)
            return
        try:
            if self.record is None or self.record.stopped:
                if self.wall() >= self._looks_at:
                    await self._load()
            elif self.record.plan is not None:
                await self._advance(self.record, self.record.plan)
            else:
                await self._consider(self.record)
        except (KubeError, QuestionError, WireError, msgspec.DecodeError) as error:
            LOG.warning("no room could be made in this step reason=%r", str(error))
            if self.record is not None and isinstance(error, KubeError | msgspec.DecodeError):
                self.record = None  # what is stored is right

    def note_refusal(self, node_name: str) -> None:
        """A kubelet has refused a pod."""
        if self.record is not None and self.record.plan is not None and node_name in self.record.plan.nodes:
            self.surprise = f"the kubelet of {node_name} refused a pod"

    async def _load(self) -> None:
        self._looks_at = self.wall() + LOOK_SECONDS
        record = await asyncio.to_thread(self._store.load)
        self.service.metrics.room_stopped.set(bool(record.stopped))
        if record.plan is not None and self.record is None:
            record.plan.interrupted = True
        self.record = record
        self.objector.use(record.plan)

    async def _consider(self, record: RoomRecord) -> None:
        """Find a need and a plan for it."""
        now, settings = self.wall(), self.service.settings
        record.evicted_at = [at for at in record.evicted_at if at > now - HOUR]
        left = settings.room_per_hour - len(record.evicted_at)
        waiting = self._waiting()
        rests_until = max((plan.ended_at for plan in record.history), default=0.0) + settings.room_cooldown_seconds
        if now < rests_until or left <= 0 or not self.movable:
            return
        for uid, namespace, name in waiting[:MAX_TRIED]:
            self._tried[uid] = now
            try:
                pod = await self._cluster.pod(namespace, name, uid)
            except PodGoneError:
                continue
            if not is_waiting(pod) or group_of(pod, namespace) is not None:
                continue
            found = await self.planner.for_pod(pod, self.movable, left)
            await self._begin(record, found, pod, None)
            return
        if in_window(settings.room_window, now):
            for shape in sorted(self.shapes.values(), key=lambda each: -each.priority):
                if now - self._tried.get(f"shape {shape.name}", 0.0) < settings.room_cooldown_seconds:
                    continue
                self._tried[f"shape {shape.name}"] = now
                found = await self.planner.for_shape(shape, self.movable, left)
                await self._begin(record, found, None, shape)
                return

    def _waiting(self) -> list[tuple[str, str, str]]:
        """UID, namespace and name of pods that have waited and were not tried lately, the most important first."""
        known, now, settings = self.service.known.pods, self.service.clock(), self.service.settings
        refused = {pod.uid: pod for pod in known.refused(now)[:MAX_WAITING]}
        for uid in self._since.keys() - refused.keys():
            del self._since[uid]
        for uid in refused.keys() - self._since.keys():
            self._since[uid] = now
        due = [
            uid
            for uid, since in self._since.items()
            if now - since >= settings.room_after_seconds
            and self.wall() - self._tried.get(uid, 0.0) >= settings.room_cooldown_seconds
        ]
        due.sort(key=lambda uid: (-known.get(uid).priority, self._since[uid]))
        return [(uid, refused[uid].namespace, refused[uid].name) for uid in due]

    async def _begin(self, record: RoomRecord, found: FoundPlan, pod: Json | None, shape: DeclaredShape | None) -> None:
        """Make the plan, check it, and store it, if one was found."""
        now, subject = self.wall(), shape.name if shape is not None else name_of(pod or {}).path
        self.finding = f"{subject}: {found.why}" if found.why else ""
        if not found.evictions:
            LOG.info("no plan was found for=%r", self.finding)
            return
        plan = MovePlan(
            id=uuid4().hex[:8],
            purpose="pod" if pod is not None else "shape",
            subject=subject,
            subject_uid="" if pod is None else pod["metadata"]["uid"],
            priority=shape.priority if shape is not None else int((pod or {})["spec"].get("priority") or 0),
            target=found.target,
            moves=[],
            began_at=now,
        )
        try:
            moves = [(each, await self._movable(each)) for each in found.evictions]
            plan.moves = [move_of(*each) for each in moves]
            self._check_nodes(plan)
            changed = changed_nodes(plan.nodes, moves, plan.target, pod)
            plan.before, then = await self.planner.copies(list(self.shapes.values()), self._names(), changed)
            self._check_shapes(plan, then)
        except (AbandonError, PodGoneError) as error:
            self.finding = f"{plan.subject}: {error}"
            LOG.info("a plan is not carried out for=%r", self.finding)
            return
        record.plan = plan
        self.surprise = ""
        if self.service.settings.room == "dry-run":
            await self._end(record, plan, "dry_run", "")
            return
        await self._save(record)
        LOG.info("room is made subject=%s evictions=%d target=%s", plan.subject, len(plan.moves), plan.target)

    async def _movable(self, evicted: EvictedPod) -> Json:
        """The manifest of a pod of a plan. Raises AbandonError, or PodGoneError."""
        namespace, _, name = evicted.pod.partition("/")
        pod = await self._cluster.pod(namespace, name)
        metadata, spec = pod["metadata"], pod["spec"]
        if spec.get("nodeName") != evicted.node or metadata.get("deletionTimestamp"):
            raise AbandonError(f"{evicted.pod} is not on {evicted.node} any more")
        if not controller_of(pod) or not metadata.get("labels"):
            raise AbandonError(f"{evicted.pod} has no controller that makes it again, or no label")
        if namespace not in self.movable or group_of(pod, namespace) is not None:
            raise AbandonError(f"{evicted.pod} must not be moved")
        if int(spec.get("terminationGracePeriodSeconds") or 0) > MAX_GRACE_SECONDS:
            raise AbandonError(f"{evicted.pod} has a grace period of more than {MAX_GRACE_SECONDS} s")
        return pod

    def _check_nodes(self, plan: MovePlan) -> None:
        """Raises AbandonError if a node of the plan is not known exactly, or its kubelet starts."""
        nodes, now = self.service.known.nodes, self.service.clock()
        nodes.expire(now)
        starting = nodes.starting(now)
        for name in plan.nodes:
            record = nodes.get(name)
            if record is None or record.certainty not in (Certainty.EXACT, Certainty.ASSUMED) or name in starting:
                raise AbandonError(f"node {name} is not known exactly now")

    def _check_shapes(self, plan: MovePlan, then: Mapping[str, int]) -> None:
        """Raises AbandonError if fewer copies of a shape fit then, and fewer than are declared."""
        for name, copies in then.items():
            if copies < min(plan.before[name], self.shapes[name].copies):
                raise AbandonError(f"the shape {name} loses copies: {plan.before[name]} before, {copies} then")

    def _names(self) -> list[str]:
        return sorted(record.name for record in self.service.known.nodes)

    async def _advance(self, record: RoomRecord, plan: MovePlan) -> None:
        try:
            if self.surprise:
                await self._stop(record, plan, self.surprise)
                return
            for move in plan.moves:
                if move.state in ("evicting", "evicted"):
                    await self._observe(record, plan, move)
                    return
                if move.state == "planned":
                    await self._evict(record, plan, move)
                    return
            await self._conclude(record, plan)
        except (AbandonError, PodGoneError) as error:
            await self._end(record, plan, "abandoned", str(error))

    async def _evict(self, record: RoomRecord, plan: MovePlan, move: PodMove) -> None:
        """Raises AbandonError, or PodGoneError: the pod is not evicted."""
        if plan.interrupted:
            raise AbandonError("the process that carried it out has ended")
        if plan.purpose == "pod":
            namespace, _, name = plan.subject.partition("/")
            waiting = await self._cluster.pod(namespace, name, plan.subject_uid)
            if node_of(waiting):
                raise AbandonError("the waiting pod has found a place")
        self._check_nodes(plan)
        if len(record.evicted_at) >= self.service.settings.room_per_hour or move.namespace not in self.movable:
            raise AbandonError("the pod may not be evicted now")
        pod = await self._cluster.pod(move.namespace, move.name, move.uid)
        if pod["spec"].get("nodeName") != move.source or pod["metadata"].get("deletionTimestamp"):
            raise AbandonError(f"{move.namespace}/{move.name} is not on {move.source} any more")
        siblings = await self._cluster.owned_by(move.owner_uid, move.namespace, move.labels, MAX_LISTED)
        if siblings is None:
            raise AbandonError(f"the controller of {move.name} has too many pods")
        move.siblings = [each["metadata"]["uid"] for each in siblings]
        move.state, move.evicted_at = "evicting", self.wall()
        record.evicted_at = [*record.evicted_at, move.evicted_at]
        await self._save(record)
        why = f"moved to {move.to}, so that {plan.subject} gets an aligned place"
        evictions = self.service.metrics.room_evictions
        try:
            await self._cluster.evict(move.namespace, move.name, move.uid)
        except ApiError as error:
            evictions.labels("budget" if error.status == 429 else "failed").inc()
            move.state = "planned"
            raise AbandonError(f"{move.namespace}/{move.name} could not be evicted: {error}") from error
        evictions.labels("evicted").inc()
        move.state = "evicted"
        await self._cluster.tell(move.namespace, move.name, move.uid, "MovedForRoom", why, self.wall())
        await self._save(record)

    async def _observe(self, record: RoomRecord, plan: MovePlan, move: PodMove) -> None:
        """Whether the replacement runs where it should."""
        now, seconds = self.wall(), self.service.settings.room_seconds
        if move.state == "evicting" and now > move.evicted_at + UNCLEAR_SECONDS:
            try:
                pod = await self._cluster.pod(move.namespace, move.name, move.uid)
            except PodGoneError:
                pod = None
            if pod is not None and not pod["metadata"].get("deletionTimestamp"):
                move.state = "planned"
                raise AbandonError(f"it is not clear why {move.name} was not evicted")
        owned = await self._cluster.owned_by(move.owner_uid, move.namespace, move.labels, 2 * MAX_LISTED)
        new = [each for each in owned or () if each["metadata"]["uid"] not in move.siblings]
        for pod in new:
            node, phase = pod["spec"].get("nodeName"), pod.get("status", {}).get("phase")
            if phase == "Failed" or (node and node != move.to):
                await self._stop(record, plan, f"the replacement of {move.name} is {phase} on {node}, not on {move.to}")
                return
            if node == move.to and phase == "Running":
                move.state, move.replacement, plan.moved_at = "running", pod["metadata"]["name"], now
                why = f"instead of {move.name}, which was moved for {plan.subject}"
                uid = pod["metadata"]["uid"]
                await self._cluster.tell(move.namespace, move.replacement, uid, "MovedForRoom", why, now)
                await self._save(record)
                return
        if now > move.evicted_at + move.grace_seconds + seconds:
            await self._stop(record, plan, f"the replacement of {move.name} did not run within {seconds:.0f} s")

    async def _conclude(self, record: RoomRecord, plan: MovePlan) -> None:
        """All replacements run. Raises AbandonError, or PodGoneError: the waiting pod needs no room any more."""
        if plan.purpose == "pod":
            namespace, _, name = plan.subject.partition("/")
            pod = await self._cluster.pod(namespace, name, plan.subject_uid)
            node, status = pod["spec"].get("nodeName"), pod.get("status") or {}
            if node and node != plan.target:
                raise AbandonError(f"the waiting pod has found a place on {node}")
            if not (node and (status.get("startTime") or status.get("phase") == "Running")):
                if self.wall() > plan.moved_at + self.service.settings.room_seconds:
                    await self._stop(record, plan, "the waiting pod did not come to the room that was made")
                return
            if status.get("phase") == "Failed":
                await self._stop(record, plan, f"the waiting pod has failed on {node}")
                return
        shapes = [each for each in self.shapes.values() if each.name in plan.before]
        plan.after, _ = await self.planner.copies(shapes, self._names())
        try:
            self._check_shapes(plan, plan.after)
        except AbandonError as error:
            await self._stop(record, plan, str(error))
            return
        await self._end(record, plan, "done", "")

    async def _stop(self, record: RoomRecord, plan: MovePlan, why: str) -> None:
        record.stopped = f"plan {plan.id}: {why}"
        LOG.error("making room has stopped plan=%s subject=%s reason=%r", plan.id, plan.subject, why)
        self.service.metrics.room_stopped.set(1)
        await self._end(record, plan, "stopped", why)

    async def _end(self, record: RoomRecord, plan: MovePlan, state: Any, note: str) -> None:  # noqa: ANN401 - a Literal
        plan.state, plan.note, plan.ended_at = state, note, self.wall()
        record.plan, record.history = None, [plan, *record.history]
        self.service.metrics.room_plans.labels(state).inc()
        LOG.info("a plan has ended plan=%s subject=%s state=%s reason=%r", plan.id, plan.subject, state, note)
        await self._save(record)

    async def _save(self, record: RoomRecord) -> None:
        self.objector.use(record.plan)
        await asyncio.to_thread(self._store.save, record)


def move_of(evicted: EvictedPod, pod: Json) -> PodMove:
    """The move of a pod, from its manifest."""
    metadata = pod["metadata"]
    return PodMove(
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        owner_uid=controller_of(pod),
        source=evicted.node,
        to=evicted.to,
        requests=evicted.requests,
        grace_seconds=int(pod["spec"].get("terminationGracePeriodSeconds") or 0),
        labels={key: value for key, value in metadata["labels"].items() if key not in _OWN_LABELS},
    )


def in_window(window: str, now: float) -> bool:
    """Whether the time of the day, in UTC, is in the window. For example, 23:30 is in `22:00-04:00`. Empty: never."""
    if not window:
        return False
    begin, end = (int(text[:2]) * 60 + int(text[3:]) for text in window.split("-"))
    minute = int(now % 86_400 // 60)
    return begin <= minute < end if begin <= end else minute >= begin or minute < end
