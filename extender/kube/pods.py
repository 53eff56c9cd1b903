"""The pods on nodes, by whichever scheduler they were bound, including static pods (as mirror pods).

The watch has the selector `spec.nodeName!=`, so the server does not send unbound pods. Their spec is in the scheduler's
requests. Finished pods are *not* excluded by the selector, although they hold no resources: the server would then send
them as deleted in their last running state, without the reason of their failure, which the audit needs.

A record has what cluster state, preemption and audit read. The spec is reduced to what `extender.wire.pods` reads,
encoded, and shared between equal pods. A record takes 350 to 700 bytes in all (measured).

RBAC: `list`, `watch` on pods (all namespaces).
"""

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from extender.kube.objects import integer, items, mapping, strings, text
from extender.kube.source import Source
from extender.kubelet.budget import Shared
from extender.kubelet.verdict import Reason
from extender.recent import RecentBytes
from extender.replay.pod import Pod
from extender.scheduling.node_totals import pod_requests
from extender.wire import groups
from extender.wire.errors import CapError, WireError
from extender.wire.nri_pods import DOMAIN, KEPT, RESOURCES_ANNOTATION
from extender.wire.parsing import rfc_3339, unix_seconds
from extender.wire.placement_rules import LOCAL_VOLUMES, REQUIRED, placement_rules_from_json
from extender.wire.pods import NODE_CRITICAL, allocated_from_json, pod_from_json, understood

_MIRROR: Final = "kubernetes.io/config.mirror"
EVICTION_ANNOTATIONS: Final = (
    "cluster-autoscaler.kubernetes.io/safe-to-evict",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction",
)
"""Annotations that forbid the eviction of a pod, or prefer the eviction of other pods."""
_DEFAULT_TOLERATIONS: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Added to every pod by the API server; the taints appear only on nodes that are down."""
CREATE_ERROR: Final = "CreateContainerError"
"""Reason of a waiting container that the runtime refuses to create."""
POLICY: Final = "topology-aware"
"""The policy begins its errors with its name."""
_POLICY_ERROR: Final = re.compile(rf"""[^/"'`]*\b{POLICY}: """)
"""Before the name come only words of the runtime: paths and names that a pod's author chooses come with a slash."""
_REJECTED: Final = "Pod was rejected: "
"""The beginning of a pod's status message if the kubelet's admission refused the pod."""
_ALLOCATION_FAILED: Final = f"{_REJECTED}Allocate failed due to "
"""The beginning if a manager failed, or the preemption of pods for a critical one."""
NOT_OF_MANAGERS: Final = "UnexpectedAdmissionError outside the resource managers"
_MAX_ERROR: Final = 300
MAX_REDUCED_BYTES: Final = 128 << 10
"""The largest reduced spec of one pod. A usual one has a few hundred."""
_RULES: Final = ("nodeSelector", "tolerations", "topologySpreadConstraints", "volumes")
"""Parts of a spec that no kubelet reads."""
_WHEN: Final = "whenUnsatisfiable"
_KEPT_ANNOTATIONS: Final = frozenset((*EVICTION_ANNOTATIONS, *groups.ANNOTATIONS))
Keep = Callable[[Mapping[str, Any], str], object]
"""What is kept of a member of an object, by its name; None: nothing."""
REMEMBERED_BYTES: Final = 1 << 20
"""The size of the cache of shared specs: 4,000 usual specs, none longer than 4 KiB."""
MAX_READ_BYTES: Final = 8 << 20
"""Size of the cache of pods that were read. It holds about 5,000 usual pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """One pod on a node. Strings are empty if the object has none. Times are Unix seconds, None if unset.

    `mirror`: whether it says that it is the mirror of a static pod; whoever may create pods can say so. `kubelet_uid`:
    the UID in the kubelet's checkpoints, which differs from `uid` for mirrors. `deleted_at`: end of its grace period.
    `reduced`: see `manifest`. `policy_error`: why the NRI topology-aware policy refuses to create a container of it.
    """

    uid: str
    name: str
    namespace: str
    node_name: str
    kubelet_uid: str
    phase: str
    reason: str
    message: str
    priority: int
    created_at: int | None
    started_at: int | None
    deleted_at: int | None
    reduced: bytes
    policy_error: str = ""
    mirror: bool = False

    @property
    def is_rejected(self) -> bool:
        """Whether its kubelet has refused to admit it."""
        return self.phase == "Failed" and self.message.startswith(_REJECTED)

    @property
    def refusal(self) -> str:
        """The reason why its kubelet rejected it; the one of the managers only if they did."""
        is_other = self.reason == Reason.UNEXPECTED_ADMISSION and not self.message.startswith(_ALLOCATION_FAILED)
        return NOT_OF_MANAGERS if is_other else self.reason

    @property
    def finished(self) -> bool:
        """Whether its phase is Succeeded or Failed: no container of it runs or will run."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def terminating(self) -> bool:
        """Whether it is being deleted. It keeps its resources until its containers have stopped."""
        return self.deleted_at is not None

    @property
    def labels(self) -> Mapping[str, str]:
        """`metadata.labels`, decoded at each call."""
        return strings(mapping(self.manifest(), "metadata"), "labels")

    def manifest(self) -> dict[str, Any]:
        """A v1.Pod with what `extender.wire.pods.pod_from_json` reads, and labels. A new copy at each call."""
        pod: dict[str, Any] = orjson.loads(self.reduced)
        pod["metadata"].update(name=self.name, namespace=self.namespace, uid=self.uid)
        if self.created_at is not None:
            pod["metadata"]["creationTimestamp"] = rfc_3339(self.created_at)
        pod["spec"]["nodeName"] = self.node_name
        pod["status"]["phase"] = self.phase
        return pod


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ReducedPod:
    """What `PodRecord.reduced` says.

    `pod`: without its names, and without what its kubelet has allocated since its admission. `requests_milli`: as
    kube-scheduler counts them, during a resize the larger amounts, or the allocated ones if the resize is infeasible;
    empty if the pod's placement rules or statuses cannot be read.
    """

    pod: Pod
    requests_milli: Mapping[str, int]


