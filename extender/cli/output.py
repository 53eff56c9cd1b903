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
ANY_WIDTH: Final = 10_000


def show(
    output: str,
    answer: Any,  # noqa: ANN401 - JSON
    kind: type[T],
    render: Callable[[T], RenderableType],
    names: Callable[[T], Iterable[str]] | None = None,
) -> None:
    """Print *answer*, a JSON document, in the form *output*. *kind*: its type, for *names* and *render*."""
    if output == "json":
        sys.stdout.write(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode() + "\n")
        return
    if output == "yaml":
        yaml.safe_dump(answer, sys.stdout, sort_keys=False, allow_unicode=True)
        return
    try:
        read = msgspec.convert(answer, kind)
    except msgspec.ValidationError as error:
        raise click.ClickException(f"the extender's answer is of another release, use -o json: {error}") from None
    if output != "name":
        console_for(any_width=output == "wide").print(render(read), crop=False)
    elif names is None:
        raise click.UsageError("-o name: this command lists no nodes or pods")
    else:
        sys.stdout.writelines(f"{name}\n" for name in names(read))


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


def console_for(*, stderr: bool = False, markup: bool = False, width: int = WIDTH, any_width: bool = False) -> Console:
    """The console to print on. *width*: how many columns it has if it is not a terminal. *any_width*: it has no limit.

    *markup*: whether text in brackets is a style. Never set it for text that came from outside.
    """
    stream = sys.stderr if stderr else sys.stdout
    columns = ANY_WIDTH if any_width else None if stream.isatty() else width
    return _Console(file=underlying(stream), width=columns, highlight=False, markup=markup)
