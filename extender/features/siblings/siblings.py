"""Nodes that have just come: until they report, they are judged as empty copies of a node of their kind.

Two nodes are of one kind if the labels of the setting `sibling_labels`, the kubelet version and the allocatable CPUs of
their Node objects are equal. Where no node of the kind has reported, a profile with labels of the node takes its place,
with the kubelet version of the node.

Rules of this file
- Only a node that the API server has and that has never reported is assumed. Names that only a filter call has, such as
  the template nodes of cluster-autoscaler, leave no trace.
- Of the nodes of the kind that have reported, the newest `MAX_COMPARED`, the majority answers: more than half of them
  agree on the kubelet's configuration and on CPUs and NUMA nodes. Among these the one that is closest to the median
  counts, of memory, huge pages and devices of each NUMA node. So one node with a false report decides nothing, unless
  it is the only one. Nodes with the NRI topology-aware policy are no model for others.
- A node is not assumed to have more than its own Node object offers. A kubelet publishes what its machine has, less
  what it reserves (`pkg/kubelet/cm/node_container_manager_linux.go` GetNodeAllocatableReservation).
- A node with pods that hold something is not assumed: what they hold is not known. This is so for nodes that are older
  than this process, and for Node objects that were deleted while the kubelet ran on.
- Verdicts have the certainty `assumed` and a caveat. Pods that come to the node are replayed on the empty state. The
  first report replaces everything; without one the node goes stale.
- If an assumed kubelet refuses a pod that it should admit, nothing is assumed of its kind until it reports,
  for `REFUTED_SECONDS` at most.
"""

import logging
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from statistics import median
from typing import Final

from extender.cluster.node import ClusterFullError, Observation
from extender.cluster.store import NodeStore
from extender.features.profiles import NodeProfile
from extender.kube.changes import Batch, Gone
from extender.kube.feed import pod_of_watched
from extender.kube.nodes import NodeObject
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.kubelet import Kubelet, config_identity
from extender.kubelet.pod import HUGEPAGES_PREFIX
from extender.kubelet.resolve import is_aligned, resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Certainty
from extender.questions.node_context import WatchedPod
from extender.replay.pod import Pod
from extender.scheduling.node_totals import node_allocatable
from extender.wire.errors import WireError
from extender.wire.parsing import parse_milli

_MEMORY_PARTS: Final = 64
"""Machines of one kind differ by less than one part in this many in the memory that their kernels keep."""


def model_of(compared: Sequence[Observation]) -> Observation | None:
    """The node of *compared* that stands for the kind; None if no majority agrees."""
    alike: dict[Hashable, list[Observation]] = {}
    for seen in compared:
        alike.setdefault(_likeness(seen), []).append(seen)
    most = max(alike.values(), key=len, default=[])
    if 2 * len(most) <= len(compared):
        return None
    amounts = [_amounts(seen) for seen in most]
    medians = {key: median(each[key] for each in amounts) for key in {key for each in amounts for key in each}}

    def distance(number: int) -> float:
        found = amounts[number]
        return max((abs(found[key] - middle) / (middle or 1) for key, middle in medians.items()), default=0.0)

    return most[min(range(len(most)), key=distance)]


def _likeness(seen: Observation) -> Hashable:
    assert seen.kubelet is not None
    machine = seen.kubelet.machine
    nodes = tuple((node.id, node.distances) for node in machine.numa_nodes)
    return (
        config_identity(seen.kubelet.config),
        machine.cpus,
        nodes,
        machine.num_sockets,
        machine.num_cpus,
        machine.num_cores,
    )


def _amounts(seen: Observation) -> Counter[tuple[object, ...]]:
    """Memory, huge pages and devices by NUMA node."""
    assert seen.kubelet is not None
    assert seen.state is not None
    found: Counter[tuple[object, ...]] = Counter()
    for node in seen.kubelet.machine.numa_nodes:
        found["memory", node.id] = node.memory_bytes
        found.update({("pages", size, node.id): pages for size, pages in node.hugepages.items()})
    for resource, devices in seen.state.devices.devices.items():
        found.update(("device", resource, device.numa) for device in devices.values())
    return found


def excess(kubelet: Kubelet, state: ManagerState, allocatable: Mapping[str, str]) -> str:
    """What such a node would offer beyond *allocatable*, the quantities of its Node object; "" if nothing.

    Of the amounts that the Node object does not have, huge pages alone are compared.
    """
    for resource, most in node_allocatable(kubelet, state.devices).items():
        if resource not in allocatable and not resource.startswith(HUGEPAGES_PREFIX):
            continue
        try:
            own = parse_milli(allocatable.get(resource, "0"), resource)
        except WireError as error:
            return f"allocatable of the Node: {error}"
        own += own // _MEMORY_PARTS if resource == "memory" else 0
        if most > own:
            return f"it would offer {most / 1000:.0f} of {resource}, and the Node has {own / 1000:.0f}"
    return ""


