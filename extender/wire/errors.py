"""The errors of this package: a document that cannot be read; and the problems of reports that can."""

from typing import Final

from extender.kubelet.errors import FieldError
from node_exporter.report import Problem, Severity

MAX_SHOWN: Final = 60
"""Characters of an input value that a message repeats. The rest is cut, so that no input can flood a log."""


class WireError(FieldError):
    """Malformed input. `field`: as `spec.containers[0].resources.limits.cpu`. `reason` says what was expected."""

    def below(self, prefix: str) -> "WireError":
        """This error for a document that has the faulty document under *prefix*."""
        joint = "." if prefix and self.field and self.field[0] != "[" else ""
        moved = type(self).__new__(type(self))  # a subclass can set some of the arguments itself
        WireError.__init__(moved, f"{prefix}{joint}{self.field}", self.reason)
        return moved


class CapError(WireError):
    """A limit is exceeded. The content need not be wrong."""


class NotJSONError(WireError):
    """The document is not JSON."""

    def __init__(self, reason: str) -> None:
        super().__init__("", f"not JSON: {reason}")


def shown(value: object) -> str:
    """An input value for a message: its Python form, cut to `MAX_SHOWN` characters."""
    text = repr(value) if not isinstance(value, str | bytes) else repr(value[: MAX_SHOWN + 1])
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


SOURCE: Final = "extender"


def problem(path: str, reason: str, severity: Severity = "warning") -> Problem:
    """A problem of the field *path* of a report; "": of the whole report."""
    return Problem(source=SOURCE, path=path, reason=reason, severity=severity)
