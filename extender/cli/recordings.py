"""Files of recorded scenarios, and the agreement of a replay with them, for every policy that can be replayed."""

import lzma
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple, TypeVar

import click
import orjson
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from extender.cli.output import console_for
from extender.conformance.agreement import Difference
from extender.wire.errors import WireError

S = TypeVar("S")
SHOWN_DIFFERENCES: Final = 10


class Replayed(NamedTuple):
    """One scenario: its line in the output, its group in the comparison, and what compares it and counts."""

    answer: Callable[[], object]
    group: tuple[str, ...]
    check: Callable[[Counter[str]], Sequence[Difference]]


class Replay(NamedTuple):
    """How the scenarios of one policy are replayed.

    *scenarios* reads a file. *title*, *groups* and *counted*: for the table of comparisons.
    """

    scenarios: Callable[[str], Iterator[Replayed]]
    title: str
    groups: Sequence[str]
    counted: Sequence[str]


def replay_files(replay: Replay, files: Sequence[str]) -> None:
    """Print a line for each scenario."""
    for name in files:
        for each in replay.scenarios(name):
            sys.stdout.buffer.write(orjson.dumps(each.answer()) + b"\n")


def check_files(replay: Replay, files: Sequence[str]) -> int:
    """Print how often replay and recordings agree, and the first differences. Returns the exit code: 1 if any."""
    counts, differences = defaultdict[tuple[str, ...], Counter[str]](Counter), list[Difference]()
    with Progress(
        SpinnerColumn(),
        TextColumn("replaying"),
        MofNCompleteColumn(),
        TextColumn("scenarios, {task.fields[differences]} differences"),
        TimeElapsedColumn(),
        console=console_for(stderr=True),
        transient=True,
    ) as progress:
        task = progress.add_task("", total=None, differences=0)
        for name in files:
            for each in replay.scenarios(name):
                differences += each.check(counts[each.group])
                progress.update(task, advance=1, differences=len(differences))
    console = console_for()
    console.print(_table(replay, counts))
    for difference in differences[:SHOWN_DIFFERENCES]:
        step = "" if difference.step is None else f" step {difference.step}"
        console.print(f"\n{difference.scenario}{step}: {difference.path}", soft_wrap=True)
        console.print(f"  recorded: {difference.recorded!r}", soft_wrap=True)
        console.print(f"  replayed: {difference.replayed!r}", soft_wrap=True)
    if len(differences) > SHOWN_DIFFERENCES:
        console.print(f"\n… and {len(differences) - SHOWN_DIFFERENCES} more differences")
    return 1 if differences else 0


def _table(replay: Replay, counts: dict[tuple[str, ...], Counter[str]]) -> Table:
    """The counts of each group, and the sums of several groups."""
    table = Table(title=replay.title)
    for column in (*replay.groups, *replay.counted):
        table.add_column(column, justify="left" if column in replay.groups else "right", no_wrap=True)
    for group, counted in sorted(counts.items()):
        table.add_row(*group, *(str(counted[column]) for column in replay.counted))
    if len(counts) > 1:
        total = sum(counts.values(), Counter())
        table.add_section()
        table.add_row("all", *("" for _ in replay.groups[1:]), *(str(total[column]) for column in replay.counted))
    return table


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
