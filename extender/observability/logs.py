"""Log lines: `key=value` for people, or one JSON object a line for log collectors. Each has the id of its request.

Rules of this file
- The event and its values are one message, such as `refused scope=read reason='…'`, so that both formats read alike.
- Every line passes `visible`. A record cannot begin a line of its own.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from math import inf
from typing import Final, Literal

from extender.bounded import BoundedMap
from node_exporter.visible import ExporterLogFormatter, ExporterTextFormatter

REQUEST_ID: Final[ContextVar[str]] = ContextVar("request_id", default="")
"""The id of the current request. Empty outside requests. Worker threads inherit it."""
FAULT_SECONDS: Final = 60.0
"""Minimum time between two warnings about a fault that lasts."""
WARNINGS_A_MINUTE: Final = 3
MAX_TEXTS: Final = 100
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"


class TextFormatter(ExporterTextFormatter):
    """`TIME LEVEL LOGGER MESSAGE request_id=ID`. Line breaks in values are escaped; a traceback is indented."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """The line, without the traceback."""
        line = super().formatMessage(record).replace("\r", "\\r").replace("\n", "\\n")
        request_id = REQUEST_ID.get()
        return f"{line} request_id={request_id}" if request_id else line


class JSONFormatter(ExporterLogFormatter):
    """`{"time", "level", "logger", "message", "request_id"?, "exception"?}`."""

    def context(self) -> dict[str, str]:
        """The id of the request, if there is one."""
        return {"request_id": request_id} if (request_id := REQUEST_ID.get()) else {}


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


class FewWarnings(logging.Filter):
    """Lets a few warnings of each text through in a minute; the first one after that says how many were left out.

    For loggers of libraries, which anybody's input can make log. *clock*: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: BoundedMap[str, tuple[float, int]] = BoundedMap(MAX_TEXTS)
        """By text: when the current minute began, and how many there were in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged."""
        if record.levelno != logging.WARNING:
            return True
        now, text = self._clock(), str(record.msg)
        began, count = self._seen.get(text, (-inf, 0))
        if now - began >= FAULT_SECONDS:
            if count > WARNINGS_A_MINUTE:
                record.msg = f"{text} ({count - WARNINGS_A_MINUTE} more were not logged)"
            began, count = now, 0
        self._seen[text] = began, count + 1
        return count < WARNINGS_A_MINUTE


def set_up_logging(level: str, form: Literal["text", "json"] = "text") -> None:
    """Log one line per event to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(JSONFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    logging.getLogger("uvicorn.error").addFilter(FewWarnings())
