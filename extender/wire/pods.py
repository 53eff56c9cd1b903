"""Converts v1.Pod documents to `replay.pod.Pod`, with the alignment that annotations or labels demand.

Rules of this file
- Only what admission reads is read, and validated while reading. An error names its path (`Pod.spec.containers[0]…`).
- The API server's defaulting that matters here is applied. It changes nothing if it was applied before: missing
  requests are copied from limits, and pod-level requests default to what the containers request together.
- Nothing of the document is kept: replay values contain no foreign objects.
- A key with the name of a container, such as `numa-extender.io/alignment.app`, is for this container. A value that is
  not understood is not an error of the document: kube-scheduler would try the pod again at once and show no reason. It
  becomes `Demand.fault`, for which every node is refused.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from extender.kubelet.pod import Container, ContainerKind, QOSClass
from extender.kubelet.resolve import peak
from extender.replay.alignment_demand import (
    CPU,
    DEVICES,
    MEMORY,
    NO_DEMAND,
    AlignmentDemand,
    ContainerDemand,
    Demand,
    DemandScope,
    MemoryDemand,
)
from extender.replay.pod import Pod
from extender.wire.errors import CapError, WireError, shown
from extender.wire.groups import ANNOTATIONS, PREFIX
from extender.wire.nri_pods import metadata_of
from extender.wire.parsing import (
    MAX_TEXT,
    Json,
    list_at,
    object_at,
    optional_object_at,
    parse_milli,
    text_at,
    unix_seconds,
)

ALIGNMENT: Final = f"{PREFIX}alignment"
RESOURCES: Final = f"{PREFIX}alignment-resources"
SCOPE: Final = f"{PREFIX}alignment-scope"
LOCAL_MEMORY: Final = f"{PREFIX}memory"
MAX_DEMANDED: Final = 16
_WORDS: Final[Mapping[str, type[StrEnum]]] = {
    ALIGNMENT: AlignmentDemand,
    SCOPE: DemandScope,
    LOCAL_MEMORY: MemoryDemand,
}
_OF_CONTAINERS: Final = (ALIGNMENT, RESOURCES, LOCAL_MEMORY)
_KEYS: Final = (*_WORDS, RESOURCES)
_RESOURCE: Final = re.compile(rf"{CPU}|{MEMORY}|{DEVICES}|[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
E = TypeVar("E", bound=StrEnum)


def demand_from_json(texts: object, where: str = "annotation", containers: Collection[str] | None = None) -> Demand:
    """The demand in a mapping of annotations or labels; *where* names them in a fault. Other keys are ignored.

    *containers*: those of the pod; None: of any pod.
    """
    if not isinstance(texts, dict):
        return NO_DEMAND
    ours = {key: parts for key in texts if (parts := _parts(key)) is not None}
    if not ours:
        return NO_DEMAND
    faults = (f"{where} {key} {fault}" for key in ours if (fault := fault_of(key, texts[key], containers)))
    names = sorted({container for _, container in ours.values() if container})
    whole = _demand(texts, "")
    return Demand(
        whole.alignment,
        _word(DemandScope, texts.get(SCOPE)),
        whole.memory,
        next(faults, ""),
        whole.resources,
        tuple((name, _demand(texts, f".{name}")) for name in names),
    )


def understood(texts: Mapping[str, object]) -> list[str]:
    """Our keys whose values are understood."""
    return [key for key in texts if _parts(key) is not None and not fault_of(key, texts[key])]


def fault_of(key: str, text: object, containers: Collection[str] | None = None) -> str:
    """What is wrong with one of our keys and its value. Empty: nothing, or the key has no meaning.

    *containers*: those of the pod; None: of any pod.
    """
    parts = _parts(key)
    if parts is None:
        return ""
    base, container = parts
    if container and containers is not None and container not in containers:
        return f"names no container of the pod: it has {', '.join(map(shown, containers))}"
    kind = _WORDS.get(base)
    if kind is None:
        return "" if _resources(text) else f"has the unknown value {shown(text)}; use resources, such as cpu,memory"
    return "" if text in tuple(kind) else f"has the unknown value {shown(text)}; use {', '.join(kind)}"


def unknown_keys(texts: object) -> list[str]:
    """The keys with our prefix that have no meaning, such as misspelled ones."""
    if not isinstance(texts, dict):
        return []
    keys = (key for key in texts if isinstance(key, str) and key.startswith(PREFIX))
    return [key for key in keys if _parts(key) is None and key not in ANNOTATIONS]


def _parts(key: object) -> tuple[str, str] | None:
    """The key without the name of a container, and that name ("": of the pod); None: it is not one of our keys."""
    if not isinstance(key, str) or not key.startswith(PREFIX):
        return None
    base, dot, container = key.removeprefix(PREFIX).partition(".")
    base = PREFIX + base
    is_ours = (base in _OF_CONTAINERS and container) if dot else base in _KEYS
    return (base, container) if is_ours else None


def _demand(texts: Mapping[str, object], suffix: str) -> ContainerDemand:
    return ContainerDemand(
        _word(AlignmentDemand, texts.get(ALIGNMENT + suffix)),
        _word(MemoryDemand, texts.get(LOCAL_MEMORY + suffix)),
        _resources(texts.get(RESOURCES + suffix)),
    )


def _word(kind: type[E], text: object) -> E | None:
    return kind(text) if isinstance(text, str) and text in tuple(kind) else None


def _resources(text: object) -> tuple[str, ...] | None:
    """The resources of a list, sorted; None: it is not understood. In the value of a label `_` separates words."""
    if not isinstance(text, str):
        return None
    names = {each.strip() for each in (text.split(",") if "/" in text or "," in text else text.split("_"))}
    return tuple(sorted(names)) if len(names) <= MAX_DEMANDED and all(map(_RESOURCE.fullmatch, names)) else None


MAX_CONTAINERS: Final = 1000
MAX_RESOURCES: Final = 256
MAX_CLAIMS: Final = 1000
MAX_POD_BYTES: Final = 512 << 10
"""What one pod may take in memory. 100 containers with four resources each take about 120 kB."""
_A_BYTE_OF_ANNOTATIONS: Final = 16
"""The memory that one byte of annotations takes when it is parsed."""
NODE_CRITICAL: Final = "system-node-critical"
"""A priority class."""


def pod_from_json(document: object, path: str = "Pod") -> Pod:
    """The pod in a v1.Pod document. `kind` and `apiVersion` may be missing.

    Raises:
        WireError: something that admission reads is missing or malformed.
    """
    pod = object_at(document, path)
    metadata = object_at(pod.get("metadata"), f"{path}.metadata")
    spec = object_at(pod.get("spec"), f"{path}.spec")
    status = optional_object_at(pod.get("status"), f"{path}.status")
    namespace = text_at(metadata.get("namespace") or "default", f"{path}.metadata.namespace")
    known = _Known(
        allocated_from_json(status, f"{path}.status"),
        _claimed(status, f"{path}.status.extendedResourceClaimStatus"),
        _claims(spec.get("resourceClaims"), status, namespace, path),
    )
    containers = [
        *_containers(spec.get("initContainers"), f"{path}.spec.initContainers", known, init=True),
        *_containers(spec.get("containers"), f"{path}.spec.containers", known, init=False),
    ]
    if not any(c.kind is ContainerKind.APP for c in containers):
        raise WireError(f"{path}.spec.containers", "a pod has at least one container")
    names = Counter(c.name for c in containers)
    if len(names) != len(containers):
        twice = next(name for name, count in names.items() if count > 1)
        raise WireError(f"{path}.spec.containers", f"the name {shown(twice)} is used by two containers")
    requests, limits = _pod_level(spec, f"{path}.spec.resources", containers)
    described = metadata_of(metadata.get("labels"), metadata.get("annotations"))
    weight = 1000 + sum(map(_weight_of, containers)) + _bytes_of(requests or {}) + _bytes_of(limits or {})
    weight += sum(110 + sum(map(len, each)) for each in known.claims.values() if each)
    weight += 2 * _bytes_of(described.labels) + _A_BYTE_OF_ANNOTATIONS * _bytes_of(described.annotations)
    if weight > MAX_POD_BYTES:
        raise CapError(f"{path}.spec", f"its containers take {weight} bytes of memory, more than {MAX_POD_BYTES}")
    return Pod(
        uid=text_at(metadata.get("uid", ""), f"{path}.metadata.uid"),
        name=text_at(metadata.get("name", ""), f"{path}.metadata.name"),
        namespace=namespace,
        containers=tuple(containers),
        pod_requests_milli=requests,
        pod_limits_milli=limits,
        status_qos=_qos(status.get("qosClass"), f"{path}.status.qosClass"),
        created_at=unix_seconds(metadata.get("creationTimestamp")),
        demand=demand_from_json(metadata.get("annotations"), containers=list(names)),
        metadata=described,
        claims=tuple(each[0] for each in known.claims.values() if each),
        templates=tuple(each[1] for each in known.claims.values() if each),
        weight_bytes=weight,
        is_node_critical=spec.get("priorityClassName") == NODE_CRITICAL,
    )


def _weight_of(container: Container) -> int:
    """About how many bytes of memory a container takes."""
    allocated = container.allocated_milli or {}
    lists = sum(map(_bytes_of, (container.requests_milli, container.limits_milli, allocated)))
    return 500 + lists + 300 * len(container.dra_resources) + 16 * len(container.claims)


def _bytes_of(parts: Mapping[str, object]) -> int:
    return sum(60 + len(name) for name in parts)


@dataclass(frozen=True, slots=True)
class _Known:
    """The parts of the pod's status about its containers, by name, and the pod's claims by their names in the pod.

    `claims`: each with its template, "" without one; None: the status says that it is not needed.
    """

    allocated: Mapping[str, Mapping[str, int]]
    claimed: Mapping[str, frozenset[str]]
    claims: Mapping[str, tuple[str, str] | None]


def _containers(value: object, path: str, known: _Known, *, init: bool) -> list[Container]:
    return [
        _container(object_at(item, f"{path}[{i}]"), f"{path}[{i}]", known, init=init)
        for i, item in enumerate(list_at(value, path, MAX_CONTAINERS))
    ]


def _container(document: Json, path: str, known: _Known, *, init: bool) -> Container:
    name = text_at(document.get("name"), f"{path}.name")
    if not name:
        raise WireError(f"{path}.name", "empty")
    resources = optional_object_at(document.get("resources"), f"{path}.resources")
    limits = _amounts(resources.get("limits"), f"{path}.resources.limits")
    requests = {**limits, **_amounts(resources.get("requests"), f"{path}.resources.requests")}
    kind = ContainerKind.APP
    if init:
        kind = ContainerKind.SIDECAR if document.get("restartPolicy") == "Always" else ContainerKind.INIT
    return Container(
        name=name,
        kind=kind,
        requests_milli=requests,
        limits_milli=limits,
        allocated_milli=known.allocated.get(name),
        dra_resources=known.claimed.get(name, frozenset()),
        claims=_used(resources.get("claims"), f"{path}.resources.claims", known.claims),
    )


def _amounts(value: object, path: str) -> dict[str, int]:
    amounts = optional_object_at(value, path)
    if len(amounts) > MAX_RESOURCES:
        raise WireError(path, f"{len(amounts)} resources, more than {MAX_RESOURCES}")
    return {
        name: 0 if amount is None else parse_milli(amount, f"{path}.{name[:MAX_TEXT]}")
        for name, amount in amounts.items()
    }


def _pod_level(
    spec: Json, path: str, containers: list[Container]
) -> tuple[dict[str, int] | None, dict[str, int] | None]:
    """Pod-level requests and limits. Requests default to what containers request together, then to the limits.

    None: the spec has no `resources`. Empty: it has no amounts, which older kubelets treat differently.
    """
    resources = spec.get("resources")
    if resources is None:
        return None, None
    resources = object_at(resources, path)
    limits = _amounts(resources.get("limits"), f"{path}.limits")
    requests = _amounts(resources.get("requests"), f"{path}.requests")
    for name, limit in limits.items():
        if name not in requests:
            together = _together(containers, name)
            requests[name] = limit if together is None else together
    return requests, limits


def _together(containers: list[Container], name: str) -> int | None:
    """Peak request of the containers for one resource. None if none of them names it."""
    if not any(name in c.requests_milli for c in containers):
        return None
    init, sidecar = ContainerKind.INIT, ContainerKind.SIDECAR
    return peak((c.kind is init, c.kind is sidecar, c.requests_milli.get(name, 0)) for c in containers)


def allocated_from_json(status: Json, path: str) -> dict[str, dict[str, int]]:
    """`allocatedResources` by container name. An entry without them counts as empty."""
    result = {}
    for key in ("initContainerStatuses", "containerStatuses"):
        for i, item in enumerate(list_at(status.get(key), f"{path}.{key}", MAX_CONTAINERS)):
            entry = object_at(item, f"{path}.{key}[{i}]")
            name = text_at(entry.get("name", ""), f"{path}.{key}[{i}].name")
            result[name] = _amounts(entry.get("allocatedResources"), f"{path}.{key}[{i}].allocatedResources")
    return result


def _claims(value: object, status: Json, namespace: str, path: str) -> dict[str, tuple[str, str] | None]:
    """What `_Known.claims` is. A claim that does not exist yet is named after its template and its name in the pod."""
    made = {}
    where = f"{path}.status.resourceClaimStatuses"
    for i, item in enumerate(list_at(status.get("resourceClaimStatuses"), where, MAX_CLAIMS)):
        entry = object_at(item, f"{where}[{i}]")
        made[text_at(entry.get("name"), f"{where}[{i}].name")] = entry.get("resourceClaimName")
    result: dict[str, tuple[str, str] | None] = {}
    where = f"{path}.spec.resourceClaims"
    for i, item in enumerate(list_at(value, where, MAX_CLAIMS)):
        entry = object_at(item, f"{where}[{i}]")
        name = text_at(entry.get("name"), f"{where}[{i}].name")
        claim = text_at(entry.get("resourceClaimName") or made.get(name) or "", f"{where}[{i}].resourceClaimName")
        template = text_at(entry.get("resourceClaimTemplateName") or "", f"{where}[{i}].resourceClaimTemplateName")
        key = claim or (f"{template}/{name}" if template else "")
        known = f"{namespace}/{key}" if key else "", f"{namespace}/{template}" if template else ""
        result[name] = known if claim or name not in made else None
    return result


def _used(value: object, path: str, claims: Mapping[str, tuple[str, str] | None]) -> tuple[str, ...]:
    """The claims that a container uses, each once, by however many names of the pod."""
    names = (
        text_at(object_at(item, f"{path}[{i}]").get("name"), f"{path}[{i}].name")
        for i, item in enumerate(list_at(value, path, MAX_CLAIMS))
    )
    found = (claims.get(name, ("", "")) for name in names)
    return tuple(dict.fromkeys(each[0] for each in found if each))


def _claimed(status: Json, path: str) -> dict[str, frozenset[str]]:
    """Extended resources that a DRA claim provides, by container name."""
    claim = optional_object_at(status.get("extendedResourceClaimStatus"), path)
    result: dict[str, frozenset[str]] = {}
    for i, item in enumerate(list_at(claim.get("requestMappings"), f"{path}.requestMappings", MAX_CONTAINERS)):
        where = f"{path}.requestMappings[{i}]"
        mapping = object_at(item, where)
        container = text_at(mapping.get("containerName"), f"{where}.containerName")
        resource = text_at(mapping.get("resourceName"), f"{where}.resourceName")
        result[container] = result.get(container, frozenset()) | {resource}
    return result


def _qos(value: object, path: str) -> QOSClass | None:
    if value is None or value == "":
        return None
    if isinstance(value, str) and value in tuple(QOSClass):
        return QOSClass(value)
    raise WireError(path, f"{shown(value)} is not a QoS class")
