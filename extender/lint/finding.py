"""One finding, and its place."""

from dataclasses import dataclass

from extender.lint.catalogue import RULES, Severity
from extender.lint.documents import Located


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`path`: the place in the document. `why`: the consequence here. `fix`: what to do."""

    file: str
    line: int
    path: str
    rule: str
    severity: Severity
    why: str
    fix: str


def found(rule: str, place: Located, why: str, fix: str) -> Finding:
    """A finding of a rule of the catalogue, at a place of a document."""
    return Finding(
        file=place.file,
        line=place.line,
        path=place.path,
        rule=rule,
        severity=RULES[rule].severity,
        why=why,
        fix=fix,
    )
