"""A reservation as a value: whatever ends it, room is given back only if the pod is certain not to be on the node."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.pods import PodRegistry
from extender.cluster.store import NodeStore
from extender.scheduling.binder import SETTLING, BindFailure, BindOutcome, MaybeBound, NotBound, PodBound
from extender.scheduling.reservation import Reservation, Stage
from extender.wire.pods import pod_from_json
from tests.observations import observation_of
from tests.reports import pod_of, sample

POD = pod_from_json(pod_of(2, name="p"))
OUTCOMES: tuple[BindOutcome, ...] = (
    PodBound(),
    MaybeBound("no reply"),
    *(NotBound("no", failure) for failure in BindFailure),
)


class World:
    """Two empty nodes, and the pod described by a filter call."""

    def __init__(self) -> None:
        self.cluster, self.pods = NodeStore(stale_after_seconds=1e9, max_nodes=10), PodRegistry(10)
        for name in ("node-a", "node-b"):
            node = sample(name)
            observation = observation_of(name, node)
            self.cluster.observe(observation, 0.0)
        self.pods.describe(POD, 0, "", 0.0)

    def reservation(self, node_name: str = "node-a") -> Reservation:
        return Reservation(self.cluster, self.pods, POD, node_name, lambda: 1.0)

    def attempt(self, outcome: BindOutcome, node_name: str = "node-a") -> Reservation:
        """One bind call with this outcome."""
        with self.reservation(node_name) as reservation:
            reservation.reserve()
            reservation.send()
            reservation.settle(outcome)
        return reservation

    def is_held(self, node_name: str = "node-a") -> bool:
        return self.cluster.pods_of(node_name).ledger.find(POD.uid) is not None


@pytest.fixture
def world() -> World:
    return World()


def test_reserved_room_is_taken_before_anything_is_sent(world: World) -> None:
    with world.reservation() as reservation:
        assert not world.is_held()
        reservation.reserve()
        assert world.is_held()
        assert reservation.is_safe
        reservation.roll_back()

    assert not world.is_held()


def test_a_committed_pod_is_on_the_node(world: World) -> None:
    reservation = world.attempt(PodBound())

    assert reservation.stage is Stage.COMMITTED
    assert world.is_held()
    assert world.pods.get(POD.uid).bound_to == "node-a"


@pytest.mark.parametrize(("is_sent", "stage"), [(False, Stage.ROLLED_BACK), (True, Stage.IN_DOUBT)])
def test_a_call_that_fails_rolls_back_before_sending_and_is_in_doubt_after(
    world: World,
    is_sent: bool,  # noqa: FBT001
    stage: Stage,
) -> None:
    reservation = world.reservation()

    def call() -> None:
        with reservation:
            reservation.reserve()
            if is_sent:
                reservation.send()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        call()

    assert reservation.stage is stage
    assert world.is_held() is is_sent
    assert world.pods.get(POD.uid).in_doubt_on == ("node-a" if is_sent else None)


def test_a_binding_that_succeeds_elsewhere_gives_the_doubtful_room_back(world: World) -> None:
    world.attempt(MaybeBound("no reply"), "node-a")

    world.attempt(PodBound(), "node-b")

    assert not world.is_held("node-a")
    assert world.is_held("node-b")


@pytest.mark.parametrize(
    "step", [Reservation.commit, Reservation.roll_back, Reservation.leave_in_doubt, Reservation.reserve]
)
def test_a_reservation_has_one_exit(world: World, step: Callable[[Reservation], None]) -> None:
    for outcome in OUTCOMES[:3]:
        reservation = world.attempt(outcome)

        with pytest.raises(RuntimeError, match="a reservation that is"):
            step(reservation)


def test_nothing_is_committed_or_in_doubt_that_was_not_sent(world: World) -> None:
    with world.reservation() as reservation:
        reservation.reserve()
        for step in (reservation.commit, reservation.leave_in_doubt):
            with pytest.raises(RuntimeError, match="a reservation that is reserved cannot become"):
                step()


@given(st.lists(st.sampled_from(OUTCOMES[1:])))
def test_room_in_doubt_stays_until_an_answer_settles_it(outcomes: list[BindOutcome]) -> None:
    """Also if a repeated call could not even be sent: the first binding may still arrive."""
    world, in_doubt = World(), False
    for outcome in outcomes:
        reservation = world.attempt(outcome)

        assert reservation.is_repeat is in_doubt
        if isinstance(outcome, MaybeBound):
            in_doubt = True
        elif isinstance(outcome, NotBound) and outcome.failure in SETTLING:
            in_doubt = False
        assert world.is_held() is in_doubt
