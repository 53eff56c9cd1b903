"""What rules know besides the document: versions, our own routes and settings, and the other documents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Fault = tuple[str, str]
"""A name (setting, field), and what is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintContext:
    """What the documents say together."""

    has_alert: bool = False
    """Some alert fires when the extender is gone."""
    resolves_services: bool | None = None
    """Whether the scheduler's pod can resolve names of Services; None: no such pod was seen."""
    stale_after_seconds: float | None = None
    """Set by hand in some manifest."""
    deadlines: Mapping[str, float] = field(default_factory=dict)
    """The longest that the extender takes for a verb (`filterVerb`…), below which kube-scheduler must not give up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Versions as minors; functions that know our settings and command lines, given by the composition."""

    kube_minor: int
    kubelet_version: str
    routes: frozenset[str]
    """Paths that the extender answers to POST, such as /scheduler/filter."""
    probes: Mapping[str, frozenset[str]]
    """Paths for probes, by program."""
    defaults: Mapping[str, object]
    """Our settings by environment variable, as they are when nothing is set."""
    check_settings: Callable[[Mapping[str, str]], Sequence[Fault]]
    """Faults of values, by environment variable."""
    check_arguments: Callable[[str, Sequence[str]], str | None]
    """What a program (`numa-extender`, `numa-node-exporter`) says to arguments that it does not take."""
    effective_kubelet: Callable[[Mapping[str, object]], tuple[Mapping[str, object], Sequence[Fault]]]
    """A KubeletConfiguration with defaults and sums, as scenario files hold it, and what was wrong with it."""
    surroundings: LintContext = field(default_factory=LintContext)
