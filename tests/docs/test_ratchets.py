"""How much code there is, and how much of it a call enters, may only fall."""

from collections.abc import Mapping

from tests.docs.ratchets import counted, recorded
from tests.docs.tracing import Entries


def test_no_count_is_above_the_recorded_one(entered: Mapping[str, Entries]) -> None:
    limits, now = recorded(), counted(entered)
    assert limits.keys() == now.keys()
    assert {name: f"{count}, recorded {limits[name]}" for name, count in now.items() if count > limits[name]} == {}