_KEPT: Final[Shared[bytes, ReducedPod]] = Shared()
_RECENT: Final[RecentBytes[bytes, ReducedPod]] = RecentBytes(
    MAX_READ_BYTES, lambda raw, read: len(raw) + read.pod.weight_bytes
)


def read_reduced(reduced: bytes) -> ReducedPod:
    """The pod of `PodRecord.reduced`: the same object for equal bytes while it is in use, and for some time after.

    Raises:
        WireError: it cannot be read.
    """
    return _RECENT.of(reduced, lambda: _KEPT.of(reduced, lambda: _read_reduced(reduced)))


def _read_reduced(reduced: bytes) -> ReducedPod:
    manifest = orjson.loads(reduced)
    statuses = {key: manifest["status"].pop(key, None) for key in ("initContainerStatuses", "containerStatuses")}
    pod = pod_from_json(manifest)
    try:
        overhead_milli = placement_rules_from_json(manifest["spec"], "spec").overhead_milli
        allocated = allocated_from_json(statuses, "status")
    except WireError:
        return ReducedPod(pod, {})
    has_wish, containers = "Infeasible" not in manifest["status"].get("resize", ()), []
    for each in pod.containers:
        wanted, kept = each.requests_milli, allocated.get(each.name, {}).items()
        counted = {name: max(amount, has_wish * wanted.get(name, 0)) for name, amount in kept}
        containers.append(replace(each, requests_milli={**wanted, **counted}) if counted else each)
    return ReducedPod(pod, pod_requests(replace(pod, containers=tuple(containers)), overhead_milli))


