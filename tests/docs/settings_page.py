"""Writes `docs/settings.md`: every variable of both programs, from the code that reads it.

`python -m tests.docs.settings_page > docs/settings.md`; a test compares the page with the code.
"""

import re
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

import click
import orjson

from extender.cli.client import client_options
from extender.config.settings import PREFIX, Settings
from node_exporter.__main__ import report, run

ROOT: Final = Path(__file__).parents[2]
Row = tuple[str, str, str, str]
"""Variable, unit, default, why."""
_UNITS: Final = (
    ("_seconds", "seconds"),
    ("_bytes", "bytes"),
    ("_rate", "requests per second"),
    ("_port", "TCP port"),
    ("port", "TCP port"),
    ("interval", "seconds"),
    ("timeout", "seconds"),
    ("nrt_refresh", "seconds"),
    ("_url", "URL"),
    ("api_url", "URL"),
    ("push", "URL"),
    ("server", "URL"),
)
"""Unit by the end of the name."""
_HEAD: Final = """# Settings

Each variable is shown with its default and, in brackets, its other values. Written by
`python -m tests.docs.settings_page`; a test compares it with the code. An empty variable counts as not set. A variable
that is similar to one of these, and is none of them, is logged at startup. Names say the units.
"""
_EXTENDER: Final = f"""
## The extender

`numa-extender serve` reads the variables `{PREFIX}…`. Flags (`--host`, `--port`, `--log-level`) take precedence.
Texts name other settings in lower case. What needs a component also needs `kubernetes`, which all recipes set.
OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, …) say where spans go.
"""
_EXPORTER: Final = """
## The node exporter

`numa-node-exporter run` reads these. Each has a flag, which takes precedence. Flags without a variable:
`--once`, `--dry-run`.
"""
_ASKING: Final = """
## Commands that call an extender

`numa-extender nodes`, `map`, `what-if`, `capacity`, `plan`, `why`, `audit` read these. Each has a flag,
which takes precedence.
"""


def extender_rows() -> Iterator[Row]:
    """The settings of `numa-extender serve`, in the order of their declaration."""
    for name, field in Settings.model_fields.items():
        unit = _unit(name, field.annotation)
        yield f"{PREFIX}{name.upper()}", unit, _default(field.default), field.description or ""


def exporter_rows() -> Iterator[Row]:
    """The options of `numa-node-exporter` that have a variable, by name."""
    yield from _options([*report.params, *run.params])


def asking_rows() -> Iterator[Row]:
    """The options of the commands that call an extender, by name."""

    @click.command()
    @client_options
    def command() -> None:
        """Only its options are used."""

    yield from _options(command.params)


def page() -> str:
    """The page."""
    parts = ((_EXTENDER, extender_rows()), (_EXPORTER, exporter_rows()), (_ASKING, asking_rows()))
    text = _HEAD + "".join(f"{text}\n{_lines(rows)}" for text, rows in parts)
    for name, heading in _headings():
        first = f"- `{PREFIX}{name.upper()}="
        text = text.replace(f"\n{first}", f"\n\n### {heading}\n\n{first}").replace("\n\n\n", "\n\n")
    return text


def _headings() -> Iterator[tuple[str, str]]:
    """The first setting of each part of `settings.toml`, and the comment above it."""
    text = (ROOT / "extender/config/settings.toml").read_text()
    for heading, name in re.findall(r"^# (.+)\n(\w+) = ", text, re.MULTILINE):
        yield name, heading


def _lines(rows: Iterable[Row]) -> str:
    return "".join(item(f"{_with_default(name, default, unit)}: {why}") for name, unit, default, why in rows)


def item(text: str) -> str:
    """One item of a list, on lines of the usual length."""
    return filled(f"- {text}", indent="  ")


def filled(text: str, *, indent: str = "") -> str:
    """The text on lines of the usual length; *indent*: before all but the first."""
    lines = textwrap.wrap(text, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def _with_default(name: str, default: str, unit: str) -> str:
    """`NAME=off` (`on`): the default, then the other choices. Names say other units: all but those of rates."""
    assigned = f"`{name}={default.strip('`').removeprefix('-')}`"
    if unit.startswith("`"):
        return f"{assigned} ({', '.join(each for each in unit.split(' or ') if each != default)})"
    return f"{assigned} a second" if unit == "requests per second" else assigned


def _options(params: Iterable[click.Parameter]) -> Iterator[Row]:
    options = {str(p.envvar): p for p in params if isinstance(p, click.Option) and p.envvar}
    for variable, option in sorted(options.items()):
        default = _default(option.default) if isinstance(option.default, str | int | float | Path) else "-"
        yield variable, _option_unit(option), default, (option.help or "").replace("\n", " ")


def _option_unit(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return _choices(option.type.choices)
    if option.is_flag:
        return "true or false"
    if isinstance(option.type, click.Path):
        return "directory" if option.name in ("root", "kubelet_dir") else "file"
    return _by_name(option.name or "", "text")


def _unit(name: str, annotation: Any) -> str:  # noqa: ANN401 - a type
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        (annotation,) = (each for each in inner if each is not type(None))
        return _unit(name, annotation)
    if origin is Literal:
        return _choices(each.value if isinstance(each, Enum) else each for each in inner)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _choices(each.value for each in annotation)
    if origin in (tuple, frozenset):
        return "JSON list"
    if annotation is bool:
        return "true or false"
    if annotation is Path:
        return "file"
    return _by_name(name, "count" if annotation is int else "number" if annotation is float else "text")


def _by_name(name: str, otherwise: str) -> str:
    return next((unit for end, unit in _UNITS if name.endswith(end)), otherwise)


def _choices(values: Iterable[object]) -> str:
    return " or ".join(f"`{value}`" for value in values)


def _default(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple | frozenset):
        items = sorted(str(getattr(each, "value", each)) for each in value)
        return f"`{orjson.dumps(items).decode()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(page())
