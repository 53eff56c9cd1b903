"""Pods and containers as in the plugin's cache.

Mirrors: `pkg/resmgr/cache/{pod,container}.go`. Values only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

KEY_SUFFIX: Final = ".resource-policy.nri.io"


class QoS(Enum):
    """A pod's QoS class. UNKNOWN: the pod is no longer in the plugin's cache."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"
    UNKNOWN = ""


class Scope(IntEnum):
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


@dataclass(frozen=True, slots=True)
class Metadata:
    """What the policy reads of a pod's metadata: labels, and annotations that it knows. For the rest see `Pod`.

    `is_too_long`: an annotation is too long to be read, so nothing is known of what the policy does with it.
    """

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    documents: Mapping[str, object] = field(default_factory=dict)
    annotated_resources: Mapping[str, Resources] = field(default_factory=dict)
    is_too_long: bool = False


NO_METADATA: Final = Metadata()


@dataclass(frozen=True, slots=True)
class Hint:
    """The location that a device or a test annotation prefers. Lists are text, "" if missing (`pkg/topology`)."""

    cpus: str = ""
    numas: str = ""
    sockets: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod.

    `documents`: the parsed YAML of the annotation values that the policy reads as YAML, by the value's text; MALFORMED
    where it does not parse. `annotated_resources`: from the annotation `noderesource.dev/resources`, by container.
    `device_nodes`: per container (resource name, NUMA nodes) of its devices, as the kubelet's PodResources API lists
    them. `device_hints`: per container (device, hint) of the files of its devices, where only their NUMA nodes are
    known.
    """

    id: str
    uid: str
    namespace: str
    name: str
    qos: QoS
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    documents: Mapping[str, object]
    annotated_resources: Mapping[str, Resources]
    device_nodes: Mapping[str, tuple[tuple[str, tuple[int, ...]], ...]]
    device_hints: Mapping[str, tuple[tuple[str, Hint], ...]] = field(default_factory=dict)

    def query(self, key: str, container: str) -> tuple[str, Scope] | None:
        """The value of annotation *key* that applies to *container*, and its scope (`pod.go` QueryEffectiveAnnotation).

        *key* is without the suffix `.resource-policy.nri.io`.
        """
        full = key + KEY_SUFFIX
        for name, scope in (
            (f"{full}/container.{container}", Scope.CONTAINER),
            (f"{full}/pod", Scope.POD),
            (full, Scope.UNSCOPED),
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
class Container:
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
    hints: Mapping[str, Hint]
    full_name: str
    labels: Mapping[str, str]

    @property
    def resources(self) -> Resources:
        """The current requests and limits."""
        return self.requirements if self.updates is None else self.updates
