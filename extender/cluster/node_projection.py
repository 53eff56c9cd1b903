"""The projection of one node, computed when it is first read after a change, or elsewhere if that takes long.

A projection that takes more than `Allowance` is not computed by a read: `is_changing` is True until `finish` brings the
result of `work`, which any thread may compute. Until then nothing about the node is certain.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final, NamedTuple

from extender.cluster.projection import Projection, ProjectionInput, project
from extender.cluster.steps import ElsewhereError, Steps
from extender.cluster.sudden_exit import is_known_to_survive, survives_sudden_exit
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Verdict
from extender.replay.possible_states import PossibleStates


class Prediction(NamedTuple):
    """What is predicted for a pod in flight: `verdicts`, one for each possible outcome; `complete`: these are all.

    `state`: the last report's.
    """

    kubelet: Kubelet
    state: ManagerState
    verdicts: tuple[Verdict, ...]
    complete: bool


class Allowance:
    """What reads may cost at once: `of_one` new steps of one projection, and what `limit` sets for all nodes."""

    __slots__ = ("_left", "_one")

    def __init__(self, of_one: float = inf) -> None:
        self._one = of_one
        self._left: float = inf

    @property
    def of_one(self) -> float:
        """For the next projection."""
        return min(self._one, self._left)

    def spend(self, steps: int) -> None:
        """Count the steps of a projection."""
        self._left = max(0, self._left - steps)

    def limit(self, steps: float = inf) -> None:
        """Allow *steps* from now on, for all nodes together."""
        self._left = steps


class LateProjection(NamedTuple):
    """A projection of `given` that was computed elsewhere. `steps`: its steps and the earlier ones."""

    given: ProjectionInput
    projection: Projection
    steps: Steps


class NodeProjection:
    """See the file's text. `given`: its input; None while no verdict is possible. `steps`: the steps done for it."""

    __slots__ = ("_allowance", "_is_late", "_projected", "given", "steps")

    def __init__(self, allowance: Allowance) -> None:
        self._allowance: Final = allowance
        self.given: ProjectionInput | None = None
        self.steps = Steps()
        self._projected: tuple[ProjectionInput, Projection] | None = None
        self._is_late = False
        """Whether `work` computes the projections, until one of them is up to date."""

    @property
    def now(self) -> Projection | None:
        """The projection of `given`; None if no verdict is possible, or if it takes too long."""
        given, projected = self.given, self._projected
        if given is None:
            return None
        if projected is None or projected[0] is not given:
            if projected is not None and projected[0].is_alike(given):
                projected = given, projected[1]
            else:
                projected = None if self._is_late else self._computed(given)
            if projected is None:
                return None
            self._projected = projected
        return projected[1]

    def _computed(self, given: ProjectionInput) -> tuple[ProjectionInput, Projection] | None:
        if _is_as_reported(given):  # most nodes
            return given, Projection(possible=PossibleStates((given.reported,)))
        try:
            return given, project(given, self.steps, limit=self._allowance.of_one)
        except ElsewhereError:
            self._is_late = True
            return None
        finally:
            self._allowance.spend(self.steps.work)

    @property
    def is_changing(self) -> bool:
        """Whether the projection is not known yet."""
        return self.given is not None and self.now is None

    def possible(self, reported: ManagerState, is_computed_elsewhere: Callable[[], bool]) -> PossibleStates:
        """The possible states of the node. While they are computed elsewhere: its *reported* state, incomplete."""
        if self.now is None and not is_computed_elsewhere():
            work = self.work()
            if work is not None:
                self.finish(work())
        found = self.now
        return PossibleStates((reported,), complete=False, changing=True) if found is None else found.possible

    def work(self) -> Callable[[], LateProjection] | None:
        """Computes the projection of a node that is changing; None if it is not. One at a time for each node."""
        if not self.is_changing or self.given is None:
            return None
        steps, self.steps = self.steps, Steps()
        return partial(_computed_late, self.given, steps)

    def finish(self, late: LateProjection) -> None:
        """Take the result of `work`. Its projection counts if pods and report are still the same."""
        if self.given is None or late.given.reported is not self.given.reported:
            return
        self.steps = late.steps
        if late.given.is_alike(self.given):
            self._projected, self._is_late = (self.given, late.projection), False

    def leave_out(self) -> None:
        """Leave the next projection to `work`."""
        self._is_late = True

    def is_safe(self, at_risk_before: frozenset[str]) -> bool:
        """Whether every pod in flight is certain to be admitted, except those that were not certain before."""
        projection = self.now
        if projection is None or projection.one_order:
            return not self.is_changing
        return projection.complete and projection.at_risk <= at_risk_before

    def is_admitted(self, uid: str) -> bool:
        """True if every predicted outcome for the pod in flight is admission, or there is no prediction."""
        projection = self.now
        if projection is None or uid not in projection.verdicts:
            return not self.is_changing
        return projection.complete and uid not in projection.at_risk

    def prediction(self, uid: str) -> Prediction | None:
        """The prediction for a pod in flight; None if there is none."""
        given, projection = self.given, self.now
        if given is None or projection is None or uid not in projection.verdicts:
            return None
        return Prediction(given.kubelet, given.reported, projection.verdicts[uid], projection.complete)

    def survives_sudden_exit(self, uid: str, now: float) -> Callable[[int], bool] | None:
        """Computes whether a pod in flight is still certain to be admitted if any single other pod exits unobserved.

        None: it is certain, or there is no prediction for the pod. The argument of the returned function is about how
        many admissions it may replay. It is pure, any thread may call it, and it takes long on nodes with many pods.
        """
        projection = self.now
        if self.is_changing:
            return lambda _: False
        if self.given is None or projection is None or uid not in projection.verdicts:
            return None
        given = replace(self.given, now=now)
        self.steps.begin()
        if is_known_to_survive(given, uid, projection, self.steps):
            return None
        return partial(survives_sudden_exit, given, uid)


def _is_as_reported(given: ProjectionInput) -> bool:
    """Whether nothing is known of the node but its report."""
    pods = given.ledger
    beside_report = pods.events or pods.left or pods.leaving or pods.starting or given.vanished or given.maybe_gone
    return not beside_report and not given.contradictory


def _computed_late(given: ProjectionInput, steps: Steps) -> LateProjection:
    return LateProjection(given, project(given, steps), steps)
