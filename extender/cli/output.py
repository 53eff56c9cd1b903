"""Prints replies: a table for people, JSON or YAML for programs.

Tables have colours on a terminal, so they are written below the stream that makes everything visible. `_Console` makes
their text visible instead. No other file makes a console.
"""

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import click
import orjson
import yaml
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from node_exporter.visible import underlying, visible

F = TypeVar("F", bound=Callable[..., Any])
WIDTH: Final = 110
"""Width in columns if the output is not a terminal."""


def output_option(command: F) -> F:
    """Adds `-o table|json|yaml`, as argument `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(("table", "json", "yaml")),
        default="table",
        show_default=True,
        help="How to print the answer.",
    )(command)


def show(output: str, answer: Any, *tables: Callable[[Any], RenderableType]) -> None:  # noqa: ANN401 - JSON
    """Print *answer*. For a table, print the results of *tables* one below the other."""
    if output == "json":
        sys.stdout.write(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif output == "yaml":
        yaml.safe_dump(answer, sys.stdout, sort_keys=False, allow_unicode=True)
    else:
        console = console_for()
        for table in tables:
            console.print(table(answer))


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


def console_for(*, stderr: bool = False, markup: bool = False, width: int = WIDTH) -> Console:
    """The console to print on. *width*: how many columns it has if it is not a terminal.

    *markup*: whether text in brackets is a style; never with text of others.
    """
    stream = sys.stderr if stderr else sys.stdout
    is_terminal = stream.isatty()
    return _Console(file=underlying(stream), width=None if is_terminal else width, highlight=False, markup=markup)
