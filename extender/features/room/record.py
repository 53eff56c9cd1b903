"""What the controller has done and is doing, in a ConfigMap: it survives the process, and people can read it.

Rules of this file
- An eviction is written down before it is carried out. A process that finds a plan of another one carries no further
  eviction of it out.
- `save` fails if the stored record has changed since it was read. The controller then reads it again.
- Bounded: `MAX_HISTORY` ended plans.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import field

from extender.kube.client import Requester, path_of
from extender.kube.errors import ApiError
from extender.wire.replies import ReplyBody, about

CONFIG_MAP: Final = "numa-extender-room"
MAX_HISTORY: Final = 20
_KEY: Final = "record"
_API: Final = "/api/v1"


class PodMove(ReplyBody):
    """One pod that is moved."""

    namespace: Annotated[str, about("Its namespace.")]
    name: Annotated[str, about("Its name.")]
    uid: Annotated[str, about("Its UID.")]
    owner_uid: Annotated[str, about("UID of its controller, which makes the replacement.")]
    source: Annotated[str, about("The node on which it runs.")]
    to: Annotated[str, about("The node on which its replacement is expected.")]
    requests: Annotated[dict[str, str], about("Its requests, as kube-scheduler counts them.")]
    grace_seconds: Annotated[int, about("Its grace period.")]
    labels: Annotated[dict[str, str], about("Its labels that its replacement has as well.")]
    state: Annotated[
        Literal["planned", "evicting", "evicted", "running"],
        about("`evicting`: the eviction may have been carried out. `running`: the replacement runs on `to`."),
    ] = "planned"
    siblings: Annotated[list[str], about("UIDs of the controller's other pods before the eviction.")] = field(
        default_factory=list
    )
    evicted_at: Annotated[float, about("Unix seconds; 0: not evicted.")] = 0.0
    replacement: Annotated[str, about("Name of the replacement; empty: not known yet.")] = ""


class MovePlan(ReplyBody):
    """Pods that are moved one after another."""

    id: Annotated[str, about("Another one for each plan.")]
    purpose: Annotated[Literal["pod", "shape"], about("What needs the room.")]
    subject: Annotated[str, about("NAMESPACE/NAME of the waiting pod, or the name of the shape.")]
    subject_uid: Annotated[str, about("UID of the waiting pod; empty for a shape.")]
    priority: Annotated[int, about("Of the pod or the shape. Pods of a higher priority are not kept from the nodes.")]
    target: Annotated[str, about("The node that aligns the waiting pod afterwards; empty for a shape.")]
    moves: Annotated[list[PodMove], about("In their order.")]
    began_at: Annotated[float, about("Unix seconds.")]
    state: Annotated[
        Literal["running", "done", "dry_run", "abandoned", "stopped"],
        about(
            "`abandoned`: given up, and every evicted pod runs again. `stopped`: something unexpected has happened, "
            "and the controller makes no further plan."
        ),
    ] = "running"
    note: Annotated[str, about("Why it ended so; may be empty.")] = ""
    interrupted: Annotated[bool, about("Whether its process ended; then no further pod is evicted for it.")] = False
    moved_at: Annotated[float, about("When the last replacement ran, Unix seconds; 0: not yet.")] = 0.0
    ended_at: Annotated[float, about("Unix seconds; 0: it has not ended.")] = 0.0
    before: Annotated[
        dict[str, int], about("Aligned copies of each declared shape in the cluster, before the plan.")
    ] = field(default_factory=dict)
    after: Annotated[dict[str, int], about("The same after it; empty: it has not ended, or was not carried out.")] = (
        field(default_factory=dict)
    )

    @property
    def nodes(self) -> list[str]:
        """All nodes that lose or get a pod, without repeats."""
        named = [self.target, *(name for move in self.moves for name in (move.source, move.to))]
        return [name for name in dict.fromkeys(named) if name]


class RoomRecord(ReplyBody):
    """Everything that is kept. `plan`: the one that is carried out. `stopped`: why no plan is made; may be empty."""

    stopped: str = ""
    plan: MovePlan | None = None
    history: list[MovePlan] = field(default_factory=list)
    evicted_at: list[float] = field(default_factory=list)
    """Unix seconds of the evictions of the last hour."""
    version: str = ""
    """Of the ConfigMap; empty: there is none yet."""


@dataclass(frozen=True, slots=True)
class RecordStore:
    """The ConfigMap. Calls block."""

    client: Requester
    namespace: str

    @property
    def _path(self) -> str:
        return path_of(_API, "configmaps", namespace=self.namespace, name=CONFIG_MAP)

    def load(self) -> RoomRecord:
        """The record; an empty one if there is no ConfigMap. Raises KubeError, or msgspec.DecodeError."""
        try:
            found = self.client.request("GET", self._path)
        except ApiError as error:
            if error.status != 404:
                raise
            return RoomRecord()
        record = msgspec.json.decode((found.get("data") or {}).get(_KEY, "{}"), type=RoomRecord)
        record.version = found["metadata"]["resourceVersion"]
        return record

    def save(self, record: RoomRecord) -> None:
        """Store the record. Raises KubeError: also if the stored one has changed since `load`."""
        record.history = record.history[:MAX_HISTORY]
        metadata = {"name": CONFIG_MAP, "namespace": self.namespace, "resourceVersion": record.version}
        document = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {key: value for key, value in metadata.items() if value},
            "data": {_KEY: msgspec.json.encode(record).decode()},
        }
        if record.version:
            saved = self.client.request("PUT", self._path, body=document)
        else:
            saved = self.client.request("POST", path_of(_API, "configmaps", namespace=self.namespace), body=document)
        record.version = saved["metadata"]["resourceVersion"]
