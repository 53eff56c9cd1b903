"""The properties of a node that kube-scheduler's own filters check.

None always means "not known", and an unknown property is reported as not checked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

CPU_DRIVER: Final = "dra.cpu"
"""The driver that allocates CPUs by claims."""


class DynamicDevice(NamedTuple):
    """One device of a node. `claim`: NAMESPACE/NAME, "": free.

    `numa`: the NUMA nodes that it is local to, as raw bits; 0: the driver does not say.
    """

    driver: str
    pool: str
    name: str
    numa: int = 0
    claim: str = ""

    @property
    def is_cpus(self) -> bool:
        """Whether it stands for CPUs."""
        return self.driver == CPU_DRIVER

    @property
    def key(self) -> tuple[str, str, str]:
        """What a claim names it by."""
        return self.driver, self.pool, self.name


class WatchedPod(NamedTuple):
    """One pod on a node that has not finished, as the API server has it.

    `uid` as the kubelet knows it, `api_uid` that of the API object: they differ for static pods, which cannot be
    evicted. `mirror`: the object says that it is the mirror of one. Times are Unix seconds, None if unset. `manifest`:
    JSON of a v1.Pod with the parts that questions read.
    """

    uid: str
    api_uid: str
    namespace: str
    name: str
    priority: int
    created_at: int | None
    started_at: int | None
    terminating: bool
    manifest: bytes
    mirror: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """One taint of a node. `value` may be empty."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """`allocatable_milli` as `node_totals`; `requested_milli`: what all pods of the node request together.

    `pods`: all of them that have not finished. `devices`: those of DRA drivers. Both are the same objects as long as
    none of them changes.
    """

    labels: Mapping[str, str] | None = None
    taints: Sequence[Taint] | None = None
    unschedulable: bool | None = None
    allocatable_milli: Mapping[str, int] | None = None
    requested_milli: Mapping[str, int] | None = None
    pods: Sequence[WatchedPod] | None = None
    devices: Sequence[DynamicDevice] | None = None


NOTHING_KNOWN: Final = NodeContext()
LookUp = Callable[[str], NodeContext]
"""Returns the context of a live node, by name. Cheap: it is called for each node of a question."""
