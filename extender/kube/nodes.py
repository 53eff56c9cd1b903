"""The watch of nodes, with the fields that scheduling reads. Heartbeats (condition times, image lists) are no change.

RBAC: `list`, `watch` on nodes.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from extender.kube.client import KubeClient
from extender.kube.fields import items, mapping, strings, text
from extender.kube.watch import Deliver, Source, Watch, WatchSettings
from extender.questions.node_context import Taint
from extender.wire.times import unix_seconds

SOURCE: Final = Source(path="/api/v1/nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObject:
    """One node. A node recreated under its old name has another `uid`.

    `allocatable`: quantities as in the API. `ready`: the Ready condition is True. `boot_id` and `kubelet_version` are
    empty until the kubelet has registered. `deleted_at`: Unix seconds, None if it is not being deleted.
    """

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    ready: bool
    boot_id: str
    kubelet_version: str
    deleted_at: int | None
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
        ready=any(text(c, "type") == "Ready" and text(c, "status") == "True" for c in items(status, "conditions")),
        boot_id=text(info, "bootID"),
        kubelet_version=sys.intern(text(info, "kubeletVersion")),
        deleted_at=unix_seconds(metadata.get("deletionTimestamp")),
        created_at=unix_seconds(metadata.get("creationTimestamp")),
    )


def watch_nodes(
    client: KubeClient, deliver: Deliver[NodeObject], settings: WatchSettings | None = None
) -> Watch[NodeObject]:
    """The watch of all nodes, not yet started."""
    return Watch(client, SOURCE, decode=decode_node, deliver=deliver, settings=settings)
