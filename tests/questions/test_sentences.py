"""The numbers in the sentences about refusals agree with the pod and with a count in the naive kubelet."""

import re
from itertools import islice

from tests.questions.sentences import AVAILABLE, KEPT, MOST, PLACES, fault, refusals


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


def test_what_init_containers_leave_is_named_where_a_container_has_to_take_it_over() -> None:
    """Seen red: "wants 8 CPUs from one NUMA node, and what is free is spread over more", with 8 free on one."""
    found = [each for seed in (77000004, 77000039, 77000158) for each in refusals(seed)]

    assert [wrong for each in found if (wrong := fault(*each))] == []
    kept = [each for each in found if KEPT.match(each[0])]
    assert len(kept) >= 3
    assert all(
        "of init containers are on NUMA" in fault(re.sub(r"NUMA (\d)", "NUMA 3,\\1", each[0]), *each[1:])
        for each in kept
    )


def test_a_place_that_is_left_out_of_a_sentence_is_found() -> None:
    changed = [
        fault(re.sub(r"NUMA 0 or 1", "NUMA 1", text), pod, naive)
        for seed in range(60)
        for text, pod, naive in refusals(seed)
        if PLACES.match(text) and "NUMA 0 or 1" in text
    ]
    assert changed
    assert all("have enough" in each for each in changed)


def test_a_wrong_number_in_a_sentence_is_found() -> None:
    changed = [
        fault(re.sub(r"is (\d+)", lambda number: f"is {int(number[1]) + 1}", text), pod, naive)
        for seed in range(60)
        for text, pod, naive in refusals(seed)
        if MOST.match(text)
    ]
    assert changed
    assert all("are free on NUMA" in each for each in changed)