class PodDecoder:
    """Converts pod objects to records. One for each watch. Equal reduced specs are one object in memory."""

    def __init__(self) -> None:
        self._shared: RecentBytes[bytes, bytes] = RecentBytes(REMEMBERED_BYTES, lambda exact, _: len(exact))

    def __call__(self, value: Mapping[str, Any]) -> tuple[str, PodRecord] | None:
        """The UID and the record. None for an object without UID, name or node. Raises CapError: it is too large."""
        metadata, spec, status = mapping(value, "metadata"), mapping(value, "spec"), mapping(value, "status")
        uid, name, node = text(metadata, "uid"), text(metadata, "name"), text(spec, "nodeName")
        if not (uid and name and node):
            return None
        return uid, PodRecord(
            uid=uid,
            name=name,
            namespace=sys.intern(text(metadata, "namespace")),
            node_name=sys.intern(node),
            kubelet_uid=text(mapping(metadata, "annotations"), _MIRROR) or uid,
            mirror=_MIRROR in mapping(metadata, "annotations"),
            phase=sys.intern(text(status, "phase")),
            reason=sys.intern(text(status, "reason")),
            message=text(status, "message"),
            priority=integer(spec, "priority"),
            created_at=unix_seconds(metadata.get("creationTimestamp")),
            started_at=unix_seconds(status.get("startTime")),
            deleted_at=unix_seconds(metadata.get("deletionTimestamp")),
            policy_error=_policy_error(status),
            reduced=self._share(_encoded(_reduced(metadata, spec, status))),
        )

    def _share(self, raw: bytes) -> bytes:
        exact = memoryview(raw).tobytes()  # the encoder's result keeps a buffer of 4 KB: 400 MB for 100,000 pods
        return self._shared.of(exact, lambda: exact)


def unread_pod(head: Mapping[str, Any], known: PodRecord | None) -> PodRecord | None:
    """The record of a pod that cannot be read: the last known containers, if any, and its present phase.

    None: its names or its node cannot be read.
    """
    decoded = PodDecoder()(head)
    if decoded is None or known is None:
        return known if decoded is None else decoded[1]
    return replace(decoded[1], reduced=known.reduced, kubelet_uid=known.kubelet_uid, priority=known.priority)


PODS: Final = Source(path="/api/v1/pods", field_selector="spec.nodeName!=", decode=PodDecoder(), instead=unread_pod)
"""All pods on nodes."""


def _encoded(reduced: dict[str, Any]) -> bytes:
    """The reduced pod in JSON. Where it is too long, the rules that no kubelet reads are left out, and so unknown."""
    raw = orjson.dumps(reduced, option=orjson.OPT_SORT_KEYS)
    if len(raw) > MAX_REDUCED_BYTES:
        spec = {key: value for key, value in reduced["spec"].items() if key not in _RULES} | {"affinity": "too long"}
        raw = orjson.dumps({**reduced, "spec": spec}, option=orjson.OPT_SORT_KEYS)
    if len(raw) > MAX_REDUCED_BYTES:
        raise CapError("spec", f"{len(raw)} bytes that admission reads, more than {MAX_REDUCED_BYTES}")
    return raw


