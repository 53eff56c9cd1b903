"""The pods on nodes, by whichever scheduler they were bound, including static pods (as mirror pods).

The watch has the selector `spec.nodeName!=`, so the server does not send unbound pods. Their spec is in the scheduler's
requests. Finished pods are *not* excluded by the selector, although they hold no resources: the server would then send
them as deleted in their last running state, without the reason of their failure, which the audit needs.

A record has what cluster state, preemption and audit read. The spec is reduced to what `extender.wire.pods` reads,
encoded, and shared between equal pods. A record takes 350 to 700 bytes in all (measured).

RBAC: `list`, `watch` on pods (all namespaces).
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from extender.kube.fields import integer, items, mapping, strings, text
from extender.kube.watch import Source
from extender.wire import groups
from extender.wire.demands import understood
from extender.wire.nri_pods import DOMAIN, RESOURCES_ANNOTATION
from extender.wire.pods import NODE_CRITICAL
from extender.wire.times import rfc_3339, unix_seconds

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
_MAX_ERROR: Final = 300
_SHARED: Final = 20_000
"""How many distinct reduced specs are kept for sharing. Then the table is cleared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    """One pod on a node. Strings are empty if the object has none. Times are Unix seconds, None if unset.

    `kubelet_uid`: the UID in the kubelet's checkpoints. It differs from `uid` for static pods, whose API object is a
    mirror. `deleted_at`: when its grace period ends. `reduced`: see `manifest`. `policy_error`: why the NRI
    topology-aware policy refuses to create a container of the pod.
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

    @property
    def mirror(self) -> bool:
        """Whether it is the mirror pod of a static pod."""
        return self.kubelet_uid != self.uid

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


class PodDecoder:
    """Converts pod objects to records. One for each watch. Equal reduced specs are one object in memory."""

    def __init__(self) -> None:
        self._shared: dict[bytes, bytes] = {}

    def __call__(self, value: Mapping[str, Any]) -> tuple[str, PodRecord] | None:
        """The UID and the record. None for an object without UID, name or node."""
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
            phase=sys.intern(text(status, "phase")),
            reason=sys.intern(text(status, "reason")),
            message=text(status, "message"),
            priority=integer(spec, "priority"),
            created_at=unix_seconds(metadata.get("creationTimestamp")),
            started_at=unix_seconds(status.get("startTime")),
            deleted_at=unix_seconds(metadata.get("deletionTimestamp")),
            policy_error=_policy_error(status),
            reduced=self._share(orjson.dumps(_reduced(metadata, spec, status), option=orjson.OPT_SORT_KEYS)),
        )

    def _share(self, raw: bytes) -> bytes:
        known = self._shared.get(raw)
        if known is not None:
            return known
        if len(self._shared) >= _SHARED:
            self._shared.clear()
        exact = memoryview(raw).tobytes()  # the encoder's result keeps a buffer of 4 KB: 400 MB for 100,000 pods
        self._shared[exact] = exact
        return exact


PODS: Final = Source(path="/api/v1/pods", field_selector="spec.nodeName!=", decode=PodDecoder())
"""All pods on nodes."""


def _reduced(metadata: Mapping[str, Any], spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Any]:
    """The parts that admission reads, without what differs between pods of one controller."""
    return {
        "metadata": {
            "labels": strings(metadata, "labels"),
            "annotations": _annotations(strings(metadata, "annotations")),
            "ownerReferences": [
                {"kind": text(owner, "kind"), "controller": True}
                for owner in items(metadata, "ownerReferences")
                if owner.get("controller") is True
            ],
        },
        "spec": {
            "initContainers": [_pick(c, ("name", "resources", "restartPolicy")) for c in items(spec, "initContainers")],
            "containers": [_pick(c, ("name", "resources")) for c in items(spec, "containers")],
            **_pick(spec, ("resources", "overhead", "resourceClaims", "nodeSelector", *groups.SPEC)),
            "tolerations": [t for t in items(spec, "tolerations") if t.get("key") not in _DEFAULT_TOLERATIONS],
            "affinity": _pick(mapping(spec, "affinity"), ("nodeAffinity",)),
            **({"priorityClassName": NODE_CRITICAL} if spec.get("priorityClassName") == NODE_CRITICAL else {}),
        },
        "status": {
            "initContainerStatuses": _statuses(items(status, "initContainerStatuses")),
            "containerStatuses": _statuses(items(status, "containerStatuses")),
            **_pick(status, ("qosClass", "extendedResourceClaimStatus", "resourceClaimStatuses")),
        },
    }


def _policy_error(status: Mapping[str, Any]) -> str:
    """The message of the first container that the policy refuses; "" for pods without one."""
    for key in ("initContainerStatuses", "containerStatuses"):
        for each in items(status, key):
            waiting = mapping(mapping(each, "state"), "waiting")
            if waiting.get("reason") == CREATE_ERROR and POLICY in text(waiting, "message"):
                return text(waiting, "message")[:_MAX_ERROR]
    return ""


def _annotations(texts: Mapping[str, str]) -> dict[str, Any]:
    """The annotations about eviction, of groups, for the NRI topology-aware policy, and demands that are understood."""
    policy = {key: text for key, text in texts.items() if DOMAIN in key or key == RESOURCES_ANNOTATION}
    kept = _pick(texts, (*EVICTION_ANNOTATIONS, *groups.ANNOTATIONS))
    return {**kept, **policy, **{key: texts[key] for key in understood(texts)}}


def _statuses(statuses: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [_pick(status, ("name", "allocatedResources")) for status in statuses]


def _pick(value: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value[name] for name in names if value.get(name) is not None}
