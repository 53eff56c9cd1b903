"""Errors of calls to the API server, by what a caller may do next, and the delay before a retry.

`ApiError`: the server refused. `NoReplyError`: there was no reply; it says whether the server may have acted.

The delay has full jitter, so that many clients do not retry at the same time: it is drawn uniformly between zero and a
ceiling that doubles with each consecutive failure. A Retry-After of the server is added as a minimum. It is capped, so
that a server cannot stop us for long.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson


class KubeError(Exception):
    """Any failure of a call to the API server."""


class NoReplyError(KubeError):
    """No complete reply arrived. `maybe_done`: the request was sent, so the server may have carried it out."""

    def __init__(self, message: str, *, maybe_done: bool) -> None:
        super().__init__(message)
        self.maybe_done = maybe_done


class ApiError(KubeError):
    """The server replied with a status of 400 or more.

    `reason` is the machine-readable reason of the Status object, empty if the body was not one. `retry_after_seconds`
    is None if the server named no time.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, retry_after_seconds: float | None = None, cause: str = ""
    ) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.cause = cause

    @property
    def expired(self) -> bool:
        """Whether the resourceVersion or continue token is too old, so that a new list is needed."""
        return self.status == 410

    @property
    def ahead(self) -> bool:
        """Whether the resourceVersion is newer than the server's: it has lost history, and a new list is needed."""
        return self.cause == "ResourceVersionTooLarge" or (
            self.status == 504 and "too large resource version" in self.message.lower()
        )


def api_error(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error for a reply with *status*. *body* may be anything."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict) or value.get("kind") != "Status":
        message = body[:200].decode("utf-8", "replace")
        return ApiError(status, "", message, retry_after_seconds=_seconds(retry_after))
    return status_error(value, default_code=status, retry_after=retry_after)


def status_error(status: Mapping[str, Any], *, default_code: int = 500, retry_after: str | None = None) -> ApiError:
    """The error for a Status object, from a reply or from an ERROR event of a watch."""
    code = status.get("code")
    details = status.get("details")
    if not isinstance(details, dict):
        details = {}
    causes = details.get("causes")
    cause = causes[0].get("reason", "") if isinstance(causes, list) and causes and isinstance(causes[0], dict) else ""
    seconds = _seconds(retry_after)
    return ApiError(
        code if isinstance(code, int) and code >= 400 else default_code,
        str(status.get("reason") or ""),
        str(status.get("message") or ""),
        retry_after_seconds=_seconds(details.get("retryAfterSeconds")) if seconds is None else seconds,
        cause=str(cause),
    )


def _seconds(value: object) -> float | None:
    """A Retry-After in seconds. None for a date or anything else; then our own back-off applies."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return float(value)
    if isinstance(value, str) and value.isascii() and value.isdigit() and int(value) > 0:
        return float(value)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """`base_seconds`: the ceiling after the first failure. `cap_seconds`: the highest ceiling, also for Retry-After."""

    base_seconds: float = 0.5
    cap_seconds: float = 30.0

    def delay_seconds(
        self, failures: int, random: Callable[[], float], *, retry_after_seconds: float | None = None
    ) -> float:
        """The delay after *failures* consecutive failures (0: none). *random*: uniform in [0, 1)."""
        if failures <= 0:
            return 0.0
        ceiling = min(self.cap_seconds, self.base_seconds * 2.0 ** min(failures - 1, 30))
        floor = min(retry_after_seconds or 0.0, self.cap_seconds)
        return floor + random() * ceiling
