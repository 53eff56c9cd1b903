"""The watch of the ConfigMap with declared shapes.

RBAC: `list`, `watch` on this ConfigMap.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from extender.kube.changes import Batch, Gone
from extender.kube.objects import WHOLE, mapping, text
from extender.kube.source import Source
from extender.questions.shapes import DeclaredShapes, read_shapes

CONFIG_MAP: Final = "numa-extender-shapes"


def decode_shapes(value: Mapping[str, Any]) -> tuple[str, DeclaredShapes] | None:
    """The shapes of the ConfigMap, with its name as the key. None for another one."""
    name = text(mapping(value, "metadata"), "name")
    return (name, read_shapes(mapping(value, "data"))) if name == CONFIG_MAP else None


def shapes_in(namespace: str) -> Source[DeclaredShapes]:
    """The ConfigMap in this namespace."""
    return Source(
        path=f"/api/v1/namespaces/{namespace}/configmaps",
        field_selector=f"metadata.name={CONFIG_MAP}",
        decode=decode_shapes,
        key=lambda name: name.name,
        reader=WHOLE,
    )


def passed_to(take: Callable[[DeclaredShapes], None]) -> Callable[[Batch[DeclaredShapes]], None]:
    """What a watch calls: *take* gets the shapes after each change; none if the ConfigMap is gone."""

    def apply(batch: Batch[DeclaredShapes]) -> None:
        for change in batch.changes:
            take(DeclaredShapes() if isinstance(change, Gone) else change.value)

    return apply
