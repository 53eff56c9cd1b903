"""The frame of the commands that ask the extender: a command is its options, its route, and the function that renders.

The function's docstring is the help. Parameters of the function after the answer are options that only it reads; all
others go to the extender. `-o name` prints *names* of the answer, one a line.

Exit codes with `--exit-code`: 0: aligned. 3: admitted, but split or not managed. 4: not admitted. 1 and 2 are errors.
"""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, Final

import click
from rich.console import RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from extender.cli.client import ExtenderClient, client_options, options
from extender.cli.output import console_for, show
from extender.cli.questions import TypedManifest, body_of, field_options, naming_what_was_typed, read_manifests
from extender.wire.questions import Question

NOT_ALIGNED, NOT_ADMITTED = 3, 4
Renderer = Callable[..., RenderableType]
Decorator = Callable[[Any], Any]
Names = Callable[[Any], Iterable[str]]
exit_code_option: Final = click.option(
    "--exit-code",
    is_flag=True,
    help="Exit with 3 if a pod is admitted but split or not managed, and with 4 if it is not admitted.",
)


def asks(
    path: str,
    question: type[Question],
    *parameters: str | Decorator,
    lines: str = "",
    one_by_one: bool = False,
    names: Names | None = None,
) -> Callable[[Renderer], click.Command]:
    """A command that asks a question. *parameters*: options, and names of fields of the question that become options.

    The reply is read as the type of the function's first parameter. *lines*: the field for all lines but the last.
    *one_by_one*: each manifest is a question of its own, whose answer comes without progress.
    """
    decorators = [field_options(question, p) if isinstance(p, str) else p for p in parameters]

    def make(render: Renderer) -> click.Command:
        takes = signature(render).parameters
        answered, *own = takes

        @wraps(render)
        def command(*, client: ExtenderClient, **given: Any) -> None:
            shown, code, manifests = {name: given[name] for name in own}, 0, read_manifests(given.get("files", ()))
            for pods in [[pod] for pod in manifests] if one_by_one else [manifests]:
                body = body_of(question, pods, given)
                *first, last = ask(
                    client, path, body, pods, shows_progress=not one_by_one, total=_total(client, lines), **given
                )
                answer = {**last, lines: first} if lines else last
                show(client.output, answer, takes[answered].annotation, lambda read: render(read, **shown), names)
                code = max(code, _exit_code(answer["summary"]) if given.get("exit_code") else 0)
            sys.exit(code)

        return click.command()(options(*decorators, client_options)(command))

    return make


def _total(client: ExtenderClient, lines: str) -> int | None:
    """How many lines the answer will have. None: its lines of progress say so, or no progress is shown."""
    return client.get("/v1/nodes", {"limit": 1})["total"] if lines == "nodes" and sys.stderr.isatty() else None


def _exit_code(summary: Mapping[str, int]) -> int:
    """All pods of a plan must be aligned for 0. Elsewhere one aligned pod or node is enough."""
    others = summary["split"] or summary["not_managed"]
    if "unplaced" in summary:
        return NOT_ADMITTED if summary["unplaced"] else NOT_ALIGNED if others else 0
    return 0 if summary["aligned"] else NOT_ALIGNED if others else NOT_ADMITTED


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


def next_text(command: str) -> Text:
    """What to type next."""
    return Text(f"next: {command}", "cyan")
