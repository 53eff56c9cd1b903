"""The cheap ones of the mutants, whose faults are no matter of time: the drill of each attack sees its mutant."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.attack_drill import play
from tests.faults.attacks import ATTACKS
from tests.faults.author import Author, WildNode
from tests.faults.mutants import OF_ATTACK


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("B3 mirror pods", "honest pods were not placed"),
        ("B8 refusals", "were offered no honest node"),
        ("S4 sibling", "it is offered more than it has"),
    ],
)
def test_an_extender_without_one_property_fails_its_drill(tmp_path: Path, name: str, words: str) -> None:
    (attack,) = (kind() for kind in ATTACKS if kind.name == name)

    seen = play(tmp_path, attack, windows=1, seconds=2.0, mutant=OF_ATTACK[name].__name__)

    assert any(words in fault for fault in seen.broken), seen.broken


@pytest.mark.parametrize("name", sorted({each.__name__ for each in OF_ATTACK.values()}))
def test_each_mutant_can_be_made(name: str) -> None:
    """A mutant of what was renamed would show nothing."""
    subprocess.run([sys.executable, "-m", "tests.faults.mutants", name, "--version"], check=True, capture_output=True)


def test_each_attack_has_a_mutant() -> None:
    assert OF_ATTACK.keys() == {Author.name, WildNode.name, *(kind.name for kind in ATTACKS)}
