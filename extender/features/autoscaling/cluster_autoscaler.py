"""Cluster Autoscaler: a ProvisioningRequest asks for nodes.

Annotations on the pods come before it: without them Cluster Autoscaler adds nodes for the pods by itself as well.

RBAC: provisioningrequests `create`, `list`, `delete`.

Sources: cluster-autoscaler `provisioningrequest` (v1, class best-effort-atomic-scale-up), July 2026.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from extender.features.autoscaling.autoscaler import Autoscaler, Guard, Wish
from extender.features.autoscaling.documents import LABEL, Record, metadata_of
from extender.features.autoscaling.objects import Objects, listed, unless
from extender.features.autoscaling.pools import NodePool, Room
from extender.kube.client import JSON, path_of
from extender.kube.objects import Json, ObjectName, items, mapping, name_of, strings, text

GROUP: Final = "autoscaling.x-k8s.io"
CLASS: Final = f"best-effort-atomic-scale-up.{GROUP}"
CONSUME: Final = f"{GROUP}/consume-provisioning-request"
CONSUMED_CLASS: Final = f"{GROUP}/provisioning-class-name"
"""With these annotations on a pod, Cluster Autoscaler adds no node for it by itself."""
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
GUARD: Final = Guard(SAFE_TO_EVICT, "false")
_API: Final = f"/apis/{GROUP}/v1"


@dataclass
class ClusterAutoscaler(Autoscaler):
    """See `Autoscaler`."""

    objects: Objects
    guard: Guard = GUARD

    def limited(self, wish: Wish) -> Mapping[NodePool, Room]:
        """All: Cluster Autoscaler knows the limits of its pools."""
        return wish.rooms

    def together(self, pools: Sequence[NodePool]) -> Sequence[NodePool]:
        """All of them: Cluster Autoscaler chooses."""
        return pools

    def asking(self, record: Record, manifest: Json) -> Sequence[JSON]:  # noqa: ARG002 - the PodTemplate has it
        """The ProvisioningRequest."""
        return (request_of(record),)

    def ask(self, record: Record, pods: Mapping[ObjectName, Json]) -> None:
        """Annotate the pods, and create the ProvisioningRequest."""
        for pod, manifest in pods.items():
            if consumed_by(manifest) != record.name:
                self.objects.annotate(pod, consuming(record))
        path = path_of(_API, "provisioningrequests", namespace=record.namespace)
        unless(409, self.objects.client, "POST", path, request_of(record))

    def withdraw(self, record: Record, pods: Mapping[ObjectName, Json]) -> None:
        """Delete the ProvisioningRequest, then the annotations of the pods."""
        path = path_of(_API, "provisioningrequests", namespace=record.namespace, name=record.name)
        unless(404, self.objects.client, "DELETE", path)
        for pod, manifest in pods.items():
            if consumed_by(manifest) == record.name:
                self.objects.annotate(pod, consuming(None))

    def outcomes(self, records: Sequence[Record]) -> Mapping[tuple[str, str], str]:
        """The reason of the condition that came last, such as `CapacityIsNotFound`; "": none yet."""
        if not records:
            return {}
        made = listed(self.objects.client, path_of(_API, "provisioningrequests"), LABEL)
        found = ((name_of(each), outcome_of(each)) for each in made)
        return {(name.namespace, name.name): outcome for name, outcome in found}


def request_of(record: Record) -> JSON:
    """The ProvisioningRequest."""
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ProvisioningRequest",
        "metadata": metadata_of(record),
        "spec": {
            "provisioningClassName": CLASS,
            "podSets": [{"count": record.nodes, "podTemplateRef": {"name": record.name}}],
        },
    }


def consuming(record: Record | None) -> Mapping[str, str | None]:
    """The annotations of a pod that this request is for; None: it is for none any more."""
    values = (None, None) if record is None else (record.name, CLASS)
    return dict(zip((CONSUME, CONSUMED_CLASS), values, strict=True))


def consumed_by(manifest: Json) -> str:
    """The name of the request that a v1.Pod is marked for; "": none."""
    return strings(mapping(manifest, "metadata"), "annotations").get(CONSUME, "")


def outcome_of(request: Json) -> str:
    """What Cluster Autoscaler says of a ProvisioningRequest: a reason such as `CapacityIsNotFound`; "": nothing yet."""
    conditions = {text(each, "type"): each for each in items(mapping(request, "status"), "conditions")}
    for name in ("Failed", "Provisioned", "Accepted"):
        if (found := conditions.get(name)) is not None:
            return text(found, "reason")
    return ""
