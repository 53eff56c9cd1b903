"""Reads the group of a pod whose pods must run together or not at all (a gang), from labels, annotations and the spec.

`group_of` is for everyone who asks which pods belong together: filter and bind, and advice that moves pods. The first
source that is present counts: `numa-extender.io/group`, then Kubernetes' own fields (`spec.schedulingGroup` since 1.36,
`spec.workloadRef` in 1.35), then the conventions of `groups.toml` in their order. A further convention of a controller
or scheduler is one more entry there.

A value that is not understood is not an error of the document: the pod is then judged by itself.
"""

import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Final, NamedTuple

import msgspec
import orjson
from msgspec import Struct

from extender.wire.errors import WireError
from extender.wire.parsing import Json, mapping, objects
from extender.wire.templates import find_templates

PREFIX: Final = "numa-extender.io/"
GROUP: Final = f"{PREFIX}group"
SIZE: Final = f"{PREFIX}group-size"
LWS_WORKER: Final = "leaderworkerset.sigs.k8s.io/worker-index"
LWS_ROLES: Final = ("leadertemplate", "workertemplate")
"""The roles of the first pod of a group of a LeaderWorkerSet, and of the others."""
KUEUE_WORKLOAD: Final = "kueue.x-k8s.io/workload"
TASK_GROUPS: Final = "yunikorn.apache.org/task-groups"


class Convention(Struct, frozen=True):
    """`annotations`, `labels`: the first one that the pod has is the group's name.

    `part`: a label whose value belongs to the name as well. `only_with`: an annotation without which the pod is in no
    group. `sizes`: annotations or labels with the number of pods. `object_kind`: the kind of object that states the
    size if the pod does not; "" if there is none. `maker`: the kind of another object, which makes the pods and has
    their templates, and the label with its name.
    """

    kind: str
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    part: str = ""
    only_with: str = ""
    sizes: tuple[str, ...] = ()
    object_kind: str = ""
    maker: tuple[str, str] = ("", "")


_READ: Final = tomllib.loads(files("extender.wire").joinpath("groups.toml").read_text())
CONVENTIONS: Final = msgspec.convert(_READ["conventions"], tuple[Convention, ...])
ROLES: Final = tuple(_READ["roles"])
APIS: Final[Mapping[str, tuple[str, str]]] = {api: (kind, resource) for api, (kind, resource) in _READ["apis"].items()}
"""Kind of the group and resource, by group and version of the API."""
RAY_TYPE: Final = "ray.io/node-type"
RAY_HEAD: Final = "headgroupspec"
"""The role of a RayCluster's head, whose label `ray.io/group` is not in the object."""


HOST: Final = "kubernetes.io/hostname"
SPEC: Final = ("schedulingGroup", "workloadRef")
"""The parts of the spec that are read here, besides rules that spread pods over nodes."""
NAMES: Final = tuple(
    name.encode()
    for name in (GROUP, *SPEC, *(key for each in CONVENTIONS for key in (*each.labels, *each.annotations)))
)
"""The document of every pod in a group has at least one of these names."""
ANNOTATIONS: Final = tuple(
    dict.fromkeys(
        (GROUP, SIZE, KUEUE_WORKLOAD, *(k for c in CONVENTIONS for k in (*c.annotations, *c.sizes, c.only_with) if k))
    )
)
"""The annotations that are read here."""
OBJECTS: Final[Mapping[str, str]] = {
    "pod_group": "PodGroup",
    "workload": "Workload",
    **{each.kind: each.object_kind for each in CONVENTIONS if each.object_kind},
}
"""The kinds of objects that state the sizes of groups, by kind of the group."""
_MAX_NAME: Final = 512
_MAX_SIZE: Final = 1_000_000
_MAX_TASK_GROUPS: Final = 16_384
"""Characters of YuniKorn's annotation that are read at most."""


class ObjectKey(NamedTuple):
    """An object of the API that states the size of groups.

    `kind`: the object that the group is, one of `OBJECTS`.
    """

    kind: str
    namespace: str
    name: str


