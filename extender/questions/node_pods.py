"""The pods on a node, for advice: as the API server has them, or rebuilt from what they hold on the node.

It also makes the node without some of these pods, or with one more pod in a place that it is certain to get.

Rules of this file
- Where pods are watched, a pod is what its API object says. Where they are not, or an object cannot be read, a pod is
  made up from what it holds: it requests that, its priority is 0, and its owner is not known.
- Such a pod has no ordinary init containers, because nothing shows which containers are init containers.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from extender.kubelet.admission import Outcome, start_pod
from extender.kubelet.pod import Container, ContainerKind, PodRequest, QOSClass
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.nri.objects import QoS
from extender.questions.dra import devices_for, without_claims_of
from extender.questions.node_context import NodeContext, Subject, WatchedPod
from extender.questions.scheduler_checks import check_node
from extender.recent import RecentBytes
from extender.replay.alignment import PodAlignment, alignment_of_outcomes
from extender.replay.creation import grants_of
from extender.replay.pod import Pod
from extender.replay.possible_states import admit_in_all
from extender.scheduling.judgement import refusal_by_demand
from extender.scheduling.node_totals import add, pod_requests
from extender.scheduling.pod_shape import PodShape
from extender.wire.errors import WireError
from extender.wire.groups import Group, group_of
from extender.wire.placement_rules import PlacementRules
from extender.wire.workloads import PodWorkload, workload_from_json

_MANIFEST_BYTES: Final = 16 << 20
"""Size of the cache of manifests that were read. It holds about 6,000 usual pods."""
NEVER_EVICT: Final = ("cluster-autoscaler.kubernetes.io/safe-to-evict", "false")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """One pod of a node. `workload.pod.uid` is the kubelet's UID of the pod.

    `owner`: the kind of its controller, empty if it has none or it is not known. `is_static`: the kubelet made it, and
    it cannot be evicted. `forbids_eviction`: an annotation says so. `group`: its group of pods; None: it is in none, or
    it is not watched. `is_rebuilt`: see the rules of this file.
    """

    workload: PodWorkload
    priority: int = 0
    created_at: int | None = None
    started_at: int | None = None
    terminating: bool = False
    owner: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    is_static: bool = False
    forbids_eviction: bool = False
    prefers_no_eviction: bool = False
    group: Group | None = None
    is_rebuilt: bool = False

    @property
    def uid(self) -> str:
        """The UID under which the kubelet knows the pod."""
        return self.workload.pod.uid

    @property
    def name(self) -> str:
        """`namespace/name`."""
        return f"{self.workload.namespace}/{self.workload.name}"

    @property
    def requests_milli(self) -> Mapping[str, int]:
        """As kube-scheduler counts them."""
        return pod_requests(self.workload.pod, self.workload.rules.overhead_milli)


def pods_of(subject: Subject) -> list[NodePod]:
    """The pods of a node in the order in which a kubelet that starts admits them: static pods, then older ones first.

    *subject* with `facts`, for the names of pods that are not watched.
    """
    watched = subject.around.pods
    names = {pod.uid: (pod.namespace, pod.name) for pod in watched or ()} or dict(_reported(subject.facts))
    found = [pod for each in watched or () if (pod := _read(each)) is not None]
    read = {pod.uid for pod in found}
    holding = {uid: state for state in reversed(subject.states) for uid in state.pod_uids - read}
    found += [
        _rebuilt(state, uid, names.get(uid, ("", uid)))
        for uid, state in holding.items()
        if watched is None or uid in names
    ]
    return sorted(found, key=lambda pod: (not pod.is_static, pod.created_at or 0, pod.name, pod.uid))


def without(subject: Subject, gone: Sequence[NodePod], number: int) -> Subject:
    """The node without these pods, as a hypothetical one. *number*, from 1, is another one for each in a question."""
    possible = subject.node_class.possible
    possible = replace(possible, states=subject.states).release([pod.uid for pod in gone])
    around = without_claims_of([pod.workload.pod for pod in gone], subject.around)
    requested = around.requested_milli
    for pod in gone:
        requested = None if requested is None else add(requested, {k: -v for k, v in pod.requests_milli.items()})
    return replace(
        subject,
        node_class=replace(subject.node_class, id=-1 - number, possible=possible),
        states=possible.states,
        around=replace(around, requested_milli=requested),
    )


def _size(key: tuple[bytes, str], read: NodePod | None) -> int:
    return len(key[0]) + (0 if read is None else read.workload.pod.weight_bytes)


_MANIFESTS: Final = RecentBytes(_MANIFEST_BYTES, _size)


def _reported(facts: Mapping[str, object]) -> Iterator[tuple[str, tuple[str, str]]]:
    pods = facts.get("pods")
    for pod in pods if isinstance(pods, list) else ():
        if pod["uid"]:
            yield pod["uid"], (pod["namespace"], pod["name"])


def _read(pod: WatchedPod) -> NodePod | None:
    key = pod.manifest, pod.namespace
    read = _MANIFESTS.of(key, lambda: _manifest(*key))
    if read is None:
        return None
    namespace, name = pod.namespace, pod.name
    own = replace(read.workload.pod, uid=pod.uid, namespace=namespace, name=name, created_at=pod.created_at)
    return replace(
        read,
        workload=replace(read.workload, namespace=namespace, name=name, pod=own),
        priority=pod.priority,
        created_at=pod.created_at,
        started_at=pod.started_at,
        terminating=pod.terminating,
        is_static=pod.uid != pod.api_uid,
    )


def _manifest(reduced: bytes, namespace: str) -> NodePod | None:
    """What a reduced v1.Pod of the namespace says; None if it cannot be read."""
    document = orjson.loads(reduced)
    metadata = document["metadata"]
    try:
        workload = workload_from_json(document)
    except WireError:
        return None
    owners = [owner["kind"] for owner in metadata.get("ownerReferences", ())]
    annotations = metadata.get("annotations", {})
    return NodePod(
        workload=workload,
        owner=owners[0] if owners else "",
        labels=metadata.get("labels", {}),
        forbids_eviction=annotations.get(NEVER_EVICT[0]) == NEVER_EVICT[1],
        prefers_no_eviction="descheduler.alpha.kubernetes.io/prefer-no-eviction" in annotations,
        group=group_of(document, namespace),
    )


def _rebuilt(state: ManagerState, uid: str, name: tuple[str, str]) -> NodePod:
    cpus = state.cpu.entries.get(uid, {})
    blocks = state.memory.entries.get(uid, {})
    devices = state.devices.entries.get(uid, {})
    granted, qos = _granted(state, uid)
    is_pinned = bool(cpus or blocks) or qos is QoS.GUARANTEED
    containers = []
    for container in sorted({*cpus, *blocks, *devices, *granted}):
        amounts = {"cpu": cpus[container].bit_count() * 1000} if container in cpus else {}
        for block in blocks.get(container, ()):
            amounts[block.type] = amounts.get(block.type, 0) + block.size * 1000
        amounts = {**granted.get(container, {}), **amounts}
        amounts |= {resource: len(ids) * 1000 for resource, ids in devices.get(container, {}).items()}
        if is_pinned:  # a Guaranteed pod has both; these amounts are too small to be counted anywhere
            amounts = {"cpu": 1, "memory": 1000} | amounts
        containers.append(
            Container(
                name=container,
                kind=ContainerKind.APP,
                requests_milli=amounts,
                limits_milli={} if granted and not is_pinned else amounts,
            )
        )
    namespace, own = name
    pod = Pod(
        uid=uid,
        name=own,
        namespace=namespace,
        containers=tuple(containers),
        status_qos=QOSClass.GUARANTEED if is_pinned else QOSClass.BURSTABLE,
    )
    workload = PodWorkload(kind="Pod", namespace=namespace, name=own, replicas=1, pod=pod, rules=PlacementRules())
    return NodePod(workload=workload, is_rebuilt=True)


def _granted(state: ManagerState, uid: str) -> tuple[Mapping[str, Mapping[str, int]], QoS]:
    """What the NRI policy has granted the containers of a pod, in thousandths, and the pod's class."""
    known = grants_of(state)
    if known is None:
        return {}, QoS.UNKNOWN
    books = known.node.books
    pod = books.pods.get(uid)
    granted = {
        books.containers[id_].name: {
            "cpu": 1000 * grant.exclusive.bit_count() + grant.portion,
            "memory": 1000 * grant.memory_bytes,
        }
        for id_, grant in books.grants.items()
        if books.containers[id_].pod_id == uid
    }
    return granted, QoS.UNKNOWN if pod is None else pod.qos


