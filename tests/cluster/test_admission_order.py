"""Which orders are followed, against all that can be: every order of up to six pods, one by one."""

from collections.abc import Hashable, Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.admission_order import predecessors
from extender.cluster.ledger import Admit, BindingState, Event, Release
from extender.replay.pod import Pod
from extender.wire.pods import pod_from_json
from tests.reports import pod_of

SHAPES = [pod_from_json(pod_of(cpus)) for cpus in (2, 4, 6)]


def _admit(number: int, shape: int, created_at: int | None = 0, **more: object) -> Admit:
    uid = f"uid-{number}"
    pod = replace(SHAPES[shape], uid=uid, created_at=created_at)
    return replace(Admit(uid=uid, pod=pod, since=float(number)), **more)  # type: ignore[arg-type]


@st.composite
def ledgers(draw: st.DrawFn) -> tuple[list[Admit], list[Event], set[str]]:
    """Pods on their way; events; UIDs of pods that are told apart by their names."""
    count = draw(st.integers(2, 6))
    admits = [
        _admit(
            number,
            draw(st.sampled_from((0, 0, 1, 2))),
            draw(st.sampled_from((0, 1, 2, 2, None))),
            ordered=draw(st.sampled_from((True, True, True, False))),
            binding=draw(st.sampled_from((BindingState.ASSUMED,) * 9 + (BindingState.IN_DOUBT,))),
            started_at=draw(st.sampled_from((None, None, None, number + 0.5, number + 1.5))),
        )
        for number in range(count)
    ]
    events: list[Event] = list(admits)
    distinguished = {admit.uid for admit in admits if draw(st.integers(0, 9)) == 0}
    if draw(st.booleans()):
        gone = draw(st.integers(0, count - 1))
        events.insert(draw(st.integers(gone + 1, count)), Release(uid=f"uid-{gone}", due=0.0))
        distinguished.add(f"uid-{gone}")
    return admits, events, distinguished


def _orders(before: Sequence[int], done: int = 0) -> list[tuple[int, ...]]:
    """All orders in which each comes after those whose bits it has."""
    if done == (1 << len(before)) - 1:
        return [()]
    return [
        (number, *rest)
        for number in range(len(before))
        if not done >> number & 1 and not before[number] & ~done
        for rest in _orders(before, done | 1 << number)
    ]


@settings(max_examples=500, deadline=None)
@given(ledgers())
def test_every_outcome_is_followed_and_no_other(case: tuple[list[Admit], list[Event], set[str]]) -> None:
    admits, events, distinguished = case

    def outcome(order: tuple[int, ...]) -> tuple[Hashable, ...]:
        kept = [admits[number] for number in order]
        return tuple(
            a.uid if a.binding is BindingState.IN_DOUBT or a.uid in distinguished else a.pod.shape for a in kept
        )

    everything = _orders(predecessors(admits, events, {admit.uid for admit in admits}))
    followed = _orders(predecessors(admits, events, distinguished))

    assert {outcome(order) for order in followed} == {outcome(order) for order in everything}
    assert set(followed) <= set(everything)


def test_a_burst_of_one_deployment_has_one_order() -> None:
    admits = [_admit(number, 0) for number in range(20)]

    assert predecessors(admits, admits, ()) == [(1 << number) - 1 for number in range(20)]


def test_an_older_pod_bound_later_may_come_before_one_of_its_shape_if_a_third_tells_them_apart() -> None:
    """A kubelet that lists meets the oldest first, then the third, then the youngest, and never the other way round."""
    third, young, old = _admit(0, 1, created_at=1), _admit(1, 0, created_at=2), _admit(2, 0, created_at=0)

    assert (2, 0, 1) in _orders(predecessors([third, young, old], [third, young, old], ()))
    assert _orders(predecessors([young, old], [young, old], ())) == [(0, 1)]


def test_pods_whose_order_is_certain_need_no_comparison_of_their_shapes() -> None:
    admits = [_admit(number, 0, created_at=number) for number in range(6)]

    def shape_of(pod: Pod) -> object:
        raise AssertionError(pod.uid)

    assert predecessors(admits, admits, (), shape_of) == [(1 << number) - 1 for number in range(6)]
