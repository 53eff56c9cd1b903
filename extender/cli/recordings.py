"""Files of recorded scenarios, and how far a replay agrees with them: for every policy that can be replayed."""

import lzma
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

import click
from rich.console import Console
from rich.table import Table

from extender.conformance.agreement import Difference

SHOWN_DIFFERENCES: Final = 10


def scenario_lines(name: str) -> Iterator[tuple[str, bytes]]:
    """(where it stands, line) of the file *name* without its empty lines; `-` is standard input.

    Raises:
        click.ClickException: the file cannot be read.
    """
    with _open(name) as lines:
        try:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield f"{name}:{number}", line
        except (lzma.LZMAError, EOFError) as error:
            raise click.ClickException(f"{name}: not an xz file: {error}") from None


def _open(name: str) -> IO[bytes]:
    if name == "-":
        return sys.stdin.buffer
    try:
        return lzma.open(name) if name.endswith(".xz") else Path(name).open("rb")
    except OSError as error:
        raise click.ClickException(f"{name}: {error.strerror}") from None


def show_agreement(table: Table, differences: Sequence[Difference]) -> int:
    """Print what was compared and the first differences; the exit code of the check: 1 if there are any."""
    console = Console()
    console.print(table)
    for difference in differences[:SHOWN_DIFFERENCES]:
        step = "" if difference.step is None else f" step {difference.step}"
        console.print(f"\n{difference.scenario}{step}: {difference.path}", highlight=False, markup=False)
        console.print(f"  recorded: {difference.recorded!r}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"  replayed: {difference.replayed!r}", highlight=False, markup=False, soft_wrap=True)
    if len(differences) > SHOWN_DIFFERENCES:
        console.print(f"\n… and {len(differences) - SHOWN_DIFFERENCES} more differences")
    return 1 if differences else 0
