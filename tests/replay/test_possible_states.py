"""One of several states, as a value."""

from extender.cluster.node_class import key_of
from extender.kubelet.admission import admit
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Certainty
from extender.replay.possible_states import NO_STATES, PossibleStates
from extender.wire.pods import pod_from_json
from tests.reports import pod_of, sample

NODE = sample()
POD = resolve(pod_from_json(pod_of(4)), NODE.kubelet.rules)
AFTER = admit(NODE.kubelet, NODE.state, POD).state


def test_states_that_become_equal_count_once() -> None:
    possible = PossibleStates((AFTER, NODE.state), complete=False).release([POD.uid])

    assert [state.key for state in possible.states] == [NODE.state.key]
    assert not possible.complete, "a release does not tell which states were left out"


def test_the_key_is_equal_for_the_same_states_in_any_order() -> None:
    both = PossibleStates((NODE.state, AFTER))

    assert key_of(both) == key_of(PossibleStates((AFTER, NODE.state)))
    assert key_of(both) != key_of(PossibleStates((AFTER, NODE.state), complete=False))
    assert key_of(both) != key_of(PossibleStates((AFTER,)))


def test_an_admission_is_certain_only_if_all_states_agree() -> None:
    pods = [resolve(pod_from_json(pod_of(10, name=name)), NODE.kubelet.rules) for name in ("a", "b", "c")]
    full = admit(NODE.kubelet, admit(NODE.kubelet, NODE.state, pods[0]).state, pods[1]).state
    sure = PossibleStates((NODE.state,)).admit(NODE.kubelet, pods[2])
    either = PossibleStates((NODE.state, full)).admit(NODE.kubelet, pods[2])

    assert len({type(outcome.verdict) for outcome in either}) == 2
    assert sure[0].verdict.certainty is not Certainty.POSSIBLE
    assert all(outcome.verdict.certainty is Certainty.POSSIBLE for outcome in either)


def test_no_states_are_neither_certain_nor_have_a_first_one() -> None:
    assert NO_STATES.first is None
    assert not NO_STATES.is_certain
    assert PossibleStates((NODE.state,)).is_certain
