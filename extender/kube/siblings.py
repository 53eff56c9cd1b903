"""Nodes that have just come: until they report, they are judged as empty copies of the newest node of their kind.

Two nodes are of one kind if the labels of the setting `sibling_labels`, the kubelet version and the allocatable CPUs of
their Node objects are equal. Where no node of the kind has reported, a profile with labels of the node takes the place
of the newest one, with the kubelet version of the node.

Rules of this file
- Only a node that the API server has and that has never reported is assumed. Names that only a filter call has, such as
  the template nodes of cluster-autoscaler, leave no trace.
- The nodes of the kind that have reported must agree on the configuration of their kubelets (the newest
  `MAX_COMPARED` are compared). Nodes with the NRI topology-aware policy are no model for others.
- Verdicts have the certainty `assumed` and a caveat. Pods that the watch shows on the node are replayed on the empty
  state. The first report replaces everything; without one the node goes stale.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from extender.cluster.errors import ClusterFullError
from extender.cluster.node import NodeRecord, Observation
from extender.cluster.store import NodeStore
from extender.intake.profiles import NodeProfile
from extender.kube.changes import Batch, Gone
from extender.kube.nodes import NodeObject
from extender.replay.config import KubeletConfigError
from extender.replay.kubelet import Kubelet
from extender.replay.startup import initial_state, start

MAX_COMPARED: Final = 8
LOG: Final = logging.getLogger(__name__)
PROFILE_CAVEAT: Final = "the node has not reported yet: it is judged as an empty node with the profile for its labels"
CAVEAT: Final = "the node has not reported yet: it is judged as an empty copy of the newest node of its kind"

Kind = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _KnownNode:
    """`kind` None: it has no siblings. `profile` None: there is none for it."""

    kind: Kind | None
    created_at: int
    kubelet_version: str
    profile: NodeProfile | None


class Siblings:
    """Assumes the state of nodes in *cluster*. *labels*: those that nodes of one kind have in common; empty: none are.

    *profiles*: the first one whose labels a node has counts.
    """

    def __init__(
        self,
        cluster: NodeStore,
        labels: Sequence[str],
        clock: Callable[[], float],
        profiles: Sequence[NodeProfile] = (),
    ) -> None:
        self._cluster, self._labels, self._clock = cluster, tuple(labels), clock
        self._profiles = tuple(profiles)
        self._known: dict[str, _KnownNode] = {}
        self._kinds: dict[Kind, set[str]] = {}
        self._waiting: set[str] = set()

    def apply(self, batch: Batch[NodeObject]) -> None:
        """Apply changes from the watch of nodes."""
        for change in batch.changes:
            self._forget(change.value.name)
            if not isinstance(change, Gone):
                self._note(change.value)
        self.settle()

    def settle(self) -> None:
        """Assume each waiting node of which a sibling has reported, or that has a profile."""
        newest: dict[Kind, NodeRecord | None] = {}
        for name in sorted(self._waiting):
            known = self._known[name]
            if self._cluster.observation(name) is not None:
                self._waiting.discard(name)
                continue
            if known.kind is not None and known.kind not in newest:
                newest[known.kind] = self._newest(known.kind)
            sibling = None if known.kind is None else newest[known.kind]
            if sibling is not None:
                self._assume(name, sibling.observation, borrowed(sibling.observation.kubelet))
            elif known.profile is not None:
                self._assume_profile(name, known.profile, known.kubelet_version)

    def _note(self, node: NodeObject) -> None:
        if not node.kubelet_version:
            return
        kind, profile = self._kind_of(node), self._profile_of(node)
        if kind is None and profile is None:
            return
        self._known[node.name] = _KnownNode(kind, node.created_at or 0, node.kubelet_version, profile)
        if kind is not None:
            self._kinds.setdefault(kind, set()).add(node.name)
        if self._cluster.observation(node.name) is None:
            self._waiting.add(node.name)

    def _kind_of(self, node: NodeObject) -> Kind | None:
        kind = (*(node.labels.get(label, "") for label in self._labels), node.allocatable.get("cpu", ""))
        return (*kind, node.kubelet_version) if self._labels and all(kind) else None

    def _profile_of(self, node: NodeObject) -> NodeProfile | None:
        return next((each for each in self._profiles if each.labels.items() <= node.labels.items()), None)

    def _forget(self, name: str) -> None:
        known = self._known.pop(name, None)
        self._waiting.discard(name)
        if known is not None and known.kind is not None:
            self._kinds[known.kind].discard(name)
            if not self._kinds[known.kind]:
                del self._kinds[known.kind]

    def _newest(self, kind: Kind) -> NodeRecord | None:
        """The newest node of the kind that has reported; None if there is none, or they differ."""
        compared = list(islice(self._reporting(kind), MAX_COMPARED))
        kubelets = (record.observation.kubelet for record in compared)
        configurations = {kubelet.config.identity for kubelet in kubelets if kubelet is not None}
        return compared[0] if len(configurations) == 1 else None

    def _reporting(self, kind: Kind) -> Iterator[NodeRecord]:
        """The nodes of the kind that have reported all that a verdict needs, the newest first."""
        for name in sorted(self._kinds[kind], key=lambda each: (-self._known[each].created_at, each)):
            record = self._cluster.get(name)
            if record is None or not record.observation.is_replayable:
                continue
            kubelet = record.observation.kubelet
            if kubelet is not None and not kubelet.borrowed and kubelet.nri is None:
                yield record

    def _assume_profile(self, name: str, profile: NodeProfile, version: str) -> None:
        """Assume the profile's node with this kubelet version, unless such a kubelet does not start."""
        kubelet = profile.observed.kubelet
        assert kubelet is not None  # `read_profiles` has looked
        try:
            kubelet = start(kubelet.machine, replace(kubelet.config, kubelet_version=version))
        except KubeletConfigError as error:
            LOG.warning("profile not used node=%s profile=%s reason=%r", name, profile.name, str(error))
            self._waiting.discard(name)
            return
        self._assume(name, profile.observed, borrowed(kubelet, PROFILE_CAVEAT))

    def _assume(self, name: str, observed: Observation, kubelet: Kubelet) -> None:
        assert observed.state is not None  # `_reporting` and `read_profiles` have looked
        observation = Observation(
            node_name=name,
            kubelet=kubelet,
            state=initial_state(kubelet, observed.state.devices.devices),
            hidden=observed.hidden,
            facts={
                **observed.facts,
                "kubelet_version": kubelet.config.kubelet_version,
                "pods": None,
                "zones": [],
                "problems": [],
            },
        )
        try:
            self._cluster.observe(observation, self._clock())
        except ClusterFullError:
            return
        self._waiting.discard(name)


def borrowed(kubelet: Kubelet | None, caveat: str = CAVEAT) -> Kubelet:
    """The kubelet as the one of a node that has not reported."""
    assert kubelet is not None  # `_reporting` has looked
    return replace(kubelet, borrowed=True, caveats=(*kubelet.caveats, caveat))
