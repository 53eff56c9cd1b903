"""Verdicts: admitted with a placement, or rejected with a reason. A rejection is a value, never an exception.

The trace of one admission is data as well, recorded only on request. `Trace` does nothing and costs one attribute
lookup. `RecordingTrace` keeps every event in order. Explanations are built from these events.

Mirrors: kubelet `cm/admission/errors.go` (GetPodAdmitResult) and the error types of `cm/topologymanager`,
`cm/cpumanager`.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from extender.kubelet.state import Block


class Certainty(StrEnum):
    """The certainty of a verdict. Every verdict has one."""

    EXACT = "exact"
    """The kubelet's state is known and its outcome is determined."""
    ASSUMED = "assumed"
    """The kubelet is newer than the newest known, and is assumed to behave as that one."""
    POSSIBLE = "possible"
    """The outcome depends on random choices, not all of which may have been tried; or the state files are in doubt."""
    DEGRADED = "degraded"
    """Only counts per NUMA node are known."""
    STALE = "stale"
    """The node's last report is old, or its kubelet does not answer."""
    UNKNOWN = "unknown"
    """There is no usable report of the node."""


class Reason(StrEnum):
    """Why a pod is refused: the pod status reason that the kubelet sets."""

    TOPOLOGY_AFFINITY = "TopologyAffinityError"
    SMT_ALIGNMENT = "SMTAlignmentError"
    UNEXPECTED_ADMISSION = "UnexpectedAdmissionError"
    EMPTY_POD_SHARED_POOL = "EmptyPodSharedPoolError"
    KUBELET_PANIC = "KubeletPanic"
    """Not a status: the kubelet would crash on this admission."""
    KUBELET_HANG = "KubeletHang"
    """Not a status: the kubelet would loop forever on this admission."""
    REPLAY_STEPS = "ReplayOutOfSteps"
    """Not a status: the replay took more steps than that of any real node. The kubelet may admit the pod."""
    REPLAY_TIME = "ReplayOutOfTime"
    """Not a status: the replay reached the caller's deadline. The kubelet may admit the pod."""


MANAGERS_REASONS: Final = frozenset(
    {Reason.TOPOLOGY_AFFINITY, Reason.SMT_ALIGNMENT, Reason.UNEXPECTED_ADMISSION, Reason.EMPTY_POD_SHARED_POOL}
)
"""The status reasons of pods that the kubelet's resource managers refuse."""


class Provider(StrEnum):
    """The component that refuses."""

    TOPOLOGY = "topology"
    CPU = "cpu"
    MEMORY = "memory"
    DEVICE = "device"
    RUNTIME = "nri"
    """A policy of the container runtime, which decides when a container is created: a plugin of NRI."""


class When(StrEnum):
    """Whether waiting can help."""

    NEVER = "never"
    """The hardware and configuration of the node exclude the pod, whatever is free."""
    NOW = "now"
    """Resources in use may be the only reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one container is placed.

    `cpus`: raw bits, 0 for the shared pool. `affinity` is what the Topology Manager stored: raw NUMA bits, None for any
    node. `devices`: ids by resource, sorted. `devices_random` names the resources of which the kubelet picks some at
    random: `devices` then shows one possible pick.
    """

    affinity: int | None
    preferred: bool
    cpus: int = 0
    memory: tuple[Block, ...] = ()
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    devices_random: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The managers admit the pod. `placements` by container name, in the kubelet's order; `pod_cpus` its bubble.

    `caveats` are assumptions of the verdict. Empty: it depends only on the node's report. `granted`: what a policy of
    the container runtime gives to the containers, in the policy's own form and in the order of creation.
    """

    placements: Mapping[str, Placement]
    certainty: Certainty = Certainty.EXACT
    pod_cpus: int = 0
    caveats: tuple[str, ...] = ()
    granted: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """The managers refuse the pod.

    `reason`: a `Reason`, or one of a policy of the container runtime. `message` is the kubelet's own. `container` None
    when the whole pod was refused (pod scope). `wanted` / `had` are in units of `resource` (CPUs, bytes, devices) where
    the refusal is about an amount. `caveats` as of `Admitted`. `alternatives`: other messages that the kubelet may give
    instead, because it visits device resources in random order.
    """

    reason: StrEnum
    message: str
    provider: Provider
    container: str | None = None
    resource: str | None = None
    wanted: int | None = None
    had: int | None = None
    when: When = When.NOW
    certainty: Certainty = Certainty.EXACT
    caveats: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()


Verdict = Admitted | Rejected


@dataclass(eq=False)
class Refusal(Exception):  # noqa: N818 - not a fault: unwinds the managers, becomes a verdict in admission
    """A refusal by a manager inside the replay. The fields are those of `Rejected`."""

    reason: Reason
    message: str
    _: KW_ONLY
    provider: Provider
    resource: str | None = None
    wanted: int | None = None
    had: int | None = None
    alternatives: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message


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
