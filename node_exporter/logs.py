"""Log lines on standard error: `key=value` for people, or one JSON object a line for collectors.

The JSON has the keys of the extender's lines: `time`, `level`, `logger`, `message`, and `exception` with a traceback.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Literal

import orjson


class ExporterLogFormatter(logging.Formatter):
    """`{"time", "level", "logger", "message", "exception"?}`."""

    def format(self, record: logging.LogRecord) -> str:
        """The object. What is no Unicode, such as a broken file name, is replaced."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps({key: text.encode(errors="replace").decode() for key, text in line.items()}).decode()


def set_up_logging(level: str, form: Literal["text", "json"] = "text") -> None:
    """One line an event. A log that cannot be written (full disk) ends nothing."""
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        ExporterLogFormatter() if form == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in ("httpx", "watchfiles"):
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
