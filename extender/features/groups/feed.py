"""Groups of pods in the API: which pods of a group are bound, and the objects that have the sizes of groups.

RBAC: `list`, `watch` on the resources of `extender.wire.groups.APIS`, only on those of the APIs that are watched.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from extender.features.groups.groups import Groups
from extender.features.groups.templates import RoleTemplate, templates_of
from extender.kube.changes import Batch, Changed, Gone
from extender.kube.objects import mapping, text
from extender.kube.pods import PodRecord
from extender.kube.source import Source
from extender.wire.groups import APIS, NAMES, Group, ObjectKey, group_of, sizes_of


@dataclass(frozen=True, slots=True)
class SizedObject:
    """An object with the sizes of groups. One without sizes counts as well: it may have had some before.

    `templates`: the pods that will come, if the object says what they are.
    """

    sizes: Mapping[ObjectKey, int]
    templates: tuple[RoleTemplate, ...] = ()


class GroupFeed:
    """Applies batches to *groups*."""

    def __init__(self, groups: Groups, clock: Callable[[], float]) -> None:
        self._groups, self._clock = groups, clock

    def apply_pods(self, batch: Batch[PodRecord]) -> None:
        """Apply changes from the watch of pods on nodes."""
        now = self._clock()
        for change in batch.changes:
            record = change.value
            if isinstance(change, Gone) or _is_over(record):
                self._groups.see_gone(record.uid, now)
            elif not (isinstance(change, Changed) and not _is_over(change.old)):
                group = group_of_record(record)
                if group is not None:
                    self._groups.see_bound(group, record.uid, record.node_name, now)

    def apply_objects(self, batch: Batch[SizedObject]) -> None:
        """Apply changes from the watch of objects with sizes."""
        for change in batch.changes:
            if not isinstance(change, Gone):
                old = change.old.sizes if isinstance(change, Changed) else {}
                for key in old.keys() - change.value.sizes.keys():
                    self._groups.set_size(key, 0)
            for key, size in change.value.sizes.items():
                self._groups.set_size(key, 0 if isinstance(change, Gone) else size)
                self._groups.templates.put(key, () if isinstance(change, Gone) else change.value.templates)


def sized_objects(api: str) -> Source[SizedObject]:
    """The objects of one of `APIS`."""
    kind, plural = APIS[api]

    def decode(value: Mapping[str, Any]) -> tuple[str, SizedObject] | None:
        uid = text(mapping(value, "metadata"), "uid")
        return (uid, SizedObject(sizes_of(kind, value), templates_of(kind, value))) if uid else None

    return Source(path=f"/apis/{api}/{plural}", decode=decode)


def _is_over(record: PodRecord) -> bool:
    """Whether the pod no longer counts in its group: its controller replaces the pod, or the group has started anew."""
    return record.finished or record.terminating


def group_of_record(record: PodRecord) -> Group | None:
    """The group of the pod; None if it is in none."""
    if not any(name in record.reduced for name in NAMES):  # most pods are in no group
        return None
    return group_of(orjson.loads(record.reduced), record.namespace)
