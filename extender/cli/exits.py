"""Exit codes of questions, for scripts and CI.

0: aligned. 3: admitted, but split or not managed. 4: no node admits it. 1 and 2 are errors, as of every command.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
ALIGNED: Final = 0
NOT_ALIGNED: Final = 3
NOT_ADMITTED: Final = 4


def exit_code_option(command: F) -> F:
    """`--exit-code`, as `exit_code`."""
    return click.option(
        "--exit-code",
        is_flag=True,
        help="End with 3 if a pod is admitted but split or not managed, with 4 if it is not admitted.",
    )(command)


def of_counts(counts: Mapping[str, int], unplaced: int = 0) -> int:
    """The code for pods or nodes counted as `aligned`, `split` and `not_managed`; any aligned one is enough."""
    if unplaced or not any(counts[key] for key in ("aligned", "split", "not_managed")):
        return NOT_ADMITTED
    return ALIGNED if counts["aligned"] else NOT_ALIGNED


def of_plan(summary: Mapping[str, int]) -> int:
    """The code for a plan: every pod must have a node, and be aligned there."""
    if summary["unplaced"]:
        return NOT_ADMITTED
    return NOT_ALIGNED if summary["split"] or summary["not_managed"] else ALIGNED


def end(code: int, *, wanted: bool) -> None:
    """End the process with *code* if it was *wanted*."""
    if wanted and code:
        sys.exit(code)
