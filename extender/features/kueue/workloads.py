"""Reads the pods that a Workload of Kueue asks for, before they exist, and on which nodes Kueue lets them run.

A pod set counts with the number of pods in its assignment. Its pods get what Kueue will give them: the labels of the
nodes of its flavors, and the flavors' tolerations. Where Kueue has assigned topology domains, each pod gets the labels
of its domain.

Kueue writes domains in slices, in which equal values are written once: `{"domainCount": 2, "valuesPerLevel":
[{"universal": "block-1"}, {"individual": {"prefix": "rack-", "roots": ["1", "2"]}}], "podCounts": {"individual": [4,
2]}}` has 4 pods in rack-1 and 2 in rack-2, both in block-1.

Source: Kueue v0.19, `apis/kueue/v1beta2/workload_types.go`, `pkg/podset/podset.go`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.features.kueue.objects import Flavor
from extender.kube.client import JSON
from extender.wire.errors import CapError, WireError, shown
from extender.wire.parsing import Json, integer_at, list_at, object_at, optional_object_at, text_at

MAX_POD_SETS: Final = 32
MAX_PODS: Final = 1_000
"""Pods of one Workload, and topology domains of one pod set."""
MAX_LEVELS: Final = 16


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one template. `labels`: of the nodes that they may run on.

    `parts`: pairs of a v1.Pod and the number of such pods, one for each topology domain, otherwise one. `is_open`:
    Kueue assigns the topology domains later.
    """

    name: str
    labels: Mapping[str, str]
    parts: Sequence[tuple[JSON, int]]
    is_open: bool = False

    @property
    def pods(self) -> int:
        """How many pods it has."""
        return sum(count for _, count in self.parts)

    def without(self, bound: int) -> "PodSet":
        """The pod set without its first *bound* pods."""
        parts = []
        for pod, count in self.parts:
            kept = max(0, count - bound)
            bound -= count - kept
            parts += [(pod, kept)] if kept else []
        return replace(self, parts=parts)


def read_pod_sets(workload: Json, flavors: Mapping[str, Flavor]) -> Sequence[PodSet]:
    """The pod sets of a Workload that has quota. Those without pods are left out.

    Raises:
        WireError: something is malformed, or a flavor is not known.
        CapError: there are more than `MAX_PODS` pods.
    """
    namespace = text_at(object_at(workload.get("metadata"), "metadata").get("namespace"), "metadata.namespace")
    spec = object_at(workload.get("spec"), "spec")
    admission = object_at(object_at(workload.get("status"), "status").get("admission"), "status.admission")
    where = "status.admission.podSetAssignments"
    listed = list_at(admission.get("podSetAssignments"), where, MAX_POD_SETS)
    assigned = {}
    for i, each in enumerate(listed):
        assignment = object_at(each, f"{where}[{i}]")
        assigned[text_at(assignment.get("name") or "main", f"{where}[{i}].name")] = assignment, f"{where}[{i}]"
    found, left = list[PodSet](), MAX_PODS
    for i, each in enumerate(list_at(spec.get("podSets"), "spec.podSets", MAX_POD_SETS)):
        path = f"spec.podSets[{i}]"
        pod_set = object_at(each, path)
        name = text_at(pod_set.get("name") or "main", f"{path}.name")
        if name not in assigned:
            raise WireError(where, f"there is none for the pod set {shown(name)}")
        read = _pod_set(name, namespace, pod_set, path, *assigned[name], flavors)
        left -= read.pods
        if left < 0:
            raise CapError(path, f"the Workload has more than {MAX_PODS} pods")
        if read.pods:
            found.append(read)
    return found


