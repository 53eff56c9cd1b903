"""Makes characters visible that would command a terminal, or hide or reorder text.

Names, messages and values come from nodes, pods and people. Everything that a program prints passes `visible`: its
standard streams are replaced for as long as it runs, and log lines are formatted with it. The extender uses it too.

Log lines go to standard error: `key=value` for people, or one JSON object a line for log collectors. A record cannot
begin a line of its own. The JSON has the keys `time`, `level`, `logger`, `message`, and `exception` with a traceback.
"""

import codecs
import io
import json
import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Literal, TextIO

import click
import orjson


def visible(text: str) -> str:
    r"""*text*, with characters that are not printable written as in JSON, such as `\u001b`; line breaks stay.

    Printable is what Unicode does not call a control, a format character, a separator (but the space), private or
    unassigned. So no control character, bidirectional control or zero-width character is left, and JSON stays the same
    document.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)


class _VisibleBytes(io.BufferedIOBase):
    """Takes UTF-8 and writes it to *stream*, visibly."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        """Whether it can be written to."""
        return True

    def write(self, data: object) -> int:
        """Write bytes; returns how many."""
        raw = bytes(memoryview(data))  # type: ignore[arg-type]  # as io declares it
        text = visible(self._decoder.decode(raw))
        encoding = self.stream.encoding or "utf-8"
        self.stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        return len(raw)

    def flush(self) -> None:
        """Flush the stream."""
        self.stream.flush()

    def isatty(self) -> bool:
        """Whether the stream is a terminal."""
        return self.stream.isatty()

    def fileno(self) -> int:
        """The stream's descriptor."""
        return self.stream.fileno()

    def close(self) -> None:
        """Flush; the stream belongs to others."""
        self.flush()


def _wrapped(stream: TextIO) -> TextIO:
    below: Any = _VisibleBytes(stream)  # typeshed wants methods of readers too
    return io.TextIOWrapper(
        below, "utf-8", errors="backslashreplace", newline="\n", write_through=True, line_buffering=True
    )


def underlying(stream: TextIO) -> TextIO:
    """The stream below one of `visible_output`, for a writer that makes all text visible itself and adds colours."""
    below = getattr(stream, "buffer", None)
    return below.stream if isinstance(below, _VisibleBytes) else stream


@contextmanager
def visible_output() -> Iterator[None]:
    """Everything that is printed in the context is visible: text, bytes, errors and tracebacks."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_wrapped, before)
    sys.excepthook = print_exception
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = before


class VisibleGroup(click.Group):
    """Commands of a program that prints visible text only."""

    def main(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as click declares it
        """Run the program."""
        with visible_output():
            return super().main(*args, **kwargs)


def print_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an exception that ends the program: `sys.excepthook`."""
    sys.stderr.write(visible("".join(traceback.format_exception(kind, error, trace))))


class ExporterLogFormatter(logging.Formatter):
    """`{"time", "level", "logger", "message", "exception"?}`."""

    def context(self) -> dict[str, str]:
        """What else each line says."""
        return {}

    def format(self, record: logging.LogRecord) -> str:
        """Format the record as one JSON object.

        Characters that are not valid Unicode, as in a broken file name, are replaced.
        """
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.context(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        encodable = {key: text.encode(errors="replace").decode() for key, text in line.items()}
        return visible(orjson.dumps(encodable).decode())


class ExporterTextFormatter(logging.Formatter):
    """`TIME LEVEL MESSAGE`. Further lines, as of a traceback, are indented."""

    def __init__(self, form: str = "%(asctime)s %(levelname)s %(message)s") -> None:
        super().__init__(form)

    def format(self, record: logging.LogRecord) -> str:
        """Format the record."""
        return visible(super().format(record)).replace("\n", "\n    ")


def set_up_logging(level: str, form: Literal["text", "json"] = "text") -> None:
    """Log one line per event. A log that cannot be written (full disk) does not end the program."""
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ExporterLogFormatter() if form == "json" else ExporterTextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in ("httpx", "watchfiles"):
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
