"""The bind verb: check once more that the node admits the pod, reserve its room, and bind it.

Filter is advice, bind decides. kube-scheduler sends the filter call of the next pod before the bind call of the last
one, so the state that filter saw may be outdated.

Rules of this file
- One binding at a time for each node, the call to the API server included. Kubelets admit pods in the order in which
  the API server bound them, so that must be the order that was judged.
- A repeated call gets the same answer: a pod that is on the node is bound. A pod whose binding to the node is in doubt
  has its room already, and is not judged against itself.
- A pod is bound only under the name and UID that a filter call described.
- This service learns of a pod's end some time after it. If the end of any single other pod would make the kubelet
  refuse this one, the pod is deferred for up to `defer_seconds`, and filter offers it other nodes. Just after an outage
  of the API server such ends are many, and the pod is deferred until kubelets have reported them.
- The call waits, up to `wait_seconds`, where an objector expects that its reason passes soon, and while the API server
  is away, because after a failed call the pod waits for kube-scheduler's back-off. To send a binding again is safe,
  because it names the pod's UID, and a pod gets one node only. Few calls wait at a time.
- The outcome for the node's pods in flight and this pod can take long to compute (`late_projections`). The call waits
  for it, up to `judge_seconds` before and after the room is reserved; then the pod is refused for now.
- A node whose kubelet is stopped or has just started takes no replayed pod.
- Each objector may keep the pod away from the node, in the order of the list; see `objections`.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from extender.cluster.sudden_exit import MAX_EXIT_ADMISSIONS, MAX_EXITS
from extender.replay.pod import Pod
from extender.scheduling.binder import (
    BY_ADMISSION_CHECK,
    RETRY,
    BindFailure,
    Binding,
    BindOutcome,
    GatedBinder,
    MaybeBound,
    NotBound,
    PodBound,
)
from extender.scheduling.locks import NodeLocks, SharedBudget
from extender.scheduling.objections import BindCall
from extender.scheduling.placement_annotation import ANNOTATION, placement_annotation
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.reservation import Reservation
from extender.scheduling.shared import SharedParts
from extender.wire.binding import ExtenderBindingArgs

LOG: Final = logging.getLogger(__name__)
_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 0.4
"""How soon a waiting call checks again; the pause doubles, because each check costs replays."""
MAX_WAITING: Final = 32
"""How many bind calls wait for a node to change, or for the API server: half of the places for scheduler calls."""

UNSETTLED: Final = NotBound(f"{RefusalReason.UNSETTLED.text}; {RETRY}", BindFailure.UNSETTLED)
STARTING: Final = NotBound(f"{RefusalReason.STARTING.text}; {RETRY}", BindFailure.STARTING)
SILENT: Final = NotBound(f"{RefusalReason.SILENT.text}; {RETRY}", BindFailure.STARTING)
STOPPED: Final = MaybeBound("the call has ended before its outcome was known")
NO_ACCESS: Final = NotBound(
    "this extender has no access to the API server: leave `bindVerb` out", BindFailure.NO_ACCESS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindSettings:
    """`seconds` limits the wait for the node's lock, `judge_seconds` the replays.

    `wait_seconds`, `defer_seconds`: see the rules.

    `certain_only`: whether a pod is bound only if it is certain to be admitted. `annotates`: whether the pod gets its
    predicted placement as an annotation.
    """

    seconds: float
    judge_seconds: float
    wait_seconds: float
    defer_seconds: float
    certain_only: bool
    annotates: bool


class Bind:
    """The verb."""

    def __init__(self, settings: BindSettings, shared: SharedParts) -> None:
        known, effects = shared.known, shared.effects
        self._settings, self._cluster, self._pods, self._link = settings, known.nodes, known.pods, known.link
        self._judge, self._objectors, self._clock = shared.judge, shared.objectors, effects.clock
        self._sleep, self._offload = effects.sleep, effects.offload
        self._locks = NodeLocks()
        self._waiting = asyncio.Semaphore(MAX_WAITING)
        self._admissions = SharedBudget(MAX_EXIT_ADMISSIONS, MAX_EXITS)

    async def bind(self, args: ExtenderBindingArgs) -> BindOutcome:
        """Bind the pod. Failures are returned, not raised."""
        binder = self._link.binder
        if binder is None:
            return NO_ACCESS
        pause = _PAUSE_SECONDS
        until = self._clock() + min(self._settings.wait_seconds, self._settings.seconds)
        while True:
            try:
                async with self._locks.hold(args.Node, self._settings.seconds):
                    outcome = await self._bind_locked(args, binder)
            except TimeoutError:
                return NotBound(f"other pods are being bound to {args.Node}; {RETRY}", BindFailure.BUSY)
            if self._clock() >= until or not await self._may_pass_soon(args, outcome) or self._waiting.locked():
                break
            async with self._waiting:
                await self._sleep(pause)
            pause = min(2 * pause, _MAX_PAUSE_SECONDS)
        if not isinstance(outcome, PodBound):
            is_refused = isinstance(outcome, NotBound) and outcome.failure in BY_ADMISSION_CHECK
            event, pod = "bind refused" if is_refused else "not bound", f"{args.PodNamespace}/{args.PodName}"
            LOG.info("%s pod=%s node=%s reason=%r", event, pod, args.Node, outcome.reason)
        return outcome

    async def _may_pass_soon(self, args: ExtenderBindingArgs, outcome: BindOutcome) -> bool:
        """Whether the pod was refused for a reason that is likely to pass within the call; see the file's rules."""
        if not isinstance(outcome, NotBound) or outcome.failure is BindFailure.AWAY:
            return not isinstance(outcome, PodBound)
        known = self._pods.get(args.PodUID)
        for objector in self._objectors:
            if await objector.passes_soon(known, args.Node, outcome):
                return True
        return False

    async def _bind_locked(self, args: ExtenderBindingArgs, binder: GatedBinder) -> BindOutcome:
        """One attempt, under the node's lock."""
        pod = self._pod_to_bind(args)
        if not isinstance(pod, Pod):
            return pod
        outcome: BindOutcome = STOPPED
        known = self._pods.get(pod.uid)
        for objector in self._objectors:
            pod = objector.pre_bind(pod, args.Node)
        call = BindCall(pod, args.Node, known)
        try:
            outcome = await self._bind_pod(call, binder)
        finally:
            for objector in self._objectors:
                objector.post_bind(call, outcome)
        return outcome

    async def _bind_pod(self, call: BindCall, binder: GatedBinder) -> BindOutcome:
        """Reserve the pod's room, and send the binding."""
        with Reservation(self._cluster, self._pods, call.pod, call.node_name, self._clock) as reservation:
            if reservation.is_repeat:
                reservation.reserve()
            elif (refused := await self._reserve(call, reservation)) is not None:
                return refused
            return await self._send(reservation, binder)

    def _pod_to_bind(self, args: ExtenderBindingArgs) -> Pod | PodBound | NotBound:
        """The pod to bind, or the answer if there is nothing to decide."""
        known = self._pods.get(args.PodUID)
        bound_to, pod = known.bound_to, known.pod
        if bound_to == args.Node:
            return PodBound()
        if bound_to is not None:
            return NotBound(f"the pod is on node {bound_to} already", BindFailure.CONFLICT)
        if pod is None:
            return NotBound(
                f"no filter call has described the pod with UID {args.PodUID}; {RETRY}", BindFailure.UNKNOWN_POD
            )
        if (pod.namespace, pod.name) != (args.PodNamespace, args.PodName):
            described = f"{pod.namespace}/{pod.name}"
            return NotBound(f"the pod with UID {args.PodUID} is {described}", BindFailure.CONFLICT)
        if not self._cluster.node_objects.may_exist(args.Node):
            return NotBound(f"there is no node {args.Node}", BindFailure.UNKNOWN_NODE)
        return pod

    async def _reserve(self, call: BindCall, reservation: Reservation) -> NotBound | None:
        """Check that the node admits the pod and reserve its room; None if that succeeded, else why not."""
        pod, node_name = call.pod, call.node_name
        for objector in self._objectors:
            if (refused := await objector.permit(call)) is not None:
                return refused
        judgement = await self._judge.answer_node(pod, node_name, self._settings.judge_seconds)
        is_replayed = judgement.merit is not None
        if is_replayed and node_name in self._cluster.starting(self._clock()):
            return SILENT if node_name in self._cluster.silent else STARTING
        if judgement.refusal is not None:
            return NotBound(f"{judgement.refusal.text}; {RETRY}", BindFailure.REFUSED)
        for objector in self._objectors:
            if (refused := objector.reserve(call)) is not None:
                return refused
        reservation.reserve()
        if not self._settings.certain_only:
            return None
        await self._judge.projections.settled(node_name, self._settings.judge_seconds)
        if reservation.is_safe and not (is_replayed and await self._defers_for_exits(pod, node_name)):
            return None
        return UNSETTLED

    async def _defers_for_exits(self, pod: Pod, node_name: str) -> bool:
        """Whether bind waits because the unobserved end of any single other pod would make the kubelet refuse the pod.

        If so, the pod is deferred. Bind also waits if the node has changed during the check.
        """
        now = self._clock()
        survives = self._cluster.survives_sudden_exit(node_name, pod.uid, now)
        if survives is None:
            return False
        with self._admissions.share() as max_admissions:
            has_survived = await self._offload(survives, max_admissions)
        if not self._cluster.is_admitted(node_name, pod.uid) or node_name in self._cluster.starting(self._clock()):
            return True
        if has_survived:
            return False
        deferred_seconds = self._pods.defer_for_exits(pod.uid, node_name, now)
        return deferred_seconds < self._settings.defer_seconds or self._link.may_miss_exits(node_name, now)

    async def _send(self, reservation: Reservation, binder: GatedBinder) -> BindOutcome:
        """Send the binding, and end the reservation as the outcome demands."""
        pod = reservation.pod
        reservation.send()
        try:
            outcome = await binder.bind(self._binding(pod, reservation.node_name))
        except BaseException:  # cancelled: the API server may have the binding, and the reservation ends in doubt
            self._link.note_failure(self._clock(), reservation.node_name)
            raise
        reservation.settle(outcome)
        if isinstance(outcome, MaybeBound) or (isinstance(outcome, NotBound) and outcome.failure is BindFailure.FAILED):
            self._link.note_failure(self._clock(), reservation.node_name)
        return outcome

    def _binding(self, pod: Pod, node_name: str) -> Binding:
        """The binding, with the predicted placement as an annotation if that is wanted and known."""
        projection = self._cluster.pods_of(node_name).projection
        predicted = projection.prediction(pod.uid) if self._settings.annotates else None
        text = "" if predicted is None else placement_annotation(predicted)
        annotations = {ANNOTATION: text} if text else {}
        return Binding(
            namespace=pod.namespace, name=pod.name, uid=pod.uid, node_name=node_name, annotations=annotations
        )
