"""docs/architecture.md: the four calls name the files that real calls enter, in that order, and each step once."""

import re
from collections import Counter
from collections.abc import Mapping
from itertools import groupby

import pytest

from tests.docs.test_architecture import section
from tests.docs.tracing import Entries


def named(way: str) -> list[str]:
    """The files of a way on the page, in order."""
    steps = re.findall(r"^\d+\. .*(?:\n {3,4}\S.*)*", section(way), re.MULTILINE)
    assert 3 <= len(steps) <= 10
    return [path for step in steps for path in re.findall(r"`([\w./-]+\.py)`", step)]


def stateful(way: str) -> set[str]:
    """The files of a way that several steps enter, as the page names them."""
    listed = re.search(r"^Entered more than once: (.*(?:\n.+)*)", section(way), re.MULTILINE)
    return set() if listed is None else set(re.findall(r"`([\w./-]+\.py)`", listed[1]))


@pytest.mark.parametrize("way", ["Filter", "Bind", "Report", "What-if"])
def test_a_way_names_the_files_that_a_call_enters_in_their_order(way: str, entered: Mapping[str, Entries]) -> None:
    files = named(way)
    assert [file for file in entered[way].files if file in files] == files


@pytest.mark.parametrize("way", ["Filter", "Bind", "Report"])
def test_a_way_enters_each_step_once(way: str, entered: Mapping[str, Entries]) -> None:
    """One file calls it, and does not come back to it after it has called another step."""
    steps = [file for file in named(way) if file not in stateful(way)]
    entrances: Counter[str] = Counter()
    for caller in {caller for caller, _ in entered[way].steps}:
        called = [file for by, file in entered[way].steps if by == caller and file in steps]
        entrances.update(file for file, _ in groupby(called))
    assert {file: entrances[file] for file in steps if entrances[file] != 1} == {}


@pytest.mark.parametrize("way", ["Filter", "Bind", "Report"])
def test_files_that_several_steps_enter_are_few_and_named(way: str, entered: Mapping[str, Entries]) -> None:
    files = stateful(way)
    assert len(files) <= 8
    assert files <= set(named(way))
    assert {file for file in files if [each for _, each in entered[way].steps].count(file) < 2} == set()
