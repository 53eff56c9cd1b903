"""Finds pod templates in objects of any kind, by their structure.

A pod template is an object with a `spec` that has a list of `containers`. Its place, and the number of pods created
from it, differ by kind, and new kinds appear all the time. These are read without a list of kinds: JobSet,
LeaderWorkerSet, the training operator's jobs, MPIJob, RayCluster, Argo Rollout, and others with the same structure.

Rules of this file
- The number of pods is the product of all counts on the path to the template: `replicas`, `parallelism`, `numOfHosts`.
  A LeaderWorkerSet has one leader and `size` - 1 workers in each of its groups.
- No recursion, and limits: `MAX_VISITED` values, `MAX_TEMPLATES` templates.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from extender.wire.errors import WireError, shown

Json = Mapping[str, object]
Keys = tuple[str | int, ...]
MAX_TEMPLATES: Final = 64
MAX_VISITED: Final = 100_000
MAX_COUNT: Final = 2**31 - 1
_COUNTS: Final = ("replicas", "parallelism", "numOfHosts")
_NAMES: Final = ("name", "groupName")
_PLAIN: Final = frozenset(("spec", "template", "jobTemplate"))
_MAX_ROLE: Final = 63


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """`keys`: its path from the object. `role` distinguishes it from others of the object; empty if there are none."""

    keys: Keys
    replicas: int
    role: str

    @property
    def path(self) -> str:
        """The path as in error messages: `spec.replicatedJobs[0].template.spec.template`."""
        return path_of(self.keys)


@dataclass(frozen=True, slots=True)
class _Place:
    value: object
    keys: Keys
    replicas: int
    role: str


def path_of(keys: Keys) -> str:
    """`a.b[0].c` of ("a", "b", 0, "c")."""
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key[:64]}" if text else key[:64]
    return text


def find_templates(document: Json) -> list[PodTemplate]:
    """The pod templates of an object, in its order. Empty if there are none.

    Raises:
        WireError: there are too many, the object is too large, or a count on the path is not valid.
    """
    found: list[PodTemplate] = []
    stack = [_Place(document, (), 1, "")]
    visited = 0
    while stack:
        place = stack.pop()
        visited += 1
        if visited > MAX_VISITED:
            raise WireError("", f"more than {MAX_VISITED:,} values: too many to look for pod templates")
        if _is_template(place.value) and place.keys:
            found.append(PodTemplate(place.keys, place.replicas, place.role))
            if len(found) > MAX_TEMPLATES:
                raise WireError("", f"more than {MAX_TEMPLATES} pod templates")
        elif isinstance(place.value, dict):
            replicas = _counted(place)
            inside = [(key, value) for key, value in place.value.items() if isinstance(value, dict | list)]
            stack += reversed([_below(place, key, value, replicas) for key, value in inside if isinstance(key, str)])
        elif isinstance(place.value, list):
            items = [(i, item) for i, item in enumerate(place.value) if isinstance(item, dict | list)]
            stack += reversed(
                [_Place(item, (*place.keys, i), place.replicas, _named(item) or place.role) for i, item in items]
            )
    return found


def only(document: Json, template: PodTemplate, templates: list[PodTemplate]) -> Json:
    """A copy of the object in which the other templates are empty. Paths in it do not change."""
    gone = {each.keys for each in templates if each is not template}
    ways = {keys[:length] for keys in gone for length in range(len(keys) + 1)}

    def copied(value: Any, keys: Keys) -> Any:  # noqa: ANN401 - any value of a document
        if keys in gone:
            return {}
        if keys not in ways:
            return value
        if isinstance(value, dict):
            return {key: copied(each, (*keys, key)) for key, each in value.items()}
        return [copied(each, (*keys, i)) for i, each in enumerate(value)]

    result: Json = copied(document, ())
    return result


def _below(place: _Place, key: str, value: object, replicas: int) -> _Place:
    role = place.role if key in _PLAIN else key
    group = place.value
    if isinstance(group, dict) and "workerTemplate" in group and key in ("leaderTemplate", "workerTemplate"):
        size = _count(group.get("size"), (*place.keys, "size"), default=1)
        leads = isinstance(group.get("leaderTemplate"), dict)
        workers = max(0, size - 1) if leads else size
        replicas *= 1 if key == "leaderTemplate" else workers
    return _Place(value, (*place.keys, key), replicas, role)


def _is_template(value: object) -> bool:
    spec = value.get("spec") if isinstance(value, dict) else None
    containers = spec.get("containers") if isinstance(spec, dict) else None
    return isinstance(containers, list) and bool(containers)


def _counted(place: _Place) -> int:
    replicas = place.replicas
    assert isinstance(place.value, dict)
    for name in _COUNTS:
        replicas *= _count(place.value.get(name), (*place.keys, name), default=1)
    if replicas > MAX_COUNT:
        raise WireError(path_of(place.keys), f"{replicas} pods, more than {MAX_COUNT}")
    return replicas


def _count(value: object, keys: Keys, *, default: int) -> int:
    if value is None or isinstance(value, dict | list):
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_COUNT:
        raise WireError(path_of(keys), f"{shown(value)} is not a count")
    return value


def _named(item: object) -> str:
    for name in _NAMES:
        value = item.get(name) if isinstance(item, dict) else None
        if isinstance(value, str):
            return value[:_MAX_ROLE]
    return ""