@dataclass(frozen=True, slots=True, kw_only=True)
class CertainPlace:
    """`outcomes`: for every state that the node can be in; `admitted`: the likeliest. `around`: what follows.

    `alignment` None: no part of the pod is placed, or devices of its claims are on another NUMA node.
    """

    request: PodRequest
    outcomes: Sequence[Outcome]
    admitted: Admitted
    alignment: PodAlignment | None
    around: NodeContext


def place_of(subject: Subject, shape: PodShape, workload: PodWorkload) -> CertainPlace | None:
    """The pod's place on a node as it is; None if it is not certain that the node is offered, and admits the pod."""
    kubelet = subject.kubelet
    if kubelet is None or not subject.states or not subject.node_class.complete:
        return None
    wanted, devices = pod_requests(workload.pod, workload.rules.overhead_milli), devices_for(shape, subject)
    if devices is None or check_node(subject.name, wanted, workload.rules, devices.around).outcome == "fails":
        return None
    request = devices.shape.request(kubelet.rules)
    outcomes = admit_in_all(kubelet, subject.states, request)
    first = outcomes[0].verdict
    if not outcomes[0].complete or not all(isinstance(each.verdict, Admitted) for each in outcomes):
        return None
    if refusal_by_demand(workload.pod.demand, kubelet, request, outcomes, each_must=True) is not None:
        return None
    assert isinstance(first, Admitted)
    alignment = None if devices.are_apart(kubelet, outcomes) else alignment_of_outcomes(kubelet, outcomes)
    return CertainPlace(request=request, outcomes=outcomes, admitted=first, alignment=alignment, around=devices.around)


def with_pod(subject: Subject, place: CertainPlace, pod: NodePod) -> Subject:
    """The node once the pod runs in its place, as a hypothetical one."""
    states = tuple({each.state.key: start_pod(each.state, place.request) for each in place.outcomes}.values())
    requested, node_class = place.around.requested_milli, subject.node_class
    return replace(
        subject,
        node_class=replace(node_class, id=-2, possible=replace(node_class.possible, states=states)),
        states=states,
        around=replace(place.around, requested_milli=None if requested is None else add(requested, pod.requests_milli)),
    )