def _reduced(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that admission reads, without what differs between pods of one controller."""
    found = {"metadata": _kept(metadata, _METADATA), "spec": _kept(spec, _SPEC), "status": _kept(status, _STATUS)}
    pending = [text(each, "reason") for each in items(status, "conditions") if each.get("type") == "PodResizePending"]
    if pending:
        found["status"]["resize"] = pending
    return found


def _kept(value: Mapping[str, Any], members: Mapping[str, Keep]) -> dict[str, Any]:
    """What is kept of an object; a member that it does not have costs nothing."""
    found = {name: keep(value, name) for name, keep in members.items() if value.get(name) is not None}
    return {name: part for name, part in found.items() if part is not None}


def _whole(value: Mapping[str, Any], name: str) -> object:
    return value[name]


def _object(*names: str, **others: Keep) -> Keep:
    """What is kept of an object: these members whole, and something of the *others*. Nothing if it has none."""
    members = {**dict.fromkeys(names, _whole), **others}
    return lambda value, name: _kept(mapping(value, name), members) or None


def _list(*names: str, **others: Keep) -> Keep:
    """As `_object`, of each object of a list."""
    members = {**dict.fromkeys(names, _whole), **others}
    return lambda value, name: [_kept(each, members) for each in items(value, name)] or None


def _some(keep: Callable[[Mapping[str, Any]], object]) -> Keep:
    """What *keep* returns of each object of a list, without None."""
    return lambda value, name: [part for each in items(value, name) if (part := keep(each)) is not None] or None


def _annotations(texts: Mapping[str, str]) -> dict[str, str]:
    """The annotations about eviction, of groups, for the NRI topology-aware policy, and demands that are understood."""
    policy = _cut({key: text for key, text in texts.items() if DOMAIN in key or key == RESOURCES_ANNOTATION})
    kept = {key: text for key, text in texts.items() if key in _KEPT_ANNOTATIONS}
    return {**kept, **policy, **{key: texts[key] for key in understood(texts)}}


def _cut(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts, as many as are read of one pod. Of longer texts a bit more is kept, to show that they are longer."""
    kept, left = dict[str, str](), KEPT.text_bytes
    for key, value in texts.items():
        if left >= 0:
            kept[key] = value[: left + 1]
            left -= len(key) + len(kept[key])
    return kept


_METADATA: Final[Mapping[str, Keep]] = {
    "labels": lambda value, name: _cut(strings(value, name)),
    "annotations": lambda value, name: _annotations(strings(value, name)) or None,
    "ownerReferences": _some(
        lambda owner: {"kind": text(owner, "kind"), "controller": True} if owner.get("controller") is True else None
    ),
}
_SPEC: Final[Mapping[str, Keep]] = {
    **dict.fromkeys(("resources", "overhead", "resourceClaims", "nodeSelector", "schedulerName"), _whole),
    **dict.fromkeys(groups.SPEC, _whole),
    "initContainers": _list("name", "resources", "restartPolicy"),
    "containers": _list(
        "name", "resources", ports=_some(lambda port: {"hostPort": port["hostPort"]} if port.get("hostPort") else None)
    ),
    "topologySpreadConstraints": _some(
        lambda rule: None if rule.get(_WHEN) == "ScheduleAnyway" else _kept(rule, {_WHEN: _whole})
    ),
    "volumes": _some(
        lambda each: None if LOCAL_VOLUMES.issuperset(kinds := each.keys() - {"name"}) else {kind: {} for kind in kinds}
    ),
    "tolerations": _some(lambda each: None if each.get("key") in _DEFAULT_TOLERATIONS else each),
    "affinity": _object(
        "nodeAffinity",
        podAffinity=_object(**{REQUIRED: _list("topologyKey")}),
        podAntiAffinity=_object(**{REQUIRED: _list("topologyKey", "labelSelector", "namespaces", "namespaceSelector")}),
    ),
    "priorityClassName": lambda value, name: NODE_CRITICAL if value[name] == NODE_CRITICAL else None,
}
_STATUS: Final[Mapping[str, Keep]] = {
    **dict.fromkeys(("qosClass", "extendedResourceClaimStatus", "resourceClaimStatuses"), _whole),
    **dict.fromkeys(("initContainerStatuses", "containerStatuses"), _list("name", "allocatedResources")),
}


def _policy_error(status: Mapping[str, Any]) -> str:
    """The message of the first container that the policy refuses; "" for pods without one."""
    for key in ("initContainerStatuses", "containerStatuses"):
        for each in items(status, key):
            waiting = mapping(mapping(each, "state"), "waiting")
            if waiting.get("reason") == CREATE_ERROR and _POLICY_ERROR.match(text(waiting, "message")):
                return text(waiting, "message")[:_MAX_ERROR]
    return ""
