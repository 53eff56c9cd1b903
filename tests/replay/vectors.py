"""Reads the recorded vectors; see tests/vectors/README.md."""

import lzma
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

VECTORS = Path(__file__).parent.parent / "vectors"
VERSIONS = ("1.27", "1.28", "1.29", "1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37")

Json = dict[str, Any]


def scenarios(version: str, part: int = 0, parts: int = 1) -> Iterator[Json]:
    """Every *parts*-th scenario of one kubelet version, from the *part*-th on."""
    with lzma.open(VECTORS / f"kubelet-{version}.jsonl.xz") as lines:
        for number, line in enumerate(lines):
            if number % parts == part:
                yield orjson.loads(line)


def manager_cases(name: str, part: int = 0, parts: int = 1) -> Iterator[tuple[int, Json, Any]]:
    """(line number, case, expect) of one file under managers/."""
    with lzma.open(VECTORS / "managers" / f"{name}.jsonl.xz") as lines:
        for number, line in enumerate(lines):
            if number and number % parts == part:
                document = orjson.loads(line)
                yield number, document["case"], document["expect"]
