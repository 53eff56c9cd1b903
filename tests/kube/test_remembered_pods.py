"""The caches of pods that no longer exist are limited in bytes, for any number of pods and any content."""

import gc
from typing import Any

from extender.kube.feed import MAX_SHAPES_BYTES, read_shape
from extender.kube.pods import PodDecoder
from extender.recent import RecentBytes
from extender.replay.pod import Pod


def reduced_specs(count: int) -> list[bytes]:
    """As the watch keeps pods of 110 containers that are all different: 2 KiB each, and 60 KiB as a Pod."""
    decode = PodDecoder()
    containers = [{"name": f"c{i}", "image": "i"} for i in range(110)]
    found = []
    for number in range(count):
        pod: dict[str, Any] = {
            "metadata": {"uid": f"u{number}", "name": f"p{number}", "labels": {"number": str(number)}},
            "spec": {"nodeName": "node-a", "containers": containers},
        }
        decoded = decode(pod)
        assert decoded is not None
        found.append(decoded[1].reduced)
    return found


def kept_pods() -> int:
    gc.collect()
    return sum(isinstance(each, Pod) for each in gc.get_objects())


def test_pods_that_are_gone_keep_a_limited_number_of_bytes() -> None:
    """Seen red: 20,000 specs of up to 4 KiB each were remembered, with a Pod of up to 100 kB for each."""
    specs, before = reduced_specs(500), kept_pods()
    weight = read_shape(specs[0]).weight_bytes
    assert len(specs) * weight > 1.5 * MAX_SHAPES_BYTES

    for spec in specs:
        read_shape(spec)

    assert kept_pods() - before <= MAX_SHAPES_BYTES // weight


def test_the_last_results_are_kept_and_none_is_made_twice_while_it_is() -> None:
    made: list[int] = []

    def make(number: int) -> str:
        made.append(number)
        return str(number)

    recent: RecentBytes[int, str] = RecentBytes(10_000, lambda *_: 30)
    for number in (*range(400), 399, 398, 397):
        assert recent.of(number, lambda number=number: make(number)) == str(number)  # type: ignore[misc]

    assert made == list(range(400))
    assert recent.of(0, lambda: "again") == "again", "it has been forgotten"


def test_a_key_in_use_stays_whatever_else_comes() -> None:
    recent: RecentBytes[int, int] = RecentBytes(10_000, lambda *_: 30)
    for number in range(1000):
        recent.of(number, lambda number=number: number)  # type: ignore[misc]
        assert recent.of(-1, lambda number=number: number) == 0  # type: ignore[misc]