class Group(NamedTuple):
    """The group of a pod. `key`: its source, namespace and name; equal for its pods, and for no others.

    `size`: how many pods must fit together, if the pod states it, otherwise 0. `object_key`: the object that states it.
    `leads`: other pods of the group are created only after this one is bound. `one_a_node`: each pod needs a node of
    its own. `role`: the pod's role in the object, in lower case; "" if it has none. `maker`: the object with the
    templates of its pods, if that is another one.
    """

    key: tuple[str, str, str]
    size: int = 0
    object_key: ObjectKey | None = None
    leads: bool = False
    one_a_node: bool = False
    role: str = ""
    maker: ObjectKey | None = None

    @property
    def text(self) -> str:
        """The group as people write it: `NAMESPACE/NAME`."""
        return f"{self.key[1]}/{self.key[2]}"


def group_of(manifest: Json, namespace: str = "") -> Group | None:
    """The group of the pod in a v1.Pod document; None if it is in none. *namespace* replaces the document's."""
    metadata, spec = mapping(manifest.get("metadata")), mapping(manifest.get("spec"))
    labels, annotations = mapping(metadata.get("labels")), mapping(metadata.get("annotations"))
    found = _named(labels, annotations, spec)
    if found is None:
        return None
    kind, name, convention = found
    part = "" if convention is None else _text(labels, convention.part)
    space = namespace or _text(metadata, "namespace") or "default"
    size = group_size(annotations.get(SIZE))
    if convention is not None and not size:
        size = _stated_size(convention, labels, annotations)
    made_by, label = ("", "") if convention is None else convention.maker
    maker = _text(labels, label)
    return Group(
        key=(kind, space, f"{name}/{part}" if part else name),
        size=size,
        object_key=_object_key(kind, space, name, spec),
        leads=labels.get(LWS_WORKER) == "0",
        one_a_node=spreads(spec),
        role=_role(labels),
        maker=ObjectKey(made_by, space, maker) if maker else None,
    )


def _role(labels: Json) -> str:
    if labels.get(RAY_TYPE) == "head":
        return RAY_HEAD
    return LWS_ROLES[labels[LWS_WORKER] != "0"] if LWS_WORKER in labels else _first(labels, ROLES).lower()


def _named(labels: Json, annotations: Json, spec: Json) -> tuple[str, str, Convention | None] | None:
    """Kind and name of the group, and the one of `CONVENTIONS` that it follows, if any."""
    if name := _text(annotations, GROUP):
        return "annotation", name, None
    if "schedulingGroup" in spec and (name := _text(mapping(spec.get("schedulingGroup")), "podGroupName")):
        return "pod_group", name, None
    if "workloadRef" in spec and (name := _text(reference := mapping(spec.get("workloadRef")), "name")):
        replica = _text(reference, "podGroupReplicaKey")
        return "workload", "/".join(filter(None, (name, _text(reference, "podGroup"), replica))), None
    for each in CONVENTIONS:
        name = _first(annotations, each.annotations) or _first(labels, each.labels)
        if name and (not each.only_with or _text(annotations, each.only_with)):
            return each.kind, name, each
    return None


def _first(texts: Json, keys: tuple[str, ...]) -> str:
    """The first of the values that is there; "" if none is."""
    return next((text for key in keys if key in texts and (text := _text(texts, key))), "")


def _stated_size(convention: Convention, labels: Json, annotations: Json) -> int:
    sizes = (group_size(texts.get(key)) for key in convention.sizes for texts in (annotations, labels))
    return next(filter(None, sizes), 0) or (_task_groups_size(annotations) if TASK_GROUPS in convention.sizes else 0)


def _task_groups_size(annotations: Json) -> int:
    """The pods of all task groups of a YuniKorn application; 0 if this pod does not state them."""
    text = annotations.get(TASK_GROUPS)
    if not isinstance(text, str) or len(text) > _MAX_TASK_GROUPS:
        return 0
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return 0
    counts = (
        [group_size(each.get("minMember")) for each in found if isinstance(each, dict)]
        if isinstance(found, list)
        else []
    )
    return group_size(sum(counts)) if all(counts) else 0


def _object_key(kind: str, namespace: str, name: str, spec: Json) -> ObjectKey | None:
    if kind == "workload":
        reference = mapping(spec.get("workloadRef"))
        name = f"{_text(reference, 'name')}/{_text(reference, 'podGroup')}"
    return ObjectKey(kind, namespace, name) if kind in OBJECTS else None


