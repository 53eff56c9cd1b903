"""Prints replies: a table for people, JSON or YAML for programs.

Elsewhere a wrapped stream escapes characters that are not printable. Colours of tables need such characters, so tables
go around that stream, and `_Console` escapes their text itself. No other file makes a console.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click
import msgspec
import orjson
import yaml
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from node_exporter.visible import underlying, visible

T = TypeVar("T")
WIDTH: Final = 110
"""Width in columns if the output is not a terminal."""


def show(output: str, answer: Any, kind: type[T], *tables: Callable[[T], RenderableType]) -> None:  # noqa: ANN401 - JSON
    """Print *answer*, a JSON document. For tables, read it as *kind* and print them one below the other."""
    if output == "json":
        sys.stdout.write(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif output == "yaml":
        yaml.safe_dump(answer, sys.stdout, sort_keys=False, allow_unicode=True)
    else:
        console = console_for()
        read = reply_of(answer, kind)
        for table in tables:
            console.print(table(read))


def reply_of(answer: Any, kind: type[T]) -> T:  # noqa: ANN401 - JSON
    """*answer* as its type. Raises ClickException if it is of another release."""
    try:
        return msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise click.ClickException(f"the extender's answer is of another release, use -o json: {error}") from None


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


def console_for(*, stderr: bool = False, markup: bool = False, width: int = WIDTH) -> Console:
    """The console to print on. *width*: how many columns it has if it is not a terminal.

    *markup*: whether text in brackets is a style. Never set it for text that came from outside.
    """
    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream.isatty()
    return _Console(file=underlying(stream), width=None if is_terminal else width, highlight=False, markup=markup)
