"""What the controller needs of a program that adds nodes. Each such program has an implementation."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from extender.features.autoscaling.documents import Record
from extender.features.autoscaling.pools import Model, NodePool, Room
from extender.kube.client import JSON
from extender.kube.objects import Json, ObjectName


class Guard(NamedTuple):
    """The annotation of a pod for which the autoscaler does not drain its node."""

    annotation: str
    value: str


class Wish(NamedTuple):
    """Pods of one owner and one shape. `rooms`: of the pools of one autoscaler. `manifest`: the first pod.

    `opened`: the requests that have not ended, of all pods.
    """

    rooms: Mapping[NodePool, Room]
    models: Mapping[NodePool, Sequence[Model]]
    manifest: Json
    opened: Sequence[Record]


class Autoscaler(Protocol):
    """One such program, for one step of the controller. The methods block, and raise KubeError."""

    guard: Guard

    def limited(self, wish: Wish) -> Mapping[NodePool, Room] | None:
        """The rooms within the limits of the pools; None: pools are growing, so that one should look again later."""

    def together(self, pools: Sequence[NodePool]) -> Sequence[NodePool]:
        """Those of these pools that one request may name; the first is among them."""

    def asking(self, record: Record, manifest: Json) -> Sequence[JSON]:
        """The objects that ask for the nodes, beside the PodTemplate. *manifest*: one of the pods."""

    def ask(self, record: Record, pods: Mapping[ObjectName, Json]) -> None:
        """Create what is missing of a request. *pods*: those that wait."""

    def withdraw(self, record: Record, pods: Mapping[ObjectName, Json]) -> None:
        """Delete what still asks for nodes, and end all marks on pods and nodes."""

    def outcomes(self, records: Sequence[Record]) -> Mapping[tuple[str, str], str]:
        """What the autoscaler says of these requests, by namespace and name, in a word."""
