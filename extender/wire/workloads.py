"""Workloads: a Pod, or an object with a pod template, as the API server would store it; one, or several in a bundle.

Rules of this file
- `wire.pods` applies the API server's defaulting that admission depends on. Here the template becomes a pod.
- An error names its path in the document as it was sent, including the path of the template.
- Fields of a pod's spec that Kubernetes does not have, such as `resources.limit`, are named. The API server drops such
  a field or refuses the pod, so that it has no effect (`known_fields`).
- A bundle is a file with several documents, a list, or the output of `helm template`. An object with several pod
  templates becomes one part for each. Objects without one, such as Services, are skipped and counted by kind.
- A machine of KubeVirt becomes the container `compute` of its virt-launcher pod, which holds its CPUs and memory. The
  memory that KubeVirt adds to the guest's differs by its version and by the machine's devices. It is estimated, and a
  note says so. The estimate is close to the rule of thumb in the documentation of OpenShift Virtualization: 218 MiB,
  8 MiB for each vCPU, and 0.2 % of the guest's memory. It was not compared with the code of any KubeVirt version.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final, NamedTuple

from extender.replay.pod import Pod
from extender.wire.errors import WireError, shown
from extender.wire.known_fields import POD_SPEC, unknown_fields
from extender.wire.nri_annotations import annotation_faults
from extender.wire.parsing import Json, object_at, optional_object_at, parse_milli, text_at
from extender.wire.placement_rules import PlacementRules, placement_rules_from_json
from extender.wire.pods import pod_from_json, unknown_keys
from extender.wire.templates import find_templates, only

MAX_FOUND: Final = 20
MAX_REPLICAS: Final = 2**31 - 1
_REPLICATED: Final = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
_TEMPLATE: Final[Mapping[str, tuple[str, ...]]] = {
    "Pod": (),
    "PodTemplate": ("template",),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    **dict.fromkeys(_REPLICATED, ("spec", "template")),
}
"""The path of the pod template, by kind. For kinds that are not listed it is found by structure (`wire.templates`)."""
_MACHINES: Final = ("VirtualMachine", "VirtualMachineInstance", "VirtualMachineInstanceReplicaSet")
KNOWN_KINDS: Final = frozenset((*_TEMPLATE, *_MACHINES))
MAX_SHOWN: Final = 8
_REPLICAS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(_REPLICATED, ("spec", "replicas")),
    "Job": ("spec", "parallelism"),
    "CronJob": ("spec", "jobTemplate", "spec", "parallelism"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PodWorkload:
    """One document. `replicas`: the number of pods that it requests at a time, 1 if it does not say.

    `pod` has no UID if it is from a template: each copy gets its own (`copy`). `unknown`: parts that are not
    understood, such as a field that Kubernetes does not have or a faulty annotation of the NRI topology-aware policy,
    one sentence each.
    """

    kind: str
    namespace: str
    name: str
    replicas: int
    pod: Pod
    rules: PlacementRules
    unknown: tuple[str, ...] = ()

    def copy(self, number: int) -> Pod:
        """A pod of this workload that is not on a node yet. The status is not copied, except for the QoS class."""
        return replace(
            self.pod,
            uid=f"what-if-{number}",
            name=f"{self.name}-{number}",
            containers=tuple(replace(c, allocated_milli=None) for c in self.pod.containers),
        )


def workload_from_json(document: object, path: str = "") -> PodWorkload:
    """The workload in a document. A missing `kind` means Pod.

    Raises:
        WireError: an unknown kind, or something that admission reads is missing or malformed.
    """
    whole = object_at(document, path)
    kind = whole.get("kind") or "Pod"
    if not isinstance(kind, str):
        raise WireError(_join(path, "kind"), f"{shown(kind)} is not a text")
    template, here, replicas, role = _template_of(whole, kind, path)
    pod, rules = _pod(template, here)
    metadata = optional_object_at(whole.get("metadata"), _join(path, "metadata"))
    name = metadata.get("name") or metadata.get("generateName") or pod.name or kind.lower()
    return PodWorkload(
        kind=kind,
        namespace=text_at(metadata.get("namespace") or "default", _join(path, "metadata.namespace")),
        name="-".join(filter(None, (text_at(name, _join(path, "metadata.name")).rstrip("-"), role))),
        replicas=replicas,
        pod=pod if kind == "Pod" else replace(pod, uid=""),
        rules=rules,
        unknown=_machine_notes(whole)
        if kind in _MACHINES
        else (
            *islice(_unknown(template.get("spec")), MAX_FOUND),
            *_annotation_faults(template, pod),
        ),
    )


def _unknown(spec: object) -> Iterator[str]:
    """A sentence for each field of a pod's spec that Kubernetes does not have."""
    for path, meant in unknown_fields(spec, POD_SPEC, "spec"):
        hint = f"; did you mean {meant}?" if meant else ""
        yield f"{path} is not a field of Kubernetes, and was ignored{hint}"


