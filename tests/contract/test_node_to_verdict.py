"""From a node's files, through the exporter and HTTP, to the verdict and placement that the real kubelet gave."""

import pytest

from tests.contract.recorded_nodes import Extender, Tally, recorded
from tests.replay.vectors import VERSIONS

SAMPLE = 40
"""Every so manieth recorded scenario; `python -m tests.contract.recorded_nodes` plays them all."""


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_nodes_get_the_recorded_verdicts(version: str) -> None:
    tally = _play(version, parts=SAMPLE * (5 if version == "1.36" else 1))

    assert tally.wrong == []
    assert tally.compared >= 6


def _play(version: str, parts: int) -> Tally:
    """The first node is reported by the program as it is installed, the others by its parts in this process."""
    with Extender() as extender:
        for node in recorded(version, 0, parts):
            extender.play(node, as_program=not extender.tally.compared)
    return extender.tally