MAX_COMPARED: Final = 8
REFUTED_SECONDS: Final = 600.0
"""How long one node that does not report keeps others of its kind from being assumed. A new node reports sooner."""
MAX_LOOKED: Final = 1024
"""How many waiting nodes are looked at in one go."""
LOG: Final = logging.getLogger(__name__)
PROFILE_CAVEAT: Final = "the node has not reported yet: it is judged as an empty node with the profile for its labels"
CAVEAT: Final = "the node has not reported yet: it is judged as an empty copy of a node of its kind"

Kind = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _KnownNode:
    """`kind` None: it has no siblings. `profile` None: there is none for it."""

    kind: Kind | None
    created_at: int
    kubelet_version: str
    profile: NodeProfile | None
    allocatable: Mapping[str, str]


class Siblings:
    """Assumes the state of nodes in *cluster*. *labels*: those that nodes of one kind have in common; empty: none are.

    *profiles*: the first one whose labels a node has counts. *pods_on*: the pods on a node that are not finished; None:
    not known yet.
    """

    def __init__(
        self,
        cluster: NodeStore,
        labels: Sequence[str],
        clock: Callable[[], float],
        pods_on: Callable[[str], Sequence[WatchedPod] | None],
        profiles: Sequence[NodeProfile] = (),
    ) -> None:
        self._cluster, self._labels, self._clock, self._pods_on = cluster, tuple(labels), clock, pods_on
        self._profiles = tuple(profiles)
        self._known: dict[str, _KnownNode] = {}
        self._kinds: dict[Kind, list[tuple[int, str]]] = {}
        """The nodes of each kind, the newest first: minus the time of creation, and the name."""
        self._waiting: dict[str, str] = {}
        """By name of the node: why it cannot be like its siblings; "": it can."""
        self._refuted: dict[Kind, tuple[str, float]] = {}
        """Kinds of which nothing is assumed until this node reports, or until this time: it refused a pod that its
        siblings would admit."""
        self._refusing: Final = set[str]()
        """Nodes that refused such a pod. Nothing is assumed of them as long as they exist."""

    def apply(self, batch: Batch[NodeObject]) -> None:
        """Apply changes from the watch of nodes."""
        for change in batch.changes:
            self._forget(change.value.name)
            if isinstance(change, Gone):
                self._refuted = {kind: each for kind, each in self._refuted.items() if each[0] != change.value.name}
                self._refusing.discard(change.value.name)
            else:
                self._note(change.value)
        if len(batch.changes) <= MAX_LOOKED:
            names = dict.fromkeys(change.value.name for change in batch.changes)
            self._settle([name for name in names if name in self._waiting])

    def settle(self) -> None:
        """Assume waiting nodes of which a sibling has reported, or that have a profile: the next `MAX_LOOKED` of them.

        To be called every second.
        """
        names = list(islice(self._waiting, MAX_LOOKED))
        for name in names:  # the others come first next time
            self._waiting[name] = self._waiting.pop(name)
        self._settle(names)

    def note_refused(self, node_name: str, pod: Pod) -> None:
        """A kubelet's managers have refused a pod. If it was assumed to admit the pod, it is not like its siblings."""
        predicted = self._cluster.pods_of(node_name).projection.prediction(pod.uid)
        if predicted is None or not predicted.kubelet.borrowed:
            return
        if not all(isinstance(verdict, Admitted) for verdict in predicted.verdicts):
            return
        known = self._known.get(node_name)
        kind = None if known is None else known.kind
        names = [node_name]
        self._refusing.add(node_name)
        if kind is not None:
            self._refuted[kind] = node_name, self._clock() + REFUTED_SECONDS
            names = [name for _, name in self._kinds[kind]]
        for name in names:
            why = f"nothing is assumed any more: the kubelet of {node_name} refused a pod that its siblings would admit"
            self._cluster.withdraw(name, why, self._clock())

    def _settle(self, names: Iterable[str]) -> None:
        """Assume those of these waiting nodes for which a sibling or a profile is known."""
        models: dict[Kind, Observation | None] = {}
        started: dict[tuple[str, str], Kubelet | None] = {}
        """By profile and kubelet version: many nodes that wait have equal ones."""
        for name in names:
            known = self._known[name]
            if self._cluster.observation(name) is not None:
                del self._waiting[name]
                continue
            if known.kind is not None and known.kind not in models:
                models[known.kind] = self._model(known.kind)
            sibling = None if known.kind is None else models[known.kind]
            if sibling is not None:
                self._assume(name, sibling, borrowed(sibling.kubelet))
            elif known.profile is not None and known.kind not in self._refuted:
                self._assume_profile(name, known.profile, known.kubelet_version, started)

    def _note(self, node: NodeObject) -> None:
        if not node.kubelet_version:
            return
        kind = self._kind_of(node)
        profile = next((each for each in self._profiles if each.labels.items() <= node.labels.items()), None)
        if kind is None and profile is None:
            return
        known = self._known[node.name] = _KnownNode(
            kind, node.created_at or 0, node.kubelet_version, profile, node.allocatable
        )
        if kind is not None:
            insort(self._kinds.setdefault(kind, []), (-known.created_at, node.name))
        if self._cluster.observation(node.name) is None:
            self._waiting[node.name] = ""

    def _kind_of(self, node: NodeObject) -> Kind | None:
        kind = (*(node.labels.get(label, "") for label in self._labels), node.allocatable.get("cpu", ""))
        return (*kind, node.kubelet_version) if self._labels and all(kind) else None

    def _forget(self, name: str) -> None:
        known = self._known.pop(name, None)
        self._waiting.pop(name, None)
        if known is None or known.kind is None:
            return
        kind, names = known.kind, self._kinds[known.kind]
        del names[bisect_left(names, (-known.created_at, name))]
        if not names:
            del self._kinds[kind]

    def _model(self, kind: Kind) -> Observation | None:
        """The node that stands for the kind; None if none has reported, or no majority of them agrees."""
        if kind in self._refuted:
            name, until = self._refuted[kind]
            seen = self._cluster.observation(name)
            if (seen is None or not seen.is_replayable) and self._clock() < until:
                return None
            del self._refuted[kind]
        return model_of(list(islice(self._reporting(kind), MAX_COMPARED)))

    def _reporting(self, kind: Kind) -> Iterator[Observation]:
        """The nodes of the kind that have reported all that a verdict needs, the newest first."""
        for _, name in self._kinds[kind]:
            seen = self._cluster.observation(name)
            if seen is not None and seen.is_model:
                yield seen

    def _assume_profile(
        self, name: str, profile: NodeProfile, version: str, started: dict[tuple[str, str], Kubelet | None]
    ) -> None:
        """Assume the profile's node with this kubelet version, unless such a kubelet does not start."""
        key = (profile.name, version)
        if key not in started:
            started[key] = _started(profile, version)
        kubelet = started[key]
        if kubelet is None:
            del self._waiting[name]
        else:
            self._assume(name, profile.observed, kubelet)

    def _assume(self, name: str, observed: Observation, kubelet: Kubelet) -> None:
        """Let the node count as one that has reported *kubelet* without pods, if it holds none."""
        if not self._is_empty(name, kubelet):
            return
        assert observed.state is not None  # `_reporting` and `read_profiles` have looked
        if why := excess(kubelet, observed.state, self._known[name].allocatable):
            if why != self._waiting[name]:
                LOG.warning("nothing is assumed of a new node node=%s reason=%r", name, why)
            self._waiting[name] = why
            return
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
        del self._waiting[name]

    def _is_empty(self, name: str, kubelet: Kubelet) -> bool:
        """Whether the node may be assumed to be empty: no pod on it can hold anything of the kubelet's managers."""
        watched = self._pods_on(name)
        if watched is None or name in self._refusing:
            return False
        pods = chain((admit.pod for admit in self._cluster.pods_of(name).ledger.admits), map(pod_of_watched, watched))
        return not any(pod is not None and is_aligned(resolve(pod, kubelet.rules)) for pod in pods)


def borrowed(kubelet: Kubelet | None, caveat: str = CAVEAT) -> Kubelet:
    """The kubelet as the one of a node that has not reported."""
    assert kubelet is not None  # `_reporting` returns only nodes with a kubelet
    return replace(kubelet, borrowed=True, certainty=Certainty.ASSUMED, caveats=(*kubelet.caveats, caveat))


def _started(profile: NodeProfile, version: str) -> Kubelet | None:
    """The profile's kubelet with this version, as the one of a node that has not reported; None: it does not start."""
    kubelet = profile.observed.kubelet
    assert kubelet is not None  # `read_profiles` refuses a profile without a kubelet
    try:
        kubelet = start(kubelet.machine, replace(kubelet.config, kubelet_version=version))
    except KubeletConfigError as error:
        LOG.warning("profile not used profile=%s kubelet_version=%s reason=%r", profile.name, version, error.reason)
        return None
    return borrowed(kubelet, PROFILE_CAVEAT)
