"""Reads the recorded vectors of the NRI policy; see tests/vectors/README.md."""

import json
import lzma
import random
from functools import cache
from pathlib import Path
from typing import Any

from extender.replay.nri.machine import Machine
from extender.wire.nri_machines import machine_from_json, read_machines

VECTORS = Path(__file__).parents[2] / "vectors" / "nri"
MACHINES = VECTORS / "machines.json.xz"
THEMES = tuple(sorted(path.name.removesuffix(".jsonl.xz") for path in VECTORS.glob("*.jsonl.xz")))


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
def machine(name: str) -> Machine:
    """The machine *name*."""
    return machine_from_json(_documents()[name], name)


def sample(theme: str, count: int, seed: int = 19) -> list[dict[str, Any]]:
    """*count* scenarios of *theme*, always the same ones for a seed."""
    with lzma.open(VECTORS / f"{theme}.jsonl.xz") as lines:
        chosen = random.Random(seed).sample(list(lines), count)
    return [json.loads(line) for line in chosen]
