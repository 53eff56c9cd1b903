"""Describes the changes between two reports in a few words, for the log."""

from collections.abc import Iterator, Mapping
from dataclasses import fields

from node_exporter.report import NodeReport

NEVER_COMPARED = frozenset({"sequence", "observed_at", "schema_version", "state", "zones"})
MAX_ITEMS = 6


def describe_changes(before: NodeReport | None, after: NodeReport) -> str:
    """Name containers that gained or lost CPUs or memory, and the parts of the report that differ.

    For example "cpu +pod-002/c0:12,60, cpu -pod-001/c0:1-4, pods". For the first report it is "first".
    """
    if before is None:
        return "first"
    found = [*_container_changes(before, after)]
    parts = [item.name for item in fields(NodeReport) if item.name not in NEVER_COMPARED]
    found += [name for name in parts if getattr(before, name) != getattr(after, name)]
    if not found and before.state != after.state:
        found = ["state"]
    more = f" and {len(found) - MAX_ITEMS} more" if len(found) > MAX_ITEMS else ""
    return ", ".join(found[:MAX_ITEMS]) + more if found else "nothing"


def _container_changes(before: NodeReport, after: NodeReport) -> Iterator[str]:
    for kind, name in (("cpu", "cpu_manager_state"), ("memory", "memory_manager_state")):
        old, new = _entries(getattr(before.state, name)), _entries(getattr(after.state, name))
        for key in sorted(new.keys() - old.keys()):
            yield f"{kind} +{key}{':' + str(new[key]) if kind == 'cpu' else ''}"
        for key in sorted(old.keys() - new.keys()):
            yield f"{kind} -{key}{':' + str(old[key]) if kind == 'cpu' else ''}"
        for key in sorted(key for key in new.keys() & old.keys() if new[key] != old[key]):
            yield f"{kind} ~{key}"


def _entries(document: object) -> dict[str, object]:
    """Assignments by "pod/container"; empty if the document is missing or of an unexpected shape."""
    entries = document.get("entries") if isinstance(document, Mapping) else None
    if not isinstance(entries, Mapping):
        return {}
    return {
        f"{uid}/{container}": value
        for uid, containers in entries.items()
        if isinstance(containers, Mapping)
        for container, value in containers.items()
    }
