"""Reads the recorded vectors of the NRI policy; see tests/vectors/README.md."""

import lzma
import random
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import orjson

from extender.conformance import nri_scenario
from extender.nri.events import Node, NriOutcome, create
from extender.nri.machine import NriMachine
from extender.wire.nri_machines import machine_from_json, read_machines
from extender.wire.nri_scenarios import NRIScenario, container_of

VECTORS = Path(__file__).parents[2] / "vectors" / "nri"
MACHINES = VECTORS / "machines.json.xz"
GAPS = "gaps"
"""Not a theme: scenarios for rules that no theme exercises, and for faults that the replay once had."""
THEMES = tuple(sorted({path.name.removesuffix(".jsonl.xz") for path in VECTORS.glob("*.jsonl.xz")} - {GAPS}))


@cache
def _documents() -> dict[str, Any]:
    return dict(read_machines(MACHINES.read_bytes()))


def machine_names() -> list[str]:
    """The names of all machines."""
    return sorted(_documents())


def snapshot(name: str) -> dict[str, Any]:
    """The snapshot of the machine *name*, as it is written in the file."""
    return dict(_documents()[name])


@cache
def machine(name: str) -> NriMachine:
    """The machine *name*."""
    return machine_from_json(_documents()[name], name)


def scenarios(theme: str) -> list[dict[str, Any]]:
    """All scenarios of *theme*."""
    with lzma.open(VECTORS / f"{theme}.jsonl.xz") as lines:
        return [orjson.loads(line) for line in lines]


def sample(theme: str, count: int, seed: int = 19) -> list[dict[str, Any]]:
    """*count* scenarios of *theme*, always the same ones for a seed."""
    with lzma.open(VECTORS / f"{theme}.jsonl.xz") as lines:
        chosen = random.Random(seed).sample(list(lines), count)
    return [orjson.loads(line) for line in chosen]


def creations(scenario: NRIScenario, machine: NriMachine) -> Iterator[partial[tuple[Node, NriOutcome]]]:
    """The creations of *scenario*, each on the node as the steps before it left it. A call replays it again.

    Ends at a step with several possible results.
    """
    under_way = nri_scenario._begin(scenario, machine)
    if isinstance(under_way, str):
        return
    for step in scenario.steps:
        if len(under_way.branches) != 1:
            return
        node = under_way.branches[0].node
        if step.o == "new" and step.p in node.books.pods:
            yield partial(create, node, container_of(step, node.books.pods[step.p].qos, machine.memory_total_bytes))
        under_way.step(step)
