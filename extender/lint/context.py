"""What rules need besides the document: versions, our own routes and settings, and the other documents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Fault = tuple[str, str]
"""A name (setting, field), and its error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintContext:
    """Facts from all documents together."""

    has_alert: bool = False
    """Some alert fires if the extender is down."""
    resolves_services: bool | None = None
    """Whether the scheduler's pod can resolve names of Services. None: there is no such pod."""
    stale_after_seconds: float | None = None
    """Settings that a manifest sets."""
    deadlines: Mapping[str, float] = field(default_factory=dict)
    """The longest time that the extender takes for a verb (`filterVerb`…). kube-scheduler's time-out must not be
    shorter."""
    has_static_cpu: bool = False
    """A kubelet of the documents has the CPU manager's static policy."""
    reserved_millicpu: int | None = None
    """The least CPU that a kubelet of the documents reserves. None: no kubelet is among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Minor versions, and functions that check our settings and command lines. Provided by the composition root."""

    kube_minor: int
    kubelet_version: str
    routes: frozenset[str]
    """Paths to which the extender accepts POST, such as /scheduler/filter."""
    probes: Mapping[str, frozenset[str]]
    """Paths for probes, by program."""
    defaults: Mapping[str, object]
    """Our settings by environment variable, with their defaults."""
    check_settings: Callable[[Mapping[str, str]], Sequence[Fault]]
    """Errors of values, by environment variable."""
    check_arguments: Callable[[str, Sequence[str]], str | None]
    """The message of a program (`numa-extender`, `numa-node-exporter`) for invalid arguments."""
    effective_kubelet: Callable[[Mapping[str, object]], tuple[Mapping[str, object], Sequence[Fault]]]
    """A KubeletConfiguration with defaults and sums, as in scenario files, and its errors."""
    surroundings: LintContext = field(default_factory=LintContext)
