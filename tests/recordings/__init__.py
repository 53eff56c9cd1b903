"""Requests of a real kube-scheduler 1.36 to an extender, in order of arrival; one JSON object a line."""

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

FORMS = ("node-names", "full-nodes")
"""`nodeCacheCapable` true and false."""


@cache
def recorded(form: str) -> tuple[dict[str, Any], ...]:
    """Every request of one form: name, method, path, headers, body, and the reply that a recording server gave."""
    with lzma.open(Path(__file__).parent / f"{form}.jsonl.xz", "rt") as lines:
        return tuple(json.loads(line) for line in lines)


def of_verb(verb: str) -> list[tuple[str, dict[str, Any]]]:
    """(form, request) of every request to one verb."""
    return [(form, each) for form in FORMS for each in recorded(form) if each["path"].endswith(f"/{verb}")]
