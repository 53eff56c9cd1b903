"""The watch of namespaces, for labels that demand alignment for the namespace's pods.

RBAC: `list`, `watch` on namespaces.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from extender.cluster.namespace_demands import NamespaceDemands
from extender.kube.changes import Batch, Gone
from extender.kube.fields import mapping, text
from extender.kube.source import Source
from extender.replay.demand import NO_DEMAND, Demand
from extender.wire.demands import demand_from_json


@dataclass(frozen=True, slots=True)
class LabelledNamespace:
    """One namespace and the demand in its labels."""

    name: str
    demand: Demand


class NamespaceFeed:
    """Applies batches to *demands*. `complete`: whether all namespaces have been listed."""

    def __init__(self, demands: NamespaceDemands) -> None:
        self._demands = demands
        self.complete = False

    def apply(self, batch: Batch[LabelledNamespace]) -> None:
        """Apply changes from the watch."""
        for change in batch.changes:
            namespace = change.value
            self._demands.set(namespace.name, NO_DEMAND if isinstance(change, Gone) else namespace.demand)
        self.complete = self.complete or batch.complete


def decode_namespace(value: Mapping[str, Any]) -> tuple[str, LabelledNamespace] | None:
    """The namespace under its name. None without a name."""
    metadata = mapping(value, "metadata")
    name = text(metadata, "name")
    if not name:
        return None
    return name, LabelledNamespace(name, demand_from_json(metadata.get("labels"), f"the label of namespace {name}:"))


NAMESPACES: Final = Source(path="/api/v1/namespaces", decode=decode_namespace, key=attrgetter("name"))
"""All namespaces."""
