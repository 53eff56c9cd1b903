"""What the commands for advice share: sending the question, progress, and tables."""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from extender.answers.placements import PodPlacement
from extender.cli.client import ExtenderClient
from extender.cli.output import console_for, show
from extender.cli.questions import TypedManifest, read_manifests
from extender.cli.render import MARKS, placement_line
from extender.replay.alignment import Alignment

T = TypeVar("T")


def advise(
    client: ExtenderClient,
    name: str,
    question: object,
    kind: type[T],
    table: Callable[[T], RenderableType],
    output: str,
) -> None:
    """Send a question, show progress on a terminal, and print the answer."""
    show(output, _last(client.lines(f"/v1/advice/{name}", question)), kind, table)


def _last(lines: Iterator[Any]) -> Any:  # noqa: ANN401 - JSON
    """The last line; the progress of those before it is shown on a terminal."""
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn())
    console = console_for(stderr=True)
    line = None
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=None)
        for line in lines:
            if "progress" in line:
                progress.update(task, completed=line["progress"]["done"], total=line["progress"]["of"])
    return line


def placement_text(placement: PodPlacement) -> str:
    """Where a pod would be placed, in a line."""
    if placement.outcome != "fits":
        return f"✗ {placement.reason or 'nothing is known of the node'}"
    where = "; ".join(f"{name}: {placement_line(each)}" for name, each in placement.containers.items())
    return f"{MARKS[placement.alignment or Alignment.NOT_MANAGED][0]}: {where}"


def next_text(command: str) -> Text:
    """What to type next."""
    return Text(f"next: {command}", "cyan")


def notes_text(notes: Iterable[str]) -> Text:
    """The notes of an answer, one a line."""
    return Text("\n".join(f"note: {note}" for note in notes), "yellow")


def one_pod(files: Iterable[Path]) -> list[TypedManifest]:
    """The one workload of the files of `-f`, in a list; raises ClickException."""
    pods = read_manifests(files)
    if len(pods) != 1:
        raise click.UsageError(f"one workload is expected, not {len(pods)}")
    return pods
