"""The watch of namespaces, for labels that demand alignment for the namespace's pods.

RBAC: `list`, `watch` on namespaces.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from extender.kube.changes import Batch, Gone
from extender.kube.objects import mapping, text
from extender.kube.source import Source
from extender.replay.alignment_demand import NO_DEMAND, Demand
from extender.runtime.connection import ApiConnection, ConnectedFeature
from extender.wire.pods import demand_from_json


@dataclass(frozen=True, slots=True)
class LabelledNamespace:
    """One namespace and the demand in its labels."""

    name: str
    demand: Demand


def decode_namespace(value: Mapping[str, Any]) -> tuple[str, LabelledNamespace] | None:
    """The namespace under its name. None without a name."""
    metadata = mapping(value, "metadata")
    name = text(metadata, "name")
    if not name:
        return None
    return name, LabelledNamespace(name, demand_from_json(metadata.get("labels"), f"the label of namespace {name}:"))


NAMESPACES: Final = Source(path="/api/v1/namespaces", decode=decode_namespace, key=attrgetter("name"))
"""All namespaces."""


class NamespacesFeature(ConnectedFeature):
    """Watches namespaces, whose labels are the default demands of their pods."""

    _is_listed = False

    def connect(self, connection: ApiConnection) -> None:
        """Watch namespaces. The service is not ready before they are listed."""
        demands = self.service.known.demands

        def take(batch: Batch[LabelledNamespace]) -> None:
            for change in batch.changes:
                demand = NO_DEMAND if isinstance(change, Gone) else change.value.demand
                demands.pop(change.value.name, None)
                if demand != NO_DEMAND:
                    demands[change.value.name] = demand
            self._is_listed = self._is_listed or batch.complete
            connection.check()

        connection.watch("namespaces", NAMESPACES, take)
        connection.need("namespaces", lambda: self._is_listed)


make = NamespacesFeature