def _annotation_faults(template: Json, pod: Pod) -> list[str]:
    """Faults of our annotations and of those of the NRI topology-aware policy, in a valid template."""
    metadata = template.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if not isinstance(annotations, dict):
        return []
    texts = {key: text for key, text in annotations.items() if isinstance(text, str)}
    ours = (f"annotation {shown(key)} has no meaning to numa-extender" for key in unknown_keys(annotations))
    nri = annotation_faults(texts, [container.name for container in pod.containers])
    return [*islice(ours, MAX_SHOWN), *(fault.text for fault in nri)]


def _template_of(whole: Json, kind: str, path: str) -> tuple[Json, str, int, str]:
    """The pod template, its path, the number of its pods, and its role among several templates."""
    where = _TEMPLATE.get(kind)
    if where is not None:
        template, here = _below(whole, where, path)
        return template, here, _replicas(whole, kind, path), ""
    if kind in _MACHINES:
        keys = () if kind == "VirtualMachineInstance" else ("spec", "template")
        instance, here = _below(whole, keys, path)
        parent = optional_object_at(whole.get("spec"), _join(path, "spec"))
        replicas = _count(parent.get("replicas"), _join(path, "spec.replicas"))
        return _machine_template(instance, here, whole), here, replicas, ""
    try:
        templates = find_templates(whole)
    except WireError as error:
        raise error.below(path) from None
    if not templates:
        raise WireError(_join(path, "kind"), f"{shown(kind)} is not a Pod, and has no pod template")
    if len(templates) > 1:
        places = ", ".join(each.path for each in templates[:MAX_SHOWN])
        raise WireError(path, f"{len(templates)} pod templates ({places}): send one at a time, or use plan")
    (found,) = templates
    below: Any = whole
    for key in found.keys:
        below = below[key]
    return below, _join(path, found.path), found.replicas, found.role.lower()


def _pod(template: Json, path: str) -> tuple[Pod, PlacementRules]:
    try:
        pod = pod_from_json({**template, "metadata": optional_object_at(template.get("metadata"), ".metadata")}, "")
        rules = placement_rules_from_json(object_at(template.get("spec"), ".spec"), ".spec")
    except WireError as fault:
        raise WireError(_join(path, fault.field.removeprefix(".")), fault.reason) from None
    return pod, rules


def _below(whole: Json, keys: tuple[str, ...], path: str) -> tuple[Json, str]:
    here = whole
    for key in keys:
        path = _join(path, key)
        here = object_at(here.get(key), path)
    return here, path


def _replicas(whole: Json, kind: str, path: str) -> int:
    keys = _REPLICAS.get(kind)
    if keys is None:
        return 1
    parent, where = _below(whole, keys[:-1], path)
    return _count(parent.get(keys[-1]), _join(where, keys[-1]))


def _count(value: object, path: str) -> int:
    if value is None:
        return 1
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_REPLICAS:
        raise WireError(path, f"{shown(value)} is not a count")
    return value


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path and key else path or key


