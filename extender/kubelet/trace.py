"""The trace of one admission, as data, recorded only on request.

`Trace` does nothing and costs one attribute lookup. `RecordingTrace` keeps every event in order. Explanations are built
from these events.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


class HintRecord(NamedTuple):
    """One hint: raw NUMA mask, preferred or not."""

    mask: int
    preferred: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HintsOffered:
    """The hints of one provider for one resource.

    `container` is None in pod scope. `hints` None: no preference; empty: impossible. `minimum_width` is the number of
    NUMA nodes that the hardware needs for the request, which makes a hint preferred; None if there are no hints.
    """

    container: str | None
    provider: str
    resource: str
    wanted: int
    hints: tuple[HintRecord, ...] | None
    minimum_width: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The result of the Topology Manager's merge. `affinity` None: any node. `why` names the rule that chose it."""

    container: str | None
    policy: str
    affinity: int | None
    preferred: bool
    admitted: bool
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocated:
    """What one provider allocated to one container, as text (CPU list, blocks, device ids)."""

    container: str
    provider: str
    taken: str


TraceEvent = HintsOffered | Merged | Allocated


class Trace:
    """Records nothing. Subclasses override `record` and set `listening`: every event, or `wants_refused_hints`."""

    __slots__ = ()
    listening = False
    wants_refused_hints = False
    """Only the hints of a merge that is refused; an admission costs nothing more."""

    def record(self, event: TraceEvent) -> None:
        """Record one event."""


@dataclass(slots=True)
class RecordingTrace(Trace):
    """Keeps every event, in the kubelet's order."""

    events: list[TraceEvent] = field(default_factory=list)
    listening = True

    def record(self, event: TraceEvent) -> None:
        """Append the event."""
        self.events.append(event)


class RefusedHints(RecordingTrace):
    """Keeps the hints of the refused merge, if a merge is refused."""

    __slots__ = ()
    listening = False
    wants_refused_hints = True


NO_TRACE = Trace()
