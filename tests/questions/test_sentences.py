"""The numbers in the sentences about refusals agree with the pod and with a count in the naive kubelet."""

import re
from itertools import islice

from tests.questions.sentences import AVAILABLE, MOST, fault, refusals


def test_the_numbers_of_random_sentences_are_right() -> None:
    """Earlier containers were not counted: "wants 7 CPUs from one NUMA node, and the most that is free on one is 8"."""
    found = list(islice(((*each, seed) for seed in range(60) for each in refusals(seed)), 60))

    assert {seed: f"{text} -> {wrong}" for text, pod, naive, seed in found if (wrong := fault(text, pod, naive))} == {}
    assert sum(bool(MOST.match(text)) for text, *_ in found) >= 5
    assert sum(bool(AVAILABLE.match(text)) for text, *_ in found) >= 3


def test_devices_that_an_init_container_leaves_count() -> None:
    """Seen red: "wants 1 vendor.example/gpu, and 0 are available" for 2, of which one is the init container's."""
    found = [each for seed in (23000559, 23001003) for each in refusals(seed)]

    assert sum("wants 2 vendor.example/gpu, and 1 vendor.example/gpu is available" in text for text, *_ in found) == 2
    assert [wrong for each in found if (wrong := fault(*each))] == []


def test_a_wrong_number_in_a_sentence_is_found() -> None:
    changed = [
        fault(re.sub(r"is (\d+)", lambda number: f"is {int(number[1]) + 1}", text), pod, naive)
        for seed in range(60)
        for text, pod, naive in refusals(seed)
        if MOST.match(text)
    ]
    assert changed
    assert all("are free on NUMA" in each for each in changed)
