"""Log lines on standard error: `key=value` for people, or one JSON object a line for log collectors.

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
        """Format the record as one JSON object.

        Characters that are not valid Unicode, as in a broken file name, are replaced.
        """
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
    """Log one line per event. A log that cannot be written (full disk) does not end the program."""
    logging.raiseExceptions = False
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        ExporterLogFormatter() if form == "json" else logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for library in ("httpx", "watchfiles"):
        logging.getLogger(library).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
