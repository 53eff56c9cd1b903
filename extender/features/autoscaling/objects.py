"""The calls to the API server that the controller makes for any autoscaler. They block, so they run in threads.

All of them count as those of the ServiceAccount `ACCOUNT`, which the extender may impersonate. RBAC: podtemplates
`create`, `list`, `patch`, `delete`; pods `get`, `patch`; events `create`.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from extender.features.autoscaling.documents import LABEL, Record, annotated, record_of
from extender.kube.client import JSON, Requester, path_of
from extender.kube.errors import ApiError
from extender.kube.objects import Json, ObjectName, items, mapping, name_of, text
from extender.kube.pod_objects import read_pod
from extender.observability.logs import FewWarnings

LOG: Final = logging.getLogger(__name__)
LOG.addFilter(FewWarnings())
ACCOUNT: Final = "numa-extender-autoscaling"
_TEMPLATES: Final = "/api/v1"
MERGE: Final = "application/merge-patch+json"
PAGE: Final = 500
MAX_PAGES: Final = 40
"""How many objects one reply has, and how many replies are read."""


@dataclass(frozen=True, slots=True)
class Objects:
    """The objects of the controller. All methods raise KubeError."""

    client: Requester

    def records(self) -> list[Record]:
        """The records of all PodTemplates of the controller. One that cannot be read is logged and left out."""
        found = []
        for each in listed(self.client, path_of(_TEMPLATES, "podtemplates"), LABEL):
            try:
                found.append(record_of(each))
            except msgspec.MsgspecError as error:
                LOG.warning("PodTemplate not read name=%s reason=%r", name_of(each).path, str(error))
        return found

    def create_template(self, record: Record, template: JSON) -> None:
        """Create the PodTemplate, if it does not exist."""
        unless(409, self.client, "POST", path_of(_TEMPLATES, "podtemplates", namespace=record.namespace), template)

    def delete_template(self, record: Record) -> None:
        """Delete the PodTemplate, if it exists."""
        path = path_of(_TEMPLATES, "podtemplates", namespace=record.namespace, name=record.name)
        unless(404, self.client, "DELETE", path)

    def note(self, record: Record) -> None:
        """Write the record to its PodTemplate, if that exists."""
        path = path_of(_TEMPLATES, "podtemplates", namespace=record.namespace, name=record.name)
        unless(404, self.client, "PATCH", path, annotated(record))

    def pod(self, pod: ObjectName) -> JSON | None:
        """The v1.Pod; None if it is gone, or another pod has its name now."""
        return read_pod(self.client, pod.namespace, pod.name, pod.uid)

    def annotate(self, pod: ObjectName, annotations: Mapping[str, str | None]) -> None:
        """Set these annotations of the pod, if it still exists with this UID. None: the annotation goes."""
        path = path_of("/api/v1", "pods", namespace=pod.namespace, name=pod.name)
        body = {"metadata": {"annotations": annotations, "uid": pod.uid}}
        try:
            self.client.request("PATCH", path, body=body, content_type=MERGE)
        except ApiError as error:
            if error.status not in (404, 409, 422):  # the UID is of another pod
                raise


def listed(client: Requester, path: str, label: str) -> Iterator[Json]:
    """The objects with this label. Raises KubeError, also if there are too many."""
    query = {"labelSelector": label, "limit": str(PAGE)}
    for _ in range(MAX_PAGES):
        page = client.request("GET", path, query=query)
        yield from items(page, "items")
        if not (more := text(mapping(page, "metadata"), "continue")):
            return
        query = {**query, "continue": more}
    raise ApiError(413, "TooMany", f"more than {PAGE * MAX_PAGES} objects of {path} have the label {label}")


def unless(status: int, client: Requester, method: str, path: str, body: JSON | None = None) -> None:
    """Make a call; a reply with this status means that there is nothing to do."""
    content_type = MERGE if method == "PATCH" else "application/json"
    try:
        client.request(method, path, body=body, content_type=content_type)
    except ApiError as error:
        if error.status != status:
            raise
