"""Milliseconds and steps of a decision of the NRI policy, over the recorded creations of some machines."""

import json
import lzma
import time
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from extender.wire.nri_scenarios import NRIScenario, scenario_from_json
from tests.replay.nri.vectors import VECTORS, creations, machine

MACHINES = (
    ("s-n4c16", "2 sockets, 16 CPUs"),
    ("s-4p", "4 sockets, 32 CPUs"),
    ("nri-4-socket-server-nosnc", "4 sockets, 144 CPUs"),
    ("r-96em64t", "4 sockets, 96 CPUs, 16 caches"),
    ("r-256ppc", "8 sockets, 256 CPUs"),
)
THEMES = ("basic", "full", "large", "mid", "mixed")


def run(console: Console) -> None:
    """Print one table."""
    table = Table(title="A creation under the NRI topology-aware policy, recorded scenarios, one core")
    for column in ("machine", "creations", "mean ms", "p99 ms", "steps, mean", "steps, most"):
        table.add_column(column, justify="left" if column == "machine" else "right")
    scenarios = [scenario for theme in THEMES for scenario in _scenarios(theme)]
    for name, title in MACHINES:
        taken: list[tuple[float, float]] = []
        for scenario in scenarios:
            if scenario.machine == name:
                taken += _creations(scenario)
        seconds = sorted(s for s, _ in taken)
        steps = [n for _, n in taken]
        table.add_row(
            title,
            f"{len(taken):,}",
            f"{1e3 * sum(seconds) / len(taken):.2f}",
            f"{1e3 * seconds[len(taken) * 99 // 100]:.2f}",
            f"{sum(steps) / len(taken):,.0f}",
            f"{max(steps):,.0f}",
        )
    console.print(table)


def _scenarios(theme: str) -> Iterator[NRIScenario]:
    names = {name for name, _ in MACHINES}
    with lzma.open(VECTORS / f"{theme}.jsonl.xz") as lines:
        for line in lines:
            document = json.loads(line)
            if document["m"] in names:
                yield scenario_from_json(document)


def _creations(scenario: NRIScenario) -> list[tuple[float, float]]:
    """(seconds of CPU, steps) of each creation."""
    taken = []
    for event in creations(scenario, machine(scenario.machine)):
        began = time.process_time()
        node, _ = event()
        taken.append((time.process_time() - began, node.books.budget.used))
    return taken
