"""Demands for alignment: annotations of pods in manifests, and labels of namespaces."""

from collections.abc import Iterator

from extender.kubelet.resolve import resolve
from extender.lint.catalogue import Finding, found
from extender.lint.documents import Located
from extender.lint.workloads import containers_of, template_of
from extender.replay.counts import NEWEST_RULES
from extender.wire.errors import WireError, shown
from extender.wire.groups import PREFIX, SIZE, group_size
from extender.wire.pods import fault_of, unknown_keys
from extender.wire.workloads import workload_from_json


def lint_demands(workload: Located) -> Iterator[Finding]:
    """Findings about the annotations of a workload and of its pods."""
    template = template_of(workload)
    if template is not None:
        annotations = template.get("metadata", "annotations")
        yield from _values(annotations, "annotation", _containers_of(template))
        yield from _group_size(annotations)
        yield from _unplaced(workload, template)
    if template is not workload:
        for key, place in workload.entries("metadata", "annotations").items():
            if key.startswith(PREFIX):
                yield found("demand-misplaced", place, key=key)


def lint_namespace(namespace: Located) -> Iterator[Finding]:
    """Findings about the labels of a namespace."""
    yield from _values(namespace.get("metadata", "labels"), "label")


def _containers_of(template: Located) -> list[str] | None:
    """The names of the containers; None if one cannot be read."""
    names = [each.text("name") for each in containers_of(template.near("spec"))]
    return names if names and all(names) else None


def _values(texts: Located | None, where: str, containers: list[str] | None = None) -> Iterator[Finding]:
    if texts is None:
        return
    for key, place in texts.entries().items():
        if fault := fault_of(key, place.value, containers):
            yield found("demand-value", place, where=where, key=key, fault=fault)
    for key in unknown_keys(texts.value):
        yield found("demand-key", texts.near(key), where=where, key=key)


def _group_size(annotations: Located | None) -> Iterator[Finding]:
    place = None if annotations is None else annotations.entries().get(SIZE)
    if place is not None and not group_size(place.value):
        yield found("group-size", place, key=SIZE, value=shown(place.value))


def _unplaced(workload: Located, template: Located) -> Iterator[Finding]:
    """Pods that demand alignment but request nothing that a kubelet places."""
    try:
        pod = workload_from_json(workload.value).pod
    except WireError:
        return
    request = resolve(pod, NEWEST_RULES)
    if not pod.demand.is_required or pod.demand.fault or request.pod_level is not None:
        return
    if not any(container.cpus or container.devices for container in request.containers):
        yield found("demand-unplaced", template.near("metadata", "annotations"))
