"""Which resources exist, which URL names which, and how the server says no."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

JSON = dict[str, Any]


class Resource(NamedTuple):
    """One kind of object. `group` is empty for the core API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def base(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"


PODS: Final = Resource("", "v1", "pods", "Pod", namespaced=True)
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
EVENTS: Final = Resource("", "v1", "events", "Event", namespaced=True)
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", namespaced=True)
PDBS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", namespaced=True)
NRTS: Final = Resource(
    "topology.node.k8s.io", "v1alpha2", "noderesourcetopologies", "NodeResourceTopology", namespaced=False
)
POD_GROUPS: Final = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup", namespaced=True)
COSCHEDULING: Final = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup", namespaced=True)
JOB_SETS: Final = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", namespaced=True)
WORKLOADS: Final = Resource("scheduling.k8s.io", "v1alpha1", "workloads", "Workload", namespaced=True)
CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", namespaced=True)
CLAIM_TEMPLATES: Final = Resource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True
)
CAPACITIES: Final = Resource("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity", namespaced=True)
TEMPLATES: Final = Resource("", "v1", "podtemplates", "PodTemplate", namespaced=True)
PROVISIONING: Final = Resource(
    "autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest", namespaced=True
)
NODE_POOLS: Final = Resource("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)
NODE_CLAIMS: Final = Resource("karpenter.sh", "v1", "nodeclaims", "NodeClaim", namespaced=False)
KUEUE_CHECKS: Final = Resource("kueue.x-k8s.io", "v1beta2", "admissionchecks", "AdmissionCheck", namespaced=False)
KUEUE_FLAVORS: Final = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False)
KUEUE_WORKLOADS: Final = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload", namespaced=True)
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
STORED: Final = (
    CONFIG_MAPS,
    CLAIM_TEMPLATES,
    KUEUE_CHECKS,
    KUEUE_FLAVORS,
    KUEUE_WORKLOADS,
    NODE_CLAIMS,
    NODE_POOLS,
    PROVISIONING,
    CAPACITIES,
    SLICES,
    CLASSES,
    CLAIMS,
    TEMPLATES,
    PODS,
    NODES,
    NAMESPACES,
    EVENTS,
    LEASES,
    PDBS,
    NRTS,
    POD_GROUPS,
    COSCHEDULING,
    WORKLOADS,
    JOB_SETS,
)
REVIEWS: Final = (TOKEN_REVIEWS, ACCESS_REVIEWS)
_BY_PATH: Final = {(r.base, r.plural): r for r in (*STORED, *REVIEWS)}
_PATH: Final = re.compile(
    r"(?P<base>/api/v1|/apis/[^/]+/[^/]+)"
    r"(?:/namespaces/(?P<ns>[^/]+)(?=/))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[^/]+))?"
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL names. Empty `namespace`: all; empty `name`: the collection; empty `subresource`: the object."""

    resource: Resource
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> str:
        return key_of(self.resource, self.namespace, self.name)


class ApiProblem(Exception):  # noqa: N818 - it is a reply, not a fault of the server
    """A refusal, as the Status object that the real server would send."""

    def __init__(
        self, code: int, reason: str, message: str, *, retry_after: int | None = None, causes: str = ""
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.retry_after = code, reason, message, retry_after
        self.cause = causes

    def status(self) -> JSON:
        details: JSON = {}
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if self.cause:
            details["causes"] = [{"reason": self.cause, "message": self.cause}]
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": details,
            "code": self.code,
        }


def key_of(resource: Resource, namespace: str, name: str) -> str:
    """The place of an object in its collection; sorts as etcd's keys do."""
    return f"{namespace}/{name}" if resource.namespaced else name


def target_of(path: str) -> Target:
    """What *path* names; ApiProblem 404 when the server has no such resource."""
    match = _PATH.fullmatch(path)
    if match:
        base, namespace, plural = match["base"], match["ns"] or "", match["plural"]
        name, subresource = match["name"] or "", match["sub"] or ""
        resource = _BY_PATH.get((base, plural))
        if resource is not None:
            return Target(resource, namespace, name, subresource)
    raise ApiProblem(404, "NotFound", "the server could not find the requested resource")


def not_found(resource: Resource, name: str) -> ApiProblem:
    """404 for one object."""
    return ApiProblem(404, "NotFound", f'{resource.plural} "{name}" not found')


def conflict(what: str, name: str, why: str) -> ApiProblem:
    """409 for a write that lost: *what* is the resource with its subresource."""
    return ApiProblem(409, "Conflict", f'Operation cannot be fulfilled on {what} "{name}": {why}')


def expired(message: str = "too old resource version") -> ApiProblem:
    """410: the history asked for has been compacted."""
    return ApiProblem(410, "Expired", message)


def text(value: Mapping[str, Any], *path: str) -> str:
    """The string at *path*; empty when any part of it is missing or null."""
    here: Any = value
    for step in path:
        if not isinstance(here, Mapping):
            return ""
        here = here.get(step)
    return here if isinstance(here, str) else ""