def sizes_of(kind: str, document: Json) -> dict[ObjectKey, int]:
    """The sizes of groups that an object of the API states. Empty: it states none that is used.

    A PodGroup has `spec.schedulingPolicy.gang.minCount`, a Workload one for each of its pod groups, and the PodGroups
    of other schedulers have `spec.minMember`. A PodGang has `minReplicas` in each of its groups. A JobSet has as many
    pods as its Jobs run at a time; it has no size if some Jobs start after others. A training job and a RayCluster have
    the pods of all their roles; an MPIJob has no size if its launcher waits for the workers. A LeaderWorkerSet has the
    `size` of its groups, and a Volcano Job `minAvailable`.
    """
    metadata, spec = mapping(document.get("metadata")), mapping(document.get("spec"))
    name, namespace = _text(metadata, "name"), _text(metadata, "namespace")
    found: dict[str, int] = {}
    if kind == "pod_group":
        found[name] = group_size(mapping(mapping(spec.get("schedulingPolicy")).get("gang")).get("minCount"))
    elif kind == "job_set":
        found[name] = _job_set_size(spec)
    elif kind == "grove":
        found[name] = group_size(sum(group_size(each.get("minReplicas")) for each in objects(spec.get("podgroups"))))
    elif kind == "workload":
        for each in objects(spec.get("podGroups")):
            count = group_size(mapping(mapping(each.get("policy")).get("gang")).get("minCount"))
            found[f"{name}/{_text(each, 'name')}"] = count
    elif kind == "leader_worker_set":
        found[name] = _count(mapping(spec.get("leaderWorkerTemplate")).get("size"))
    elif kind == "volcano_job":
        found[name] = group_size(spec.get("minAvailable")) or _templates_size(document, spec)
    elif kind in ("training_job", "ray_cluster"):
        found[name] = _templates_size(document, spec)
    else:
        found[name] = group_size(spec.get("minMember"))
    return {ObjectKey(kind, namespace, name): size for name, size in found.items() if size}


def _job_set_size(spec: Json) -> int:
    """How many pods the JobSet runs at a time; 0 if it does not say, or does not start all of them at once."""
    jobs = objects(spec.get("replicatedJobs"))
    order = mapping(spec.get("startupPolicy")).get("startupPolicyOrder")
    if order == "InOrder" or any("dependsOn" in job for job in jobs):
        return 0
    size = 0
    for job in jobs:
        template = mapping(mapping(job.get("template")).get("spec"))
        pods = _count(template.get("parallelism"))
        completions = template.get("completions")
        size += _count(job.get("replicas")) * (pods if completions is None else min(pods, _count(completions)))
    return group_size(size)


def _templates_size(document: Json, spec: Json) -> int:
    """How many pods an object has at once; 0 if it makes some of them later, or does not say."""
    if spec.get("launcherCreationPolicy") == "WaitForWorkersReady":
        return 0
    try:
        return group_size(sum(each.replicas for each in find_templates(document)))
    except WireError:
        return 0


def _count(value: object) -> int:
    """A number of pods or Jobs; the default of both is 1."""
    return 1 if value is None else group_size(value)


def apis_of(setting: str) -> Iterator[str]:
    """The APIs in the setting's list, which has commas between them.

    Raises:
        ValueError: one is unknown.
    """
    for each in filter(None, (part.strip() for part in setting.split(","))):
        if each not in APIS:
            raise ValueError(f"unknown API {each!r}; use {', '.join(APIS)}")
        yield each


def spreads(spec: Json) -> bool:
    """Whether two pods of one template can never be on one node: by anti-affinity for hostnames, or a host port."""
    anti = mapping(mapping(spec.get("affinity")).get("podAntiAffinity"))
    rules = objects(anti.get("requiredDuringSchedulingIgnoredDuringExecution"))
    return any(rule.get("topologyKey") == HOST for rule in rules) or any(
        "hostPort" in port for each in objects(spec.get("containers")) for port in objects(each.get("ports"))
    )


def _text(document: Json, key: str) -> str:
    value = document.get(key)
    return value if isinstance(value, str) and len(value) <= _MAX_NAME else ""


def group_size(value: object) -> int:
    """A positive number of pods, as an integer or a text; 0 for everything else."""
    if isinstance(value, str) and len(value) <= len(str(_MAX_SIZE)) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 < value <= _MAX_SIZE else 0
