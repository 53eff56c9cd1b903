"""Pods and containers as in the plugin's cache.

Mirrors: `pkg/resmgr/cache/{pod,container}.go`. Values only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final, NamedTuple

KEY_SUFFIX: Final = ".resource-policy.nri.io"


class QoS(Enum):
    """A pod's QoS class. UNKNOWN: the pod is no longer in the plugin's cache."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"
    UNKNOWN = ""


class NriScope(IntEnum):
    """How specific an annotation is; a lower value is more specific (`pod.go` AnnotationScope)."""

    CONTAINER = 0
    POD = 1
    UNSCOPED = 2


class _Malformed(Enum):
    MALFORMED = "malformed"


MALFORMED: Final = _Malformed.MALFORMED
"""The document of an annotation whose text is not YAML that the plugin accepts."""


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests and limits, CPU in mCPU and memory in bytes; a missing key is not set."""

    requests: Mapping[str, int]
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RuntimeResources:
    """Values from the runtime: cpu.shares, CFS quota and period in microseconds, memory limit; 0 is "not set"."""

    cpu_shares: int
    cpu_quota_us: int
    cpu_period_us: int
    memory_limit_bytes: int


@dataclass(frozen=True, slots=True)
class ContainerDevice:
    """A device of a container. `access`: the rights of its own cgroup rule; None if it has none."""

    type: str
    major: int
    minor: int
    access: str | None


class ParsedAnnotations(NamedTuple):
    """Annotation values that the policy reads as YAML or JSON.

    `documents`: the YAML values by their texts; MALFORMED where one does not parse. `resources`: from the annotation
    `noderesource.dev/resources`, by container. `excess`: which field is too long to be read, as a sentence; "": none.
    With an excess the others are empty, and nothing is known of what the policy does with the pod.
    """

    documents: Mapping[str, object]
    resources: Mapping[str, Resources]
    excess: str = ""


NOTHING_PARSED: Final = ParsedAnnotations({}, {})


class LateAnnotations:
    """A pod's annotation values, which *read* parses at the first access. Thread-safe. *steps*: the cost of parsing.

    Most pods never come to a node with the policy, so most values are never parsed.
    """

    __slots__ = ("_found", "_read", "steps")

    def __init__(self, read: Callable[[], ParsedAnnotations], steps: int = 0) -> None:
        self.steps: Final = steps
        self._read: Final = read
        self._found: ParsedAnnotations | None = None

    @property
    def parsed(self) -> ParsedAnnotations:
        """The values."""
        if self._found is None:
            self._found = self._read()
        return self._found


def _nothing() -> ParsedAnnotations:
    return NOTHING_PARSED


NO_ANNOTATIONS: Final = LateAnnotations(_nothing)


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the policy reads of a pod's metadata: labels, and annotations that it may know. For the rest see `NriPod`.

    `excess`: which field is too long to be kept, as a sentence; "": none. Then the others are empty.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    late: LateAnnotations = field(default=NO_ANNOTATIONS, compare=False, repr=False)
    excess: str = ""


NO_METADATA: Final = Metadata()


@dataclass(frozen=True, slots=True)
class NriHint:
    """The location that a device or a test annotation prefers. Lists are text, "" if missing (`pkg/topology`)."""

    cpus: str = ""
    numas: str = ""
    sockets: str = ""


NO_HINTS: Final[Mapping[str, NriHint]] = {}


@dataclass(frozen=True, slots=True)
class NriPod:
    """A pod.

    `late`: the annotation values that the policy parses. `device_nodes`: per container (resource name, NUMA nodes) of
    its devices, as the kubelet's PodResources API lists them. `device_hints`: per container (device, hint) of the files
    of its devices, where only their NUMA nodes are known.
    """

    id: str
    uid: str
    namespace: str
    name: str
    qos: QoS
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    device_nodes: Mapping[str, tuple[tuple[str, tuple[int, ...]], ...]]
    device_hints: Mapping[str, tuple[tuple[str, NriHint], ...]] = field(default_factory=dict)
    late: LateAnnotations = field(default=NO_ANNOTATIONS, compare=False, repr=False)

    @property
    def documents(self) -> Mapping[str, object]:
        """The values of YAML annotations, parsed at the first use."""
        return self.late.parsed.documents

    @property
    def annotated_resources(self) -> Mapping[str, Resources]:
        """The resources that an annotation states for each container, parsed at the first use."""
        return self.late.parsed.resources

    def query(self, key: str, container: str) -> tuple[str, NriScope] | None:
        """The value of annotation *key* that applies to *container*, and its scope (`pod.go` QueryEffectiveAnnotation).

        *key* is without the suffix `.resource-policy.nri.io`.
        """
        full = key + KEY_SUFFIX
        for name, scope in (
            (f"{full}/container.{container}", NriScope.CONTAINER),
            (f"{full}/pod", NriScope.POD),
            (full, NriScope.UNSCOPED),
        ):
            value = self.annotations.get(name)
            if value is not None:
                return value, scope
        return None

    def effective(self, key: str, container: str) -> str | None:
        """The value of annotation *key* that applies to *container*."""
        found = self.query(key, container)
        return None if found is None else found[0]

    def document(self, key: str, container: str) -> object:
        """The parsed YAML of annotation *key* for *container*: None if absent, MALFORMED if it does not parse."""
        text = self.effective(key, container)
        return None if text is None else self.documents.get(text, MALFORMED)


@dataclass(frozen=True, slots=True)
class NriContainer:
    """A container of the cache.

    `created`: the values from the runtime at creation. `requirements`: the estimate at creation. `updates`: the
    estimate of the last resize, None before any. `hints`: by provider. `full_name`: namespace/pod/container.
    """

    id: str
    pod_id: str
    name: str
    created: RuntimeResources
    oom_score_adj: int
    requirements: Resources
    updates: Resources | None
    hints: Mapping[str, NriHint]
    full_name: str
    labels: Mapping[str, str]

    @property
    def resources(self) -> Resources:
        """The current requests and limits."""
        return self.requirements if self.updates is None else self.updates
