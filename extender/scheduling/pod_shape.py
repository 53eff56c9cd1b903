"""A pod without its name, and what is computed of it once for each rule set of kubelets."""

from collections.abc import Iterable
from typing import Final

from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.rules import Rules
from extender.replay.pod import NO_DEMAND, Pod, PodSteps
from extender.wire.nri_annotations import annotation_faults

SHAPE_UID: Final = "\0shape"
"""A UID that no API server assigns: no node holds anything for it."""


class _Resolved:
    """A pod under one rule set: its request, and the merges of its admission."""

    __slots__ = ("request", "steps")

    def __init__(self, request: PodRequest) -> None:
        self.request: Final = request
        self.steps: Final = PodSteps(request)


class PodShape:
    """A pod, with its request resolved once for each rule set of kubelets. Any thread may call it."""

    __slots__ = ("_has_faults", "_key", "_resolved", "has_demand", "pod")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.has_demand: Final = pod.demand != NO_DEMAND
        self._resolved: dict[Rules, _Resolved] = {}
        self._has_faults: bool | None = None
        self._key: tuple[object, ...] | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """`Pod.whole_shape`, computed once."""
        if self._key is None:
            self._key = self.pod.whole_shape
        return self._key

    @property
    def has_annotation_faults(self) -> bool:
        """Whether something is wrong with the pod's annotations of the NRI topology-aware policy."""
        if self._has_faults is None:
            names = [container.name for container in self.pod.containers]
            self._has_faults = bool(annotation_faults(self.pod.metadata.annotations, names))
        return self._has_faults

    def resolved(self, rules: Rules) -> _Resolved:
        """The pod under the rules of a kubelet."""
        found = self._resolved.get(rules)
        if found is None:
            found = self._resolved[rules] = _Resolved(resolve(self.pod, rules))
        return found

    def request(self, rules: Rules) -> PodRequest:
        """The pod's request to the managers of a kubelet with these rules."""
        return self.resolved(rules).request

    def is_aligned_anywhere(self, rules: Iterable[Rules]) -> bool:
        """Whether a manager of a kubelet with any of *rules* can have something to align for the pod."""
        return any(self.request(each).aligned for each in rules)
