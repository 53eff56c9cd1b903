"""Times in the format of the API server."""

from datetime import UTC, datetime


def unix_seconds(written: object) -> int | None:
    """An RFC 3339 time in whole seconds since 1970. None if it is not valid: pods are then ordered without it."""
    if not isinstance(written, str):
        return None
    try:
        return int(datetime.fromisoformat(written).timestamp())
    except (ValueError, OverflowError):
        return None


def rfc_3339(seconds: int) -> str:
    """The time in the format of the API server."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
