"""What a state file may and may not contain; `test_vectors` goes from recorded state files to verdicts."""

from dataclasses import replace

import pytest

from extender.replay.observed import ObservedStateError, check_observed
from tests.reports import sample


def test_bytes_that_kubelets_until_1_31_lose_in_overlapping_groups_are_no_contradiction() -> None:
    """Seen in the drill: three pods on overlapping groups left, and a gibibyte stayed reserved for nobody."""
    for version, believed in (("v1.31.0", True), ("v1.32.0", False)):
        node = sample(version=version)
        first, *rest = node.state.memory.nodes
        name, amounts = first.amounts[0]
        lost = amounts._replace(reserved=amounts.reserved + 1024, free=amounts.free - 1024)
        nodes = (first._replace(amounts=((name, lost), *first.amounts[1:])), *rest)
        state = replace(node.state, memory=replace(node.state.memory, nodes=nodes))

        if believed:
            check_observed(node.kubelet, state)
        else:
            with pytest.raises(ObservedStateError, match="1024 bytes of memory are reserved"):
                check_observed(node.kubelet, state)
