"""What a state file may and may not contain; `test_vectors` goes from recorded state files to verdicts."""

from dataclasses import replace

from extender.kubelet.observed import contradictions
from tests.reports import sample
from tests.truth import readmitted_states


def test_bytes_that_a_running_kubelet_loses_are_no_contradiction_and_stop_the_next_start() -> None:
    """Seen in the drill: three pods on overlapping groups left, and a gibibyte stayed reserved for nobody."""
    for version, starts in (("v1.31.0", True), ("v1.32.0", False)):
        node = sample(version=version)
        first, *rest = node.state.memory.nodes
        name, amounts = first.amounts[0]
        lost = amounts._replace(reserved=amounts.reserved + 1024, free=amounts.free - 1024)
        nodes = (first._replace(amounts=((name, lost), *first.amounts[1:])), *rest)
        state = replace(node.state, memory=replace(node.state.memory, nodes=nodes))

        running, at_start = contradictions(node.kubelet, state)
        assert running == {}
        reasons = [error.reason for error in at_start.values()]
        assert [reason[:33] for reason in reasons] == ([] if starts else ["1024 bytes of memory are reserved"])


def test_every_state_after_pods_were_admitted_again_is_read_and_answered_as_its_kubelet_does() -> None:
    """Before: 36 of 3,894 such states were refused (`python -m tests.truth readmitted_states`)."""
    states, wrong = readmitted_states.check(2)

    assert wrong == []
    assert states > 500
