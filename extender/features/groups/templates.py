"""The pods that the objects of groups make, by role: a JobSet, a job of Kubeflow or Volcano, and others.

With templates, the first pod of a group is planned together with the pods that will come. A template that cannot be
read is left out: its pods count as copies of those that came.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Final, NamedTuple

from extender.bounded import BoundedMap
from extender.features.groups.record import Member
from extender.replay.pod import Pod
from extender.scheduling.pod_shape import PodShape
from extender.wire.errors import WireError
from extender.wire.groups import Group, ObjectKey, spreads
from extender.wire.pods import pod_from_json
from extender.wire.templates import find_templates

KINDS: Final = frozenset({"job_set", "training_job", "ray_cluster", "leader_worker_set", "volcano_job"})
MAX_ROLES: Final = 16


class RoleTemplate(NamedTuple):
    """`pods` pods of one role of a group. `is_alone`: no two of them can be on one node."""

    role: str
    pods: int
    pod: Pod
    is_alone: bool


def templates_of(kind: str, document: Mapping[str, Any]) -> tuple[RoleTemplate, ...]:
    """The templates in an object that states the size of a group of this kind. Empty: it has none that can be read."""
    if kind not in KINDS:
        return ()
    if kind == "leader_worker_set" and isinstance(spec := document.get("spec"), dict):
        document = {**document, "spec": {**spec, "replicas": 1}}  # each of its groups has all of its roles
    found = []
    try:
        for each in find_templates(document)[:MAX_ROLES]:
            template: Any = document
            for key in each.keys:
                template = template[key]
            pod = pod_from_json({"metadata": {}, **template})
            found.append(RoleTemplate(each.role.lower(), each.replicas, pod, spreads(template["spec"])))
    except WireError:
        return ()
    return tuple(found)


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
