"""The objects of Kueue: what is watched of them, and the calls that the controller makes.

An answer is written only to the very version of the Workload that was read: if Kueue has changed it meanwhile, the API
server refuses the write. So nothing is ever written to a Workload that is admitted.

RBAC: workloads, admissionchecks and resourceflavors `list`, `watch`. The calls count as those of the ServiceAccount
`ACCOUNT`, which the extender may impersonate: workloads `get`; `patch` on `workloads/status` and
`admissionchecks/status`.

Sources: Kueue v0.19, API `kueue.x-k8s.io/v1beta2`, `pkg/workload/admissionchecks.go`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from extender.kube.client import JSON, Requester, path_of
from extender.kube.errors import ApiError
from extender.kube.objects import items, mapping, name_of, strings, text
from extender.kube.source import Source
from extender.wire.parsing import Json, rfc_3339, unix_seconds

API: Final = "/apis/kueue.x-k8s.io/v1beta2"
ACCOUNT: Final = "numa-extender-kueue"
CONTROLLER: Final = "numa-extender.io/alignment"
"""`spec.controllerName` of the AdmissionChecks that are ours."""
ACTIVE: Final = "Active"
MAX_CHECKS: Final = 64
"""Admission checks of one Workload that are read."""
_MERGE: Final = "application/merge-patch+json"


class CheckState(StrEnum):
    """The states of an admission check of a Workload."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


class Check(NamedTuple):
    """An AdmissionCheck of ours. `is_active`: Kueue sends Workloads to it."""

    name: str
    is_active: bool


class Flavor(NamedTuple):
    """A ResourceFlavor: its nodes have all of these labels, and its pods get these tolerations."""

    name: str
    labels: Mapping[str, str]
    tolerations: Sequence[Json]


class Phase(StrEnum):
    """Where a Workload is."""

    QUEUED = "queued"
    """It has no quota, or is being evicted."""
    RESERVED = "reserved"
    """It has quota, and waits for its checks."""
    ADMITTED = "admitted"
    OVER = "over"
    """It is finished, deactivated or being deleted."""


class WorkloadHead(NamedTuple):
    """What is kept of every Workload. `reserved_at`: when it got its quota, Unix seconds; 0: not known.

    `states`: of its admission checks, by name, with the time of the last change in Unix seconds.
    """

    uid: str
    namespace: str
    name: str
    phase: Phase
    reserved_at: int
    states: Mapping[str, tuple[str, int]]

    def ours(self, checks: Mapping[str, Check]) -> dict[str, tuple[str, int]]:
        """The states of the checks that are ours."""
        return {name: state for name, state in self.states.items() if name in checks}


def decode_check(value: Json) -> tuple[str, Check] | None:
    """The UID and the check; None: it is another controller's."""
    if mapping(value, "spec").get("controllerName") != CONTROLLER:
        return None
    active = conditions_of(value).get(ACTIVE, {})
    return name_of(value).uid, Check(name_of(value).name, is_true(active))


def decode_flavor(value: Json) -> tuple[str, Flavor]:
    """The UID and the flavor."""
    spec = mapping(value, "spec")
    return name_of(value).uid, Flavor(name_of(value).name, strings(spec, "nodeLabels"), items(spec, "tolerations"))


def decode_workload(value: Json) -> tuple[str, WorkloadHead]:
    """The UID and the head."""
    name, found = name_of(value), conditions_of(value)
    states = {
        text(each, "name"): (text(each, "state"), unix_seconds(each.get("lastTransitionTime")) or 0)
        for each in items(mapping(value, "status"), "admissionChecks")[:MAX_CHECKS]
    }
    reserved_at = unix_seconds(found.get("QuotaReserved", {}).get("lastTransitionTime")) or 0
    return name.uid, WorkloadHead(name.uid, name.namespace, name.name, phase_of(value, found), reserved_at, states)


def phase_of(value: Json, found: Mapping[str, Json]) -> Phase:
    """Where the Workload is. *found*: its conditions."""
    is_deleted = mapping(value, "metadata").get("deletionTimestamp") is not None
    if is_deleted or mapping(value, "spec").get("active") is False or is_true(found.get("Finished", {})):
        return Phase.OVER
    if is_true(found.get("Evicted", {})) or not is_true(found.get("QuotaReserved", {})):
        return Phase.QUEUED
    return Phase.ADMITTED if is_true(found.get("Admitted", {})) else Phase.RESERVED


def conditions_of(value: Json) -> dict[str, Json]:
    """The conditions in the status, by type."""
    return {text(each, "type"): each for each in items(mapping(value, "status"), "conditions")}


def is_true(condition: Json) -> bool:
    """Whether the condition is true. A missing one is not."""
    return condition.get("status") == "True"


CHECKS: Final = Source(path=f"{API}/admissionchecks", decode=decode_check)
FLAVORS: Final = Source(path=f"{API}/resourceflavors", decode=decode_flavor)
WORKLOADS: Final = Source(path=f"{API}/workloads", decode=decode_workload)


@dataclass(frozen=True, slots=True)
class KueueObjects:
    """The calls. They block, so they run in threads. All raise KubeError."""

    client: Requester

    def workload(self, head: WorkloadHead) -> JSON | None:
        """The Workload; None if it is gone, or another one has its name now."""
        try:
            found = self.client.request("GET", _workload(head))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return found if name_of(found).uid == head.uid else None

    def answer(self, head: WorkloadHead, read: Json, answers: Mapping[str, JSON]) -> bool:
        """Write the states of checks, by name, if the Workload is still as it was *read*; whether it was written."""
        before = items(mapping(read, "status"), "admissionChecks")
        changed = [{**each, **answers.get(text(each, "name"), {})} for each in before]
        entries = [{key: value for key, value in each.items() if value is not None} for each in changed]
        metadata = {"resourceVersion": text(mapping(read, "metadata"), "resourceVersion"), "uid": head.uid}
        return self._patch(f"{_workload(head)}/status", {"metadata": metadata, "status": {"admissionChecks": entries}})

    def activate(self, check: Check, now: float) -> bool:
        """Say that the check has a controller; whether it was written."""
        condition = {
            "type": ACTIVE,
            "status": "True",
            "reason": ACTIVE,
            "message": "numa-extender answers this check",
            "lastTransitionTime": rfc_3339(int(now)),
        }
        path = path_of(API, "admissionchecks", name=check.name, subresource="status")
        return self._patch(path, {"status": {"conditions": [condition]}})

    def _patch(self, path: str, body: JSON) -> bool:
        try:
            self.client.request("PATCH", path, body=body, content_type=_MERGE)
        except ApiError as error:
            if error.status in (404, 409, 422):  # it is gone, or another one, or has changed
                return False
            raise
        return True


def _workload(head: WorkloadHead) -> str:
    return path_of(API, "workloads", namespace=head.namespace, name=head.name)


def entry_of(state: CheckState, message: str, now: float, seconds: int | None) -> JSON:
    """The fields of an answer. *seconds*: until Kueue tries again; None: not said, and an earlier time goes."""
    at = rfc_3339(int(now))
    return {"state": state.value, "message": message, "lastTransitionTime": at, "requeueAfterSeconds": seconds}
