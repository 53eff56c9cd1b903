"""Problems that the extender itself finds in a report; exporters find their own."""

from typing import Final

from node_exporter.report import Problem, Severity

SOURCE: Final = "extender"


def problem(path: str, reason: str, severity: Severity = "warning") -> Problem:
    """A problem of the field *path* of a report; "": of the whole report."""
    return Problem(source=SOURCE, path=path, reason=reason, severity=severity)
