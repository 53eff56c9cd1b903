"""Files of recorded scenarios, and the agreement of a replay with them, for every policy that can be replayed."""

import lzma
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final, TypeVar

import click
import orjson
from rich.table import Table

from extender.cli.output import console_for
from extender.conformance.agreement import Difference
from extender.wire.errors import WireError

S = TypeVar("S")
SHOWN_DIFFERENCES: Final = 10


def read_scenarios(name: str, read: Callable[[object], S]) -> Iterator[tuple[str, S]]:
    """The place and the scenario of each line of the file *name*. `-` is standard input. Empty lines are skipped.

    Raises:
        click.ClickException: the file cannot be read.
        WireError: a line is malformed.
    """
    for where, line in _lines(name):
        try:
            yield where, read(orjson.loads(line))
        except orjson.JSONDecodeError as error:
            raise WireError(where, f"not JSON: {error}") from None
        except WireError as error:
            raise WireError(f"{where}: {error.field}" if error.field else where, error.reason) from None


def _lines(name: str) -> Iterator[tuple[str, bytes]]:
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


def agreement_table(
    title: str, columns: Sequence[str], counted: Sequence[str], rows: Sequence[tuple[Sequence[str], Sequence[int]]]
) -> Table:
    """What was compared: the texts and the counts of each row, and the sums of several rows.

    *columns* are the names of the texts, *counted* those of the counts.
    """
    table = Table(title=title)
    for column in (*columns, *counted):
        table.add_column(column, justify="left" if column in columns else "right", no_wrap=True)
    for texts, counts in rows:
        table.add_row(*texts, *map(str, counts))
    if len(rows) > 1:
        table.add_section()
        sums = (str(sum(column)) for column in zip(*(counts for _, counts in rows), strict=True))
        table.add_row("all", *("" for _ in columns[1:]), *sums)
    return table


def show_agreement(table: Table, differences: Sequence[Difference]) -> int:
    """Print the table and the first differences. Returns the exit code: 1 if there are any."""
    console = console_for()
    console.print(table)
    for difference in differences[:SHOWN_DIFFERENCES]:
        step = "" if difference.step is None else f" step {difference.step}"
        console.print(f"\n{difference.scenario}{step}: {difference.path}", soft_wrap=True)
        console.print(f"  recorded: {difference.recorded!r}", soft_wrap=True)
        console.print(f"  replayed: {difference.replayed!r}", soft_wrap=True)
    if len(differences) > SHOWN_DIFFERENCES:
        console.print(f"\n… and {len(differences) - SHOWN_DIFFERENCES} more differences")
    return 1 if differences else 0
