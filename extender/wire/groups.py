"""Reads the group of a pod whose pods must run together or not at all (a gang), from labels, annotations and the spec.

The first of these sources that is present counts (`docs/gangs.md` has the versions):
- `numa-extender.io/group`, an annotation of ours for any controller;
- `spec.schedulingGroup.podGroupName` (Kubernetes 1.36 and later), and `spec.workloadRef` (1.35 only);
- the label `scheduling.x-k8s.io/pod-group` of the coscheduling plugin;
- labels of LeaderWorkerSet, whose groups have a size in an annotation, and of JobSet.

A value that is not understood is not an error of the document: the pod is then judged by itself.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

PREFIX: Final = "numa-extender.io/"
GROUP: Final = f"{PREFIX}group"
SIZE: Final = f"{PREFIX}group-size"
_COSCHEDULING: Final = "scheduling.x-k8s.io/pod-group"
_LWS: Final = "leaderworkerset.sigs.k8s.io/"
_LWS_GROUP, LWS_SIZE, _LWS_WORKER = f"{_LWS}group-key", f"{_LWS}size", f"{_LWS}worker-index"
_JOB_SET, _ATTEMPT = "jobset.sigs.k8s.io/jobset-name", "jobset.sigs.k8s.io/restart-attempt"
_HOST: Final = "kubernetes.io/hostname"
NAMES: Final = tuple(
    name.encode() for name in (GROUP, "schedulingGroup", "workloadRef", _COSCHEDULING, _LWS_GROUP, _JOB_SET)
)
"""Of every pod in a group at least one is in its document."""
ANNOTATIONS: Final = (GROUP, SIZE, LWS_SIZE)
"""The annotations that are read here."""
SPEC: Final = ("schedulingGroup", "workloadRef")
"""The parts of the spec that are read here, besides rules that spread pods over nodes."""
APIS: Final[Mapping[str, tuple[str, str]]] = {
    "scheduling.x-k8s.io/v1alpha1": ("coscheduling", "podgroups"),
    "scheduling.k8s.io/v1alpha1": ("workload", "workloads"),
    "scheduling.k8s.io/v1alpha2": ("pod_group", "podgroups"),
    "scheduling.k8s.io/v1alpha3": ("pod_group", "podgroups"),
    "scheduling.k8s.io/v1beta1": ("pod_group", "podgroups"),
    "jobset.x-k8s.io/v1alpha2": ("job_set", "jobsets"),
}
"""Kind of the group and resource, by group and version of the API. Kubernetes 1.35, 1.36 and 1.37 have one each."""
_MAX_NAME: Final = 512
_MAX_SIZE: Final = 1_000_000

Json = Mapping[str, object]


class ObjectKey(NamedTuple):
    """An object of the API that states the size of groups.

    `kind`: `pod_group`, `workload`, `coscheduling` or `job_set`.
    """

    kind: str
    namespace: str
    name: str


class Group(NamedTuple):
    """The group of a pod. `key`: equal for its pods, and for no others.

    `size`: how many pods must fit together, if the pod states it, otherwise 0. `object_key`: the object that states it.
    `leads`: other pods of the group are created only after this one is bound. `one_a_node`: each pod needs a node of
    its own.
    """

    key: tuple[str, str, str]
    size: int = 0
    object_key: ObjectKey | None = None
    leads: bool = False
    one_a_node: bool = False

    @property
    def text(self) -> str:
        """The group as people write it: `NAMESPACE/NAME`."""
        return f"{self.key[1]}/{self.key[2]}"


def group_of(manifest: Json, namespace: str = "") -> Group | None:
    """The group of the pod in a v1.Pod document; None if it is in none. *namespace*: in place of the document's."""
    metadata, spec = _object(manifest, "metadata"), _object(manifest, "spec")
    labels, annotations = _object(metadata, "labels"), _object(metadata, "annotations")
    found = _named(labels, annotations, spec)
    if found is None:
        return None
    kind, name = found
    space = namespace or _text(metadata, "namespace") or "default"
    size = group_size(annotations.get(SIZE))
    if kind == "leader_worker_set":
        size = size or group_size(annotations.get(LWS_SIZE))
    return Group(
        key=(kind, space, name),
        size=size,
        object_key=_object_key(kind, space, spec, labels, name),
        leads=kind == "leader_worker_set" and labels.get(_LWS_WORKER) == "0",
        one_a_node=_spreads(spec),
    )


