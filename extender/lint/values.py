"""Readers for values in configurations: durations, URLs, environment variables."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from extender.lint.documents import Located
from extender.nri.text import parse_duration

_TRUE: Final = frozenset({"1", "true", "t", "yes", "y", "on"})


def go_seconds(value: object) -> float | None:
    """A Go duration (`1m30s`, `0`) in seconds. None if it is not one."""
    nanoseconds = parse_duration(value) if isinstance(value, str) else None
    return None if nanoseconds is None else nanoseconds / 10**9


def is_number(text: str) -> bool:
    """Whether a string is a plain number such as 30 or 0.5."""
    return text.replace(".", "", 1).isdecimal()


def is_true(value: object) -> bool:
    """Whether our programs read a variable with this value as true."""
    return str(value).lower() in _TRUE


def split_url(text: str) -> SplitResult | None:
    """An http or https URL with a host. None for anything else."""
    try:
        url = urlsplit(text)
        valid = url.scheme in ("http", "https") and bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        return None
    return url if valid else None


def is_service_name(host: str) -> bool:
    """Whether only the cluster's DNS can resolve the name: `NAME.NAMESPACE.svc`, or a single label."""
    labels = host.rstrip(".").split(".")
    if host == "localhost" or all(c in "0123456789.:[]" for c in host):
        return False
    return len(labels) == 1 or (len(labels) >= 3 and labels[2] == "svc")


def environment(container: Located) -> Mapping[str, Located]:
    """The variables of a container that have a value in the manifest, by name."""
    found = {}
    for entry in container.items("env"):
        value = entry.get("value")
        if value is not None and entry.text("name"):
            found[entry.text("name")] = value
    return found


def texts(value: Located, key: str) -> tuple[str, ...]:
    """The list of texts under a key."""
    return tuple(str(item.value) for item in value.items(key))
