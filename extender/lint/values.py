"""Readers for values in configurations: durations, URLs, environment variables."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from extender.lint.documents import Located

_DURATION: Final = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)")
_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TRUE: Final = frozenset({"1", "true", "t", "yes", "y", "on"})


def go_seconds(value: object) -> float | None:
    """A Go duration (`1m30s`, `0`) in seconds. None if it is not one."""
    if value == "0":
        return 0.0
    if not isinstance(value, str) or not value:
        return None
    parts = _DURATION.findall(value)
    if "".join(parts) != value or any(part[0] in "+-" for part in parts[1:]):
        return None
    sign = -1.0 if value[0] == "-" else 1.0
    return sign * sum(_part_seconds(part.lstrip("+-")) for part in parts)


def _part_seconds(part: str) -> float:
    unit = part.lstrip("0123456789.")
    return float(part[: -len(unit)]) * _UNITS[unit]


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


def is_loopback(host: str) -> bool:
    """Whether the host is certainly the same machine or pod."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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
