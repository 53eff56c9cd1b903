"""Reads the recorded answers of DRA; see tests/vectors/dra/README.md."""

import lzma
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from extender.conformance.agreement import Difference
from extender.conformance.dra_scenario import DraScenario, check, scenario_from_json

VECTORS: Final = Path(__file__).parents[2] / "vectors" / "dra"


def lines(name: str) -> Iterator[dict[str, Any]]:
    with lzma.open(VECTORS / f"{name}.jsonl.xz") as file:
        yield from map(orjson.loads, file)


def scenarios(name: str, theme: str = "") -> Iterator[DraScenario]:
    """The lines of a file; with *theme* only its worlds."""
    return (scenario_from_json(line) for line in lines(name) if not theme or line.get("theme") == theme)


def first_difference(theme: str) -> Sequence[Difference]:
    """Of the first world of a theme that differs; empty: none does."""
    found = (check(world, Counter()) for world in scenarios("dra-1.36", theme))
    return next((differences for differences in found if differences), ())
