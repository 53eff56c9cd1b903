"""The pods that the objects of groups make, by role, as the watch shows these objects."""

from collections.abc import Sequence
from math import inf
from typing import Final

from extender.bounded import BoundedMap
from extender.features.groups.record import Member
from extender.scheduling.pod_shape import PodShape
from extender.wire.group_templates import RoleTemplate
from extender.wire.groups import Group, ObjectKey

MAX_TEMPLATED: Final = 10_000
"""The number of objects whose templates of pods are kept."""


class Templates:
    """Keeps the templates of at most `MAX_TEMPLATED` objects."""

    def __init__(self) -> None:
        self._of: BoundedMap[ObjectKey, Sequence[tuple[int, Member]]] = BoundedMap(MAX_TEMPLATED)

    def put(self, key: ObjectKey, templates: Sequence[RoleTemplate]) -> None:
        """Keep the pods that an object of the API makes, by role. Empty: it does not say, or is gone."""
        if not templates:
            self._of.pop(key, None)
            return
        self._of[key] = [
            (each.pods, Member(PodShape(each.pod), is_alone=each.is_alone, seen_at=-inf, role=each.role))
            for each in templates
        ]

    def of(self, group: Group) -> Sequence[tuple[int, Member]]:
        """How many pods of each role the group's object makes, and what they are; empty if it is not known."""
        key = group.maker or group.object_key
        return self._of.get(key, ()) if key is not None else ()
