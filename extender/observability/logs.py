"""Log lines: `key=value` for people, or one JSON object a line for log collectors. Each has the id of its request.

Rules of this file
- The event and its values are one message, such as `refused scope=read reason='…'`, so that both formats read alike.
- A request id from the caller is used only if it is short and plain, because log lines are parsed by other programs.
"""

import logging
import re
import threading
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal

import orjson

REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""The id of the current request. Empty outside requests. Worker threads inherit it."""
FAULT_SECONDS: Final = 60.0
"""Minimum time between two warnings about a fault that lasts."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


def request_id_from(proposed: str | None) -> str:
    """The caller's own id if it can be used, else a new one."""
    if proposed is not None and _PLAIN.fullmatch(proposed):
        return proposed
    return uuid.uuid4().hex


class TextFormatter(logging.Formatter):
    """`TIME LEVEL LOGGER MESSAGE request_id=ID`. Line breaks in values are escaped."""

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
        """Format the record as one JSON object."""
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


class FaultLog:
    """Logs a fault that may last: a WARNING at most once a minute, and one INFO line when the fault is over.

    Failures in between are logged as DEBUG. *subject*: what is faulty; each line begins with it. *clock*: monotonic
    seconds. Thread-safe.
    """

    def __init__(self, log: logging.Logger, subject: str, clock: Callable[[], float]) -> None:
        self._log, self._subject, self._clock = log, subject, clock
        self._lock = threading.Lock()
        self._warned_at = float("-inf")
        self._is_warned = False
        self._unsaid = 0

    def failed(self, message: str, *values: object) -> None:
        """Log one more failure."""
        with self._lock:
            now = self._clock()
            is_due = now - self._warned_at >= FAULT_SECONDS
            unsaid = self._unsaid
            if is_due:
                self._warned_at, self._is_warned, self._unsaid = now, True, 0
            else:
                self._unsaid += 1
        more = f" ({unsaid} more since the last such line)" if is_due and unsaid else ""
        self._log.log(
            logging.WARNING if is_due else logging.DEBUG, f"%s: {message}%s", self._subject, *values, more, stacklevel=2
        )

    def ended(self) -> None:
        """Log that it works again, if a warning was logged since it last worked."""
        if not self._is_warned:
            return
        with self._lock:
            was_warned, self._is_warned = self._is_warned, False
        if was_warned:
            self._log.info("%s: works again", self._subject, stacklevel=2)


def set_up_logging(level: str, form: Literal["text", "json"] = "text") -> None:
    """Log one line per event to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()
