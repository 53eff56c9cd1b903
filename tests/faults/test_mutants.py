"""The cheap ones of the mutants, whose faults are no matter of time: the drill of each attack sees its mutant."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.attack_drill import play
from tests.faults.attacks import ATTACKS
from tests.faults.author import Author, WildNode
from tests.faults.mutants import OF_ATTACK

MADE = """
import os, sys
from extender import app
from tests.faults import mutants
for name in sys.argv[1:]:
    if not (child := os.fork()):
        mutants.main(name, ["--version"])
    os.waitpid(child, 0)
"""


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


def test_each_mutant_can_be_made() -> None:
    """A mutant of what was renamed would show nothing. Each is made in a copy of one process."""
    names = sorted({each.__name__ for each in OF_ATTACK.values()})
    run = subprocess.run([sys.executable, "-c", MADE, *names], check=True, capture_output=True, text=True)
    assert run.stdout.count("numa-extender, version ") == len(names), run.stderr


def test_each_attack_has_a_mutant() -> None:
    assert OF_ATTACK.keys() == {Author.name, WildNode.name, *(kind.name for kind in ATTACKS)}
