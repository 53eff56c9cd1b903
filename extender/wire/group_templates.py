"""The pods that an object of the API makes for a group, by role: a JobSet, a job of Kubeflow or Volcano, and others.

So the first pod of a group that comes is planned with the others as they will be. A template that cannot be read is
left out: its pods count as copies of those that came.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from extender.replay.pod import Pod
from extender.wire.errors import WireError
from extender.wire.groups import spreads
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