def _named(labels: Json, annotations: Json, spec: Json) -> tuple[str, str] | None:
    """Kind and name of the group."""
    if name := _text(annotations, GROUP):
        return "annotation", name
    if "schedulingGroup" in spec and (name := _text(_object(spec, "schedulingGroup"), "podGroupName")):
        return "pod_group", name
    if "workloadRef" in spec and (name := _text(reference := _object(spec, "workloadRef"), "name")):
        replica = _text(reference, "podGroupReplicaKey")
        return "workload", "/".join(filter(None, (name, _text(reference, "podGroup"), replica)))
    if name := _text(labels, _COSCHEDULING):
        return "coscheduling", name
    if name := _text(labels, _LWS_GROUP):
        return "leader_worker_set", name
    if name := _text(labels, _JOB_SET):
        return "job_set", f"{name}/{attempt}" if (attempt := _text(labels, _ATTEMPT)) else name
    return None


def _object_key(kind: str, namespace: str, spec: Json, labels: Json, name: str) -> ObjectKey | None:
    if kind == "workload":
        reference = _object(spec, "workloadRef")
        return ObjectKey(kind, namespace, f"{_text(reference, 'name')}/{_text(reference, 'podGroup')}")
    if kind == "job_set":
        return ObjectKey(kind, namespace, _text(labels, _JOB_SET))
    return ObjectKey(kind, namespace, name) if kind in ("pod_group", "coscheduling") else None


def sizes_of(kind: str, document: Json) -> dict[ObjectKey, int]:
    """The sizes of groups that an object of the API states. Empty: it states none that is used.

    A PodGroup has `spec.schedulingPolicy.gang.minCount`, a Workload one for each of its pod groups, and the
    coscheduling plugin's PodGroup has `spec.minMember`. A JobSet has as many pods as its Jobs run at a time; it has no
    size if some Jobs start after others.
    """
    metadata, spec = _object(document, "metadata"), _object(document, "spec")
    name, namespace = _text(metadata, "name"), _text(metadata, "namespace")
    found: dict[str, int] = {}
    if kind == "coscheduling":
        found[name] = group_size(spec.get("minMember"))
    elif kind == "pod_group":
        found[name] = group_size(_object(_object(spec, "schedulingPolicy"), "gang").get("minCount"))
    elif kind == "job_set":
        found[name] = _job_set_size(spec)
    else:
        groups = spec.get("podGroups")
        for each in groups if isinstance(groups, list) else ():
            if isinstance(each, dict):
                count = group_size(_object(_object(each, "policy"), "gang").get("minCount"))
                found[f"{name}/{_text(each, 'name')}"] = count
    return {ObjectKey(kind, namespace, name): size for name, size in found.items() if size}


def _job_set_size(spec: Json) -> int:
    """How many pods the JobSet runs at a time; 0 if it does not say, or does not start all of them at once."""
    jobs = _list(spec, "replicatedJobs")
    if _object(spec, "startupPolicy").get("startupPolicyOrder") == "InOrder" or any("dependsOn" in job for job in jobs):
        return 0
    size = 0
    for job in jobs:
        template = _object(_object(job, "template"), "spec")
        pods = _count(template.get("parallelism"))
        completions = template.get("completions")
        size += _count(job.get("replicas")) * (pods if completions is None else min(pods, _count(completions)))
    return group_size(size)


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


def _spreads(spec: Json) -> bool:
    """Whether two pods of one template can never be on one node: by anti-affinity for hostnames, or a host port."""
    anti = _object(_object(spec, "affinity"), "podAntiAffinity")
    rules = _list(anti, "requiredDuringSchedulingIgnoredDuringExecution")
    return any(rule.get("topologyKey") == _HOST for rule in rules) or any(
        "hostPort" in port for each in _list(spec, "containers") for port in _list(each, "ports")
    )


def _object(document: Json, key: str) -> Json:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _list(document: Json, key: str) -> list[Json]:
    value = document.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


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
