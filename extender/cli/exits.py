"""Exit codes of questions, for scripts and CI.

0: aligned. 3: admitted, but split or not managed. 4: not admitted. 1 and 2 are errors, as in every command.
"""

import sys
from collections.abc import Mapping
from typing import Final

import click

ALIGNED: Final = 0
NOT_ALIGNED: Final = 3
NOT_ADMITTED: Final = 4


exit_code_option: Final = click.option(
    "--exit-code",
    is_flag=True,
    help="Exit with 3 if a pod is admitted but split or not managed, and with 4 if it is not admitted.",
)
"""Adds `--exit-code`, as argument `exit_code`."""


def of_counts(counts: Mapping[str, int]) -> int:
    """The exit code for counts of `aligned`, `split` and `not_managed`. One aligned pod or node is enough for 0."""
    if not any(counts[key] for key in ("aligned", "split", "not_managed")):
        return NOT_ADMITTED
    return ALIGNED if counts["aligned"] else NOT_ALIGNED


def of_plan(summary: Mapping[str, int]) -> int:
    """The exit code for a plan. 0 only if every pod has a node and is aligned there."""
    if summary["unplaced"]:
        return NOT_ADMITTED
    return NOT_ALIGNED if summary["split"] or summary["not_managed"] else ALIGNED


def end(code: int, *, wanted: bool) -> None:
    """Exit with *code* if *wanted*."""
    if wanted and code:
        sys.exit(code)