MAX_PARTS: Final = 10_000
MAX_OBJECTS: Final = 10_000
MAX_NESTED: Final = 4


class BundlePart(NamedTuple):
    """An object with one pod template, and its path in the input; empty: it is the whole input."""

    document: dict[str, object]
    path: str


@dataclass(frozen=True, slots=True)
class Bundle:
    """The parts in order, and how many objects without a pod template were skipped, by kind."""

    parts: tuple[BundlePart, ...]
    passed_over: Mapping[str, int]


def bundle_of(documents: Sequence[object]) -> Bundle:
    """The workloads in *documents*.

    Raises:
        WireError: there is none, there are too many, or a document is not an object.
    """
    parts: list[BundlePart] = []
    passed_over: Counter[str] = Counter()
    for path, document in _objects(documents):
        kind = document.get("kind") or "Pod"
        if not isinstance(kind, str) or kind in KNOWN_KINDS:
            parts.append(BundlePart(document, path))
        else:
            try:
                templates = find_templates(document)
            except WireError as error:
                raise error.below(path) from None
            parts += [BundlePart(dict(only(document, each, templates)), path) for each in templates]
            if not templates:
                passed_over[kind[:64]] += 1
        if len(parts) > MAX_PARTS:
            raise WireError("", f"more than {MAX_PARTS:,} workloads")
    if not parts:
        kinds = ", ".join(sorted(passed_over)) or "nothing"
        raise WireError("", f"there is no pod and nothing with a pod template: {kinds}")
    return Bundle(tuple(parts), dict(passed_over))


def _objects(documents: Sequence[object]) -> Iterator[tuple[str, dict[str, object]]]:
    """Every object and its path, with lists expanded."""
    single = len(documents) == 1
    stack = [("" if single else f"documents[{i}]", each, 0) for i, each in reversed(list(enumerate(documents)))]
    count = 0
    while stack:
        path, value, depth = stack.pop()
        count += 1
        if count > MAX_OBJECTS:
            raise WireError("", f"more than {MAX_OBJECTS:,} objects")
        if not isinstance(value, dict):
            raise WireError(path, f"{shown(value)} is not an object")
        items = value.get("items")
        if str(value.get("kind") or "").endswith("List") and isinstance(items, list):
            if depth >= MAX_NESTED:
                raise WireError(path, f"lists within lists more than {MAX_NESTED} deep")
            here = f"{path}.items" if path else "items"
            stack += [(f"{here}[{i}]", item, depth + 1) for i, item in reversed(list(enumerate(items)))]
        else:
            yield path, value


_MACHINE_NOTE: Final = (
    "this is the pod of a KubeVirt machine with its CPUs, memory and host devices; the memory that KubeVirt adds to "
    "the guest's is estimated, and KubeVirt's other containers are left out"
)
MAX_VCPUS: Final = 4096
CPUS_A_REQUEST: Final = 10
"""KubeVirt requests a tenth of a CPU for each vCPU that is not dedicated (`cpuAllocationRatio`)."""
_MIB: Final = 1 << 20
_FIXED_MIB: Final = 220 + 8 + 32
"""virt-launcher, its monitor, virtlogd, virtqemud and qemu; an I/O thread; the video memory."""


def _machine_notes(machine: Json) -> tuple[str, ...]:
    """What is not known of the machine in a document of one of `_MACHINES`, one sentence each."""
    name = _instancetype(machine)
    if name is None:
        return (_MACHINE_NOTE,)
    sentence = (
        f"KubeVirt takes CPUs, memory and devices of this machine from its instancetype {shown(name)}, which is not "
        "read: the answer counts only what the document itself states, which is too little. Ask about the "
        "VirtualMachineInstance that KubeVirt has made of it, which has all amounts"
    )
    return sentence, _MACHINE_NOTE


