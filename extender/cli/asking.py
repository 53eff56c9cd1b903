"""What the commands for questions share: sending the question, progress, and small parts of tables."""

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from extender.answers.resize_check import PodPlacement
from extender.cli.client import ExtenderClient
from extender.cli.output import console_for, show
from extender.cli.questions import TypedManifest, naming_what_was_typed
from extender.cli.render import MARKS, placement_line
from extender.replay.alignment import Alignment

T = TypeVar("T")


def ask(
    client: ExtenderClient,
    path: str,
    question: object,
    manifests: Sequence[TypedManifest] = (),
    *,
    shows_progress: bool = False,
    total: int | None = None,
    **typed: Any,
) -> list[Any]:
    """The lines of an answer, without those of progress.

    *manifests*, *typed*: what the user typed, for error messages. *shows_progress*: show progress on the terminal.
    *total*: how many lines there will be; None: the lines of progress contain that number.
    """
    columns = (TextColumn("replaying"), BarColumn(), MofNCompleteColumn())
    is_hidden = not (shows_progress and sys.stderr.isatty())
    progress = Progress(*columns, console=console_for(stderr=True), transient=True, disable=is_hidden)
    found: list[Any] = []
    with naming_what_was_typed(manifests, **typed), progress:
        task = progress.add_task("", total=total)
        for line in client.lines(path, question):
            if "progress" in line:
                progress.update(task, completed=line["progress"]["done"], total=line["progress"]["of"])
            else:
                found.append(line)
                progress.advance(task)
    return found


def advise(
    client: ExtenderClient,
    name: str,
    question: object,
    kind: type[T],
    table: Callable[[T], RenderableType],
    manifests: Sequence[TypedManifest] = (),
    **typed: Any,
) -> None:
    """Ask one question of `/v1/advice`, and print the answer. *manifests*, *typed*: see `ask`."""
    (answer,) = ask(client, f"/v1/advice/{name}", question, manifests, shows_progress=True, **typed)
    show(client.output, answer, kind, table)


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
