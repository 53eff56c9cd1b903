"""Globs against their definition in words, and the work that they take."""

from dataclasses import replace
from time import process_time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.kubelet.budget import Budget
from extender.kubelet.errors import OutOfStepsError
from extender.nri.affinity import Expression
from extender.nri.objects import NriContainer, QoS, RuntimeResources
from extender.nri.text import glob_match
from extender.wire.errors import WireError
from extender.wire.nri_scenarios import MAX_GLOB, MAX_GLOBS, NriStep, config_from_json, pod_of

SHARE = 100_000
"""Steps that each class of nodes gets before any gets more."""
WORDS = "abcdefghijklmnopqrstuvwxyz"
_ITEMS = ("*", "a", "b", "/", "?", "[ab]", "[^a]", "[a-b]", "[^/]")


def _fits_at(items: list[str], text: str) -> bool:
    """Whether the text begins with these items, none of which is a star."""
    accepted = {"[ab]": "ab", "[a-b]": "ab"}
    refused = {"?": "/", "[^a]": "a", "[^/]": "/"}
    return len(items) <= len(text) and all(
        char not in refused[item] if item in refused else char in accepted.get(item, item)
        for item, char in zip(items, text, strict=False)
    )


def _matches(items: list[str], text: str) -> bool:
    """`filepath.Match` in words: what is between stars takes the first place at which it fits, and stays there."""
    parts: list[list[str]] = [[]]
    for item in items:
        parts[-1].append(item) if item != "*" else parts.append([])
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        places = [0]
        if number:
            places = [i for i in range(len(text) + 1) if "/" not in text[:i]]
        fitting = (i for i in places if _fits_at(part, text[i:]) and (not is_last or i + len(part) == len(text)))
        place = next(fitting, None)
        if place is None:
            return False
        text = text[place + len(part) :]
    return not text


@given(st.lists(st.sampled_from(_ITEMS), max_size=8), st.text("ab/", max_size=10))
@example(["*", "[^a]", "*", "b"], "b/b")
@example(["*", "?", "b", "*", "b"], "abab")
def test_a_glob_matches_what_its_definition_says(items: list[str], text: str) -> None:
    assert glob_match("".join(items), text) == _matches(items, text)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("x" * 900_000, "ns"),
        ("*[" + "a" * 16_000 + "]*", "".join(map(chr, range(300, 3_000)))),
        ("*" + "?a" * 3_500 + "x*", WORDS * 9_000),
        ("*a" * 5_000 + "b", "ab" * 20_000),
        ("*" + "a" * 120 + "b", "a" * 400_000),
    ],
)
def test_what_takes_long_ends_with_the_budget(pattern: str, text: str) -> None:
    with pytest.raises(OutOfStepsError):
        glob_match(pattern, text, Budget(SHARE))


@pytest.mark.parametrize(("pattern", "text"), [("*" + "a" * 120 + "b*", "a" * 160_000), ("*a?" * 80, "aab" * 30_000)])
def test_a_budget_of_steps_is_a_fraction_of_a_second(pattern: str, text: str) -> None:
    began = process_time()
    glob_match(pattern, text, Budget(SHARE))
    assert process_time() - began < 1


def test_the_parts_of_a_joint_key_are_counted() -> None:
    pod = pod_of(NriStep(o="pod", id="p", n="n" * 200))
    none = RuntimeResources(0, 0, 0, 0)
    container = NriContainer("c", "p", "c", none, 0, pod.annotated_resources, None, {}, "", {})  # type: ignore[arg-type]
    joint = Expression(":,," + ",".join(["pod/name"] * 1_800), "Matches", ("*" + "x" * 20,))
    budget = Budget(SHARE)
    assert not joint.matches(container, replace(pod, qos=QoS.BURSTABLE), budget)
    assert 1_800 < budget.used < 200_000


@pytest.mark.parametrize("name", ["reservedPoolNamespaces", "controllableInterrupts"])
@pytest.mark.parametrize("globs", [["x" * (MAX_GLOB + 1)], ["x"] * (MAX_GLOBS + 1)])
def test_long_lists_of_patterns_in_a_configuration_are_a_fault_of_that_field(name: str, globs: list[str]) -> None:
    with pytest.raises(WireError, match="at most 256") as error:
        config_from_json({name: globs}, "nri.config")
    assert error.value.field.startswith(f"nri.config.{name}")
