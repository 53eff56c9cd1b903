"""A pod without its name, and what is computed of it once for each rule set of kubelets."""

from collections.abc import Iterable
from typing import Final

from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.rules import Rules
from extender.replay.coarse.admission import MAX_KNOWN, CoarseReplay, Key
from extender.replay.demand import NO_DEMAND
from extender.replay.pod import Pod
from extender.scheduling.demands import CoarseDemand
from extender.scheduling.judgement import Judgement
from extender.wire.nri_annotations import annotation_faults

SHAPE_UID: Final = "\0shape"
"""A UID that no API server assigns: no node holds anything for it."""


class _Resolved:
    """A pod under one rule set: its request, its coarse replay, and the judgements that follow from a key of it alone.

    `judgements`: those of the last judge. The tuple is replaced as a whole, so any thread may replace it.
    """

    __slots__ = ("judgements", "replay", "request")

    def __init__(self, request: PodRequest) -> None:
        self.request: Final = request
        self.replay: Final = CoarseReplay(request)
        self.judgements: tuple[object, dict[Key, Judgement]] = (None, {})

    def judgements_of(self, judge: object) -> dict[Key, Judgement]:
        """The judgements of this judge, by key."""
        owner, found = self.judgements
        if owner is not judge or len(found) >= MAX_KNOWN:
            found = {}
            self.judgements = judge, found
        return found


class PodShape:
    """A pod, with its request resolved once for each rule set of kubelets. Any thread may call it."""

    __slots__ = ("_has_faults", "_key", "_resolved", "coarse_demand", "has_demand", "is_ordinary", "pod")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.has_demand: Final = pod.demand != NO_DEMAND
        self.coarse_demand: Final = CoarseDemand(pod.demand)
        self.is_ordinary = pod.uid == SHAPE_UID
        """Whether it stands for any pod of the shape."""
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