def _pod_set(
    name: str, namespace: str, pod_set: Json, path: str, assignment: Json, where: str, flavors: Mapping[str, Flavor]
) -> PodSet:
    count = assignment.get("count")
    count = pod_set.get("count") if count is None else count
    pods = _count(count, f"{where}.count")
    template = object_at(pod_set.get("template"), f"{path}.template")
    spec = dict(object_at(template.get("spec"), f"{path}.template.spec"))
    labels, tolerations = dict[str, str](), list[object]()
    for resource, flavor in optional_object_at(assignment.get("flavors"), f"{where}.flavors").items():
        known = flavors.get(text_at(flavor, f"{where}.flavors.{resource[:64]}"))
        if known is None:
            raise WireError(f"{where}.flavors.{resource[:64]}", f"there is no ResourceFlavor {shown(flavor)}")
        labels |= known.labels
        tolerations += [each for each in known.tolerations if each not in tolerations]
    own = list_at(spec.get("tolerations") or [], f"{path}.template.spec.tolerations", MAX_PODS)
    selector = {**optional_object_at(spec.get("nodeSelector"), f"{path}.template.spec.nodeSelector"), **labels}
    metadata = optional_object_at(template.get("metadata"), f"{path}.template.metadata")
    spec |= {"tolerations": [*own, *tolerations]}
    is_open = assignment.get("delayedTopologyRequest") == "Pending"
    topology = optional_object_at(assignment.get("topologyAssignment"), f"{where}.topologyAssignment")
    domains = _domains(topology, f"{where}.topologyAssignment") if topology else [({}, pods)]
    parts = [
        (
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {**metadata, "name": name, "namespace": namespace},
                "spec": {**spec, "nodeSelector": {**selector, **domain}},
            },
            copies,
        )
        for domain, copies in domains
        if copies
    ]
    return PodSet(name, labels, parts, is_open)


def _domains(topology: Json, path: str) -> Iterator[tuple[Mapping[str, str], int]]:
    """The labels and the number of pods of each topology domain."""
    levels = [
        text_at(each, f"{path}.levels[{i}]")
        for i, each in enumerate(list_at(topology.get("levels"), f"{path}.levels", MAX_LEVELS))
    ]
    left = MAX_PODS
    for i, each in enumerate(list_at(topology.get("slices"), f"{path}.slices", MAX_PODS)):
        where = f"{path}.slices[{i}]"
        piece = object_at(each, where)
        size = _count(piece.get("domainCount"), f"{where}.domainCount")
        left -= size
        if left < 0:
            raise CapError(where, f"the pod set has more than {MAX_PODS} topology domains")
        values = list_at(piece.get("valuesPerLevel"), f"{where}.valuesPerLevel", MAX_LEVELS)
        columns = [list(_values(value, size, f"{where}.valuesPerLevel[{k}]")) for k, value in enumerate(values)]
        if len(columns) != len(levels):
            raise WireError(f"{where}.valuesPerLevel", f"has {len(columns)} levels, expected {len(levels)}")
        counts = object_at(piece.get("podCounts"), f"{where}.podCounts")
        each_count = _repeated(counts, size, f"{where}.podCounts")
        for domain, pods in enumerate(each_count):
            row = {level: column[domain] for level, column in zip(levels, columns, strict=True)}
            yield row, _count(pods, f"{where}.podCounts")


def _values(value: object, size: int, path: str) -> Iterator[str]:
    level = object_at(value, path)
    individual = optional_object_at(level.get("individual"), f"{path}.individual")
    ends = [text_at(individual.get(key) or "", f"{path}.individual.{key}") for key in ("prefix", "suffix")]
    roots = _repeated({**level, "individual": individual.get("roots")} if individual else level, size, path)
    for each in roots:
        yield f"{ends[0]}{text_at(each, path)}{ends[1]}"


def _repeated(value: Json, size: int, path: str) -> Sequence[object]:
    """One value for each domain: `individual` has them all, `universal` the one that all have."""
    if value.get("individual") is None:
        return [value.get("universal")] * size
    listed = list_at(value["individual"], path, MAX_PODS)
    if len(listed) != size:
        raise WireError(path, f"has {len(listed)} values, expected {size}")
    return listed


def _count(value: object, path: str) -> int:
    count = integer_at(value, path)
    if count < 0:
        raise WireError(path, f"{count} is negative")
    return count
