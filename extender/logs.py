"""Log lines: `key=value` for people, or one JSON object a line for collectors; each with the id of its request.

Laws of this file
- The event and its values are one message, as `refused scope=read reason='…'`: it reads alike in both forms.
- A request id is taken over from the caller only if it is short and plain: it goes into lines that others parse.
"""

import logging
import re
import uuid
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal

import orjson

REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""Of the request that is being answered; empty outside of requests. Worker threads inherit it."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


def request_id_from(proposed: str | None) -> str:
    """The caller's own id if it is fit for use, else a new one."""
    if proposed is not None and _PLAIN.fullmatch(proposed):
        return proposed
    return uuid.uuid4().hex


class TextFormatter(logging.Formatter):
    """`TIME LEVEL LOGGER MESSAGE request_id=ID`; whatever came from outside stays on one line."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line, without the traceback."""
        line = super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")
        request_id = REQUEST_ID.get()
        return f"{line} request_id={request_id}" if request_id else line


class JSONFormatter(logging.Formatter):
    """`{"time", "level", "logger", "message", "request_id"?, "exception"?}`."""

    def format(self, record: logging.LogRecord) -> str:
        """The object."""
        line: dict[str, str] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request_id := REQUEST_ID.get():
            line["request_id"] = request_id
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps({key: _encodable(value) for key, value in line.items()}).decode()


def set_up_logging(level: str, form: Literal["text", "json"] = "text") -> None:
    """One line an event, to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()
