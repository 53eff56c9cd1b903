"""Prints replies: a table for people, JSON or YAML for programs."""

import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
import orjson
import yaml
from rich.console import Console, RenderableType

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
        console = console_for(sys.stdout.isatty())
        for table in tables:
            console.print(table(answer))


def console_for(terminal: bool) -> Console:  # noqa: FBT001 - a question with one answer
    """The console to print on."""
    return Console(highlight=False) if terminal else Console(width=WIDTH, highlight=False)
