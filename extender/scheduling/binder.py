"""Writing bindings to the API server, which only the leader does.

Rules of this file
- Every binding is sent through a `GatedBinder`, which cannot be made without a `Leadership`. So no binding is sent
  outside of the lease, in whatever order the parts of the service are put together.
- Leadership is checked immediately before a binding is sent, and must last for as long as the binding may take.
- At most `AT_ONCE` bindings are sent at the same time. Leadership is checked after the wait for a turn, so that a
  former leader cannot send a binding that waited.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Final, Protocol, final

AT_ONCE: Final = 16
"""`kube.binder.AsyncBinder` has as many threads: a call that has its turn is sent at once."""
RETRY: Final = "the scheduler will try again"


class BindFailure(StrEnum):
    """Why a pod was not bound. The values are the labels of `numa_extender_binds_total`."""

    FAILED = "failed"
    """The API server has not bound the pod, but may still do so."""
    AWAY = "away"
    """No API server answered, or one that has just started. Nothing was done."""
    CONFLICT = "conflict"
    """The pod is on another node, is another pod (UID), or is being deleted."""
    NOT_FOUND = "not_found"
    """There is no such pod."""
    STANDBY = "standby"
    """Another extender leads; nothing was sent."""
    NO_ACCESS = "no_access"
    """This extender has no access to the API server."""
    BUSY = "busy"
    """Other pods are being bound to the node."""
    UNKNOWN_POD = "unknown_pod"
    """No filter call has described the pod."""
    UNKNOWN_NODE = "unknown_node"
    """The API server has no such node."""
    REFUSED = "refused"
    """The kubelet would refuse the pod."""
    UNSETTLED = "unsettled"
    """The admission depends on pods that come to the node or leave it."""
    TOTALS = "totals"
    """The kubelet may still count pods that have ended."""
    CLAIMS = "claims"
    """It is not known yet which devices the pod's claims have."""
    PROMISED = "promised"
    """The room is held for a nominated pod."""
    HELD = "held"
    """The room is held for the pods of a group."""
    GROUP = "group"
    """Other pods of the pod's group are still to come, or do not fit."""
    SHAPE = "shape"
    """The pod would take the last room of a declared shape."""
    STARTING = "starting"
    """The node's kubelet is stopped or starting."""


BY_ADMISSION_CHECK: Final = frozenset(
    {
        BindFailure.REFUSED,
        BindFailure.UNSETTLED,
        BindFailure.TOTALS,
        BindFailure.CLAIMS,
        BindFailure.PROMISED,
        BindFailure.HELD,
        BindFailure.GROUP,
        BindFailure.SHAPE,
        BindFailure.STARTING,
    }
)
"""The failures that this service decided, before anything was sent."""
SETTLING: Final = frozenset({BindFailure.CONFLICT, BindFailure.NOT_FOUND})
"""The failures that also settle an earlier binding of the pod to the node: that binding cannot succeed any more."""


@dataclass(frozen=True, slots=True)
class PodBound:
    """The pod is on the node of the request. `label`: in metrics."""

    label: ClassVar[str] = "bound"


@dataclass(frozen=True, slots=True)
class NotBound:
    """The pod is not on the node, and will not be through this call."""

    reason: str
    failure: BindFailure = BindFailure.FAILED

    @property
    def label(self) -> str:
        """The label of the outcome in metrics."""
        return self.failure.value


@dataclass(frozen=True, slots=True)
class MaybeBound:
    """It is not known whether the pod is on the node, or will be. `label`: in metrics."""

    reason: str
    label: ClassVar[str] = "unsure"


BindOutcome = PodBound | NotBound | MaybeBound


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A pod and its node. `annotations`: those that the API server sets on the pod as well."""

    namespace: str
    name: str
    uid: str
    node_name: str
    annotations: Mapping[str, str] = field(default_factory=dict)


class BindingApi(Protocol):
    """Writes bindings to the API server."""

    async def bind(self, binding: Binding) -> BindOutcome:
        """Bind the pod, in bounded time. Raises nothing."""


class Leadership(Protocol):
    """Whether this process may write."""

    @property
    def leads(self) -> bool:
        """Whether this process may write now."""

    def obstacle(self, seconds: float) -> str | None:
        """Why a write that takes up to *seconds* must not start now; None if it may."""


class Unelected:
    """The leadership of a service that runs alone (`lease: off`): it may always write."""

    leads: Final = True

    def obstacle(self, _seconds: float) -> str | None:
        """Always None."""
        return None


@final
class GatedBinder:
    """Sends bindings through *api* while *leadership* allows it. *seconds*: the longest that one binding takes."""

    def __init__(self, api: BindingApi, leadership: Leadership, *, seconds: float, at_once: int = AT_ONCE) -> None:
        self._api, self._leadership, self._seconds = api, leadership, seconds
        self._places = asyncio.Semaphore(at_once)

    async def bind(self, binding: Binding) -> BindOutcome:
        """As `BindingApi.bind`; `BindFailure.STANDBY` if nothing was sent because another extender leads."""
        async with self._places:
            obstacle = self._leadership.obstacle(self._seconds)
            if obstacle is not None:
                return NotBound(f"{obstacle}; {RETRY}", BindFailure.STANDBY)
            return await self._api.bind(binding)