def _instancetype(machine: Json) -> object | None:
    """The name of the instancetype that completes the machine; None if it has none."""
    spec = machine.get("spec")
    instancetype = spec.get("instancetype") if isinstance(spec, dict) else None
    if not isinstance(instancetype, dict) or not instancetype:
        return None
    return instancetype.get("name") or f"of volume {instancetype.get('inferFromVolume')}"


def _machine_template(instance: Json, path: str, machine: Json) -> Json:
    """The pod template for an instance, whose `spec.domain` is read. *path* is its place in the document *machine*.

    Raises:
        WireError: an amount is missing or malformed.
    """
    where = f"{path}.spec" if path else "spec"
    spec = object_at(instance.get("spec"), where)
    here = f"{where}.domain"
    domain = object_at(spec.get("domain"), here)
    cpu = optional_object_at(domain.get("cpu"), f"{here}.cpu")
    resources = optional_object_at(domain.get("resources"), f"{here}.resources")
    vcpus = 1
    for name in ("cores", "sockets", "threads"):
        vcpus *= _machine_count(cpu.get(name), f"{here}.cpu.{name}")
    guest = _guest_bytes(domain, resources, here, is_complete=_instancetype(machine) is None)
    dedicated = bool(cpu.get("dedicatedCpuPlacement"))
    amounts: dict[str, object] = {}
    overhead = _FIXED_MIB * _MIB + vcpus * 8 * _MIB + guest // 512
    memory = optional_object_at(domain.get("memory"), f"{here}.memory")
    pages = optional_object_at(memory.get("hugepages"), f"{here}.memory.hugepages")
    if pages:
        amounts[f"hugepages-{pages.get('pageSize', '2Mi')}"] = str(guest)
        amounts["memory"] = str(overhead)
    else:
        amounts["memory"] = str(guest + overhead)
    emulator = 1 if cpu.get("isolateEmulatorThread") else 0
    amounts["cpu"] = str(vcpus + emulator) if dedicated else f"{vcpus * 1000 // CPUS_A_REQUEST}m"
    devices = _devices(domain, here)
    limits = {**amounts, **devices} if dedicated else dict(devices)
    container = {"name": "compute", "resources": {"requests": {**amounts, **devices}, "limits": limits}}
    kept = {key: spec[key] for key in ("nodeSelector", "affinity", "tolerations") if key in spec}
    return {"metadata": instance.get("metadata") or {}, "spec": {**kept, "containers": [container]}}


def _guest_bytes(domain: Json, resources: Json, path: str, *, is_complete: bool) -> int:
    """The guest's memory. *is_complete*: the document must state it."""
    memory = optional_object_at(domain.get("memory"), f"{path}.memory")
    if memory.get("guest") is not None:
        return parse_milli(memory["guest"], f"{path}.memory.guest") // 1000
    for key in ("requests", "limits"):
        amounts = optional_object_at(resources.get(key), f"{path}.resources.{key}")
        if amounts.get("memory") is not None:
            return parse_milli(amounts["memory"], f"{path}.resources.{key}.memory") // 1000
    if is_complete:
        raise WireError(f"{path}.memory.guest", "missing")
    return 0


def _devices(domain: Json, path: str) -> dict[str, str]:
    counts: dict[str, int] = {}
    devices = optional_object_at(domain.get("devices"), f"{path}.devices")
    for key in ("gpus", "hostDevices"):
        items = devices.get(key)
        for i, item in enumerate(items if isinstance(items, list) else ()):
            where = f"{path}.devices.{key}[{i}]"
            name = object_at(item, where).get("deviceName")
            if isinstance(name, str):  # otherwise it is from a resource claim
                counts[name] = counts.get(name, 0) + 1
    return {name: str(count) for name, count in counts.items()}


def _machine_count(value: object, path: str) -> int:
    if value is None or value == 0:
        return 1
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_VCPUS:
        raise WireError(path, f"{shown(value)} is not a count from 1 to {MAX_VCPUS}")
    return value
