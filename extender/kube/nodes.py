"""The watch of nodes, with the fields that scheduling reads. Heartbeats (condition times, image lists) are no change.

RBAC: `list`, `watch` on nodes.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from extender.kube.objects import items, mapping, strings, text
from extender.kube.source import Source
from extender.questions.node_context import Taint
from extender.wire.parsing import unix_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObject:
    """One node. A node recreated under its old name has another `uid`.

    `allocatable`: quantities as in the API. `kubelet_version`: empty until the kubelet has registered. `created_at`:
    Unix seconds, None if unset.
    """

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    kubelet_version: str
    created_at: int | None = None


def decode_node(value: Mapping[str, Any]) -> tuple[str, NodeObject] | None:
    """The node's name and record. None without a name."""
    metadata, spec, status = mapping(value, "metadata"), mapping(value, "spec"), mapping(value, "status")
    name = sys.intern(text(metadata, "name"))
    if not name:
        return None
    info = mapping(status, "nodeInfo")
    return name, NodeObject(
        name=name,
        uid=text(metadata, "uid"),
        labels=strings(metadata, "labels"),
        allocatable=strings(status, "allocatable"),
        taints=tuple(
            Taint(key=text(t, "key"), value=text(t, "value"), effect=text(t, "effect")) for t in items(spec, "taints")
        ),
        unschedulable=spec.get("unschedulable") is True,
        kubelet_version=sys.intern(text(info, "kubeletVersion")),
        created_at=unix_seconds(metadata.get("creationTimestamp")),
    )


NODES: Final = Source(path="/api/v1/nodes", decode=decode_node, key=attrgetter("name"))
"""All nodes."""
