"""Room on a node that is reserved for one pod while its binding is decided and sent.

The steps are those of kube-scheduler's Reserve plugins: reserve, then one exit: commit, roll back, or in doubt.

Rules of this file
- The room is reserved before the binding is sent, and released only if the pod is certain not to be on the node.
- Every reservation ends in exactly one exit. If a call ends without a result (it was cancelled, or failed), it rolls
  back if the binding was not sent, and leaves the pod in doubt if it was sent.
- An earlier binding of the pod to the node can be in doubt already. Its room is then in place, and stays until an
  answer of the API server settles both.
"""

from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Final, Self

from extender.cluster.events import BindingInDoubt, PodForgotten
from extender.cluster.pods import PodRegistry
from extender.cluster.store import NodeStore
from extender.replay.pod import Pod
from extender.scheduling.binder import SETTLING, BindOutcome, MaybeBound, PodBound


class Stage(Enum):
    """The states of a reservation."""

    NEW = "new"
    RESERVED = "reserved"
    SENT = "sent"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    IN_DOUBT = "in doubt"


class Reservation:
    """The reservation of *node_name* for *pod*. As a context it ends with the call; see the rules of this file.

    `is_repeat`: an earlier binding of the pod to the node is in doubt.
    """

    def __init__(
        self, cluster: NodeStore, pods: PodRegistry, pod: Pod, node_name: str, clock: Callable[[], float]
    ) -> None:
        self._cluster, self._pods, self._clock = cluster, pods, clock
        self.pod: Final = pod
        self.node_name: Final = node_name
        self.is_repeat: Final = cluster.pods_of(node_name).ledger.find(pod.uid) is not None
        self._is_safe: Callable[[], bool] | None = None
        self.stage = Stage.NEW

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if self.stage is Stage.RESERVED:
            self.roll_back()
        elif self.stage is Stage.SENT:
            self.leave_in_doubt()

    def reserve(self) -> None:
        """Reserve the room, unless it is a repeat and the room is in place."""
        self._move(Stage.RESERVED, Stage.NEW)
        if not self.is_repeat:
            self._is_safe = self._cluster.assume(self.node_name, self.pod, self._clock())

    @property
    def is_safe(self) -> bool:
        """After `reserve`: whether every pod in flight to the node is still as certain to be admitted as before."""
        return self._is_safe is None or self._is_safe()

    def send(self) -> None:
        """The binding is about to be sent: from here on its outcome can be unknown."""
        self._move(Stage.SENT, Stage.RESERVED)

    def settle(self, outcome: BindOutcome) -> None:
        """End the reservation as the outcome of the binding requires."""
        if isinstance(outcome, PodBound):
            self.commit()
        elif isinstance(outcome, MaybeBound) or (self.is_repeat and outcome.failure not in SETTLING):
            self.leave_in_doubt()
        else:
            self.roll_back(settles=True)

    def commit(self) -> None:
        """The pod is on the node. If a binding to another node was in doubt, the room there is released."""
        self._move(Stage.COMMITTED, Stage.SENT)
        elsewhere = self._pods.get(self.pod.uid).in_doubt_on
        self._pods.bind(self.pod.uid, self.node_name)
        if elsewhere is not None and elsewhere != self.node_name:
            self._cluster.apply(PodForgotten(elsewhere, self.pod.uid), now=self._clock())

    def roll_back(self, *, settles: bool = False) -> None:
        """This call has certainly not put the pod on the node: release the room.

        *settles*: earlier calls have not done so either.
        """
        self._move(Stage.ROLLED_BACK, Stage.RESERVED, Stage.SENT)
        if settles or not self.is_repeat:
            self._cluster.apply(PodForgotten(self.node_name, self.pod.uid), now=self._clock())

    def leave_in_doubt(self) -> None:
        """It is not known whether the pod is on the node: the room stays until the watch or a timeout decides."""
        self._move(Stage.IN_DOUBT, Stage.SENT)
        self._pods.doubt(self.pod.uid, self.node_name, self._clock())
        self._cluster.apply(BindingInDoubt(self.node_name, self.pod.uid), now=self._clock())

    def _move(self, stage: Stage, *allowed: Stage) -> None:
        if self.stage not in allowed:
            raise RuntimeError(f"a reservation that is {self.stage.value} cannot become {stage.value}")
        self.stage = stage
