"""Log lines on standard error: `key=value` for people, or one JSON object a line for log collectors.

Every line passes `visible`. A record cannot begin a line of its own.
The JSON has the keys of the extender's lines: `time`, `level`, `logger`, `message`, and `exception` with a traceback.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

import orjson

from node_exporter.visible import visible


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
