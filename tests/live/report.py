"""What a scene found: its results, each with a bound, and the circumstances in which they were found."""

from dataclasses import dataclass, field

from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One figure. `bound` says what it must be; empty: it is a circumstance."""

    what: str
    value: str
    bound: str = ""
    ok: bool = True


@dataclass
class Findings:
    """The rows of one scene, and lines for whoever looks into a broken bound."""

    scene: str
    rows: list[Row] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def show(self, what: str, value: object) -> None:
        """A circumstance: what was played, on what, and how long the others took. No result."""
        self.rows.append(Row(what, str(value)))

    def must(self, what: str, value: object, bound: str, *, ok: bool) -> None:
        """A result."""
        self.rows.append(Row(what, str(value), bound, ok))

    @property
    def ok(self) -> bool:
        """Whether every bound held."""
        return all(row.ok for row in self.rows)


def table(findings: Findings) -> Table:
    """For people."""
    verdict = "" if findings.ok else "  BOUND BROKEN"
    shown = Table(title=f"{findings.scene}, {findings.seconds:.0f} s{verdict}", title_justify="left")
    for column in ("figure", "value", "must be", ""):
        shown.add_column(column)
    for row in findings.rows:
        shown.add_row(row.what, row.value, row.bound, ("ok" if row.ok else "BROKEN") if row.bound else "")
    return shown
