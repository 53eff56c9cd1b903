"""Finds plans with the questions `make-room` and `defragment`, and counts shapes with `capacity`.

It makes no plans of its own: the answers say which pods may be evicted, in which order and to which nodes.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import orjson

from extender.kube.objects import Json
from extender.questions.asked import Asked, QuestionKind, Questions
from extender.questions.shapes import DeclaredShape
from extender.wire.advice_replies import DefragmentReply, EvictedPod, MakeRoomReply
from extender.wire.pod_replies import CapacityReply

MAX_EVICTIONS: Final = 4
"""Of one plan."""
MAX_COPIES: Final = 1000
CALLER: Final = "numa-extender/room"
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class FoundPlan:
    """`target` "": it is for a shape. No evictions: there is no plan, and `why` says why."""

    evictions: Sequence[EvictedPod] = ()
    target: str = ""
    why: str = ""


class RoomPlanner:
    """Asks. All methods may raise QuestionError, or WireError."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    async def for_pod(self, pod: Json, namespaces: Collection[str], most: int) -> FoundPlan:
        """The cheapest evictions with which a node aligns the waiting pod."""
        question = {"pod": pod, "namespaces": sorted(namespaces), "max_evictions": min(most, MAX_EVICTIONS)}
        reply = await self._ask(QuestionKind.MAKE_ROOM, question, MakeRoomReply)
        if reply.result != "room":
            return FoundPlan(why="a node aligns it now" if reply.result == "fits" else "; ".join(reply.blocked[:3]))
        return FoundPlan(reply.plans[0].evictions, reply.plans[0].node)

    async def for_shape(self, shape: DeclaredShape, namespaces: Collection[str], most: int) -> FoundPlan:
        """The fewest moves after which as many copies fit as are declared, or as many as moves can gain."""
        question = {
            "pod": shape.document,
            "namespaces": sorted(namespaces),
            "max_moves": min(most, MAX_EVICTIONS),
            "priority": shape.priority,
        }
        reply = await self._ask(QuestionKind.DEFRAGMENT, question, DefragmentReply)
        evictions: list[EvictedPod] = []
        if reply.curve[0].copies >= shape.copies:
            return FoundPlan(why="enough copies fit")
        for point in reply.curve[1:]:
            evictions += point.evictions
            if point.copies >= shape.copies:
                break
        return FoundPlan(evictions, why="" if evictions else "no move gains a copy")

    async def copies(
        self, shapes: Sequence[DeclaredShape], nodes: Sequence[str], changed: Sequence[Json] = ()
    ) -> tuple[dict[str, int], dict[str, int]]:
        """The aligned copies of each shape on these nodes now, and after a plan. *changed*: see `changed_nodes`."""
        replaced = {each["copy_of"] for each in changed}
        now, then = Counter[str](), Counter[str]()
        for shape in shapes:
            question = {"pods": [shape.document], "nodes": nodes, "hypothetical": changed, "max_copies": MAX_COPIES}
            reply = await self._ask(QuestionKind.CAPACITY, question, CapacityReply)
            now[shape.name] = sum(each.aligned for each in reply.nodes if not each.hypothetical)
            then[shape.name] = sum(each.aligned for each in reply.nodes if each.node not in replaced)
        return now, then

    async def _ask(self, kind: QuestionKind, question: object, reply: type[R]) -> R:
        asked = Asked(kind=kind, body=orjson.dumps(question), media_type="application/json")
        body = b"".join([piece async for piece in self._questions.ask(asked, CALLER)])
        return msgspec.json.decode(body, type=reply)


def changed_nodes(
    nodes: Sequence[str], moves: Sequence[tuple[EvictedPod, Json]], target: str, pod: Json | None
) -> list[Json]:
    """The nodes of a plan as they are after it, for a question. *moves*: with the manifest of each evicted pod.

    *pod*: the waiting pod, which is on *target* then.
    """
    found: list[Json] = []
    for name in nodes:
        gone = [each.pod for each, _ in moves if each.node == name]
        come = [bare(manifest) for each, manifest in moves if each.to == name]
        come += [bare(pod)] if pod is not None and name == target else []
        found.append({"copy_of": name, "name": f"{name} afterwards", "remove_pods": gone, "add_pods": come})
    return found


def bare(pod: Json) -> dict[str, Any]:
    """The pod as its controller would make it again: without a node and a status."""
    metadata = {
        key: value for key, value in pod["metadata"].items() if key in ("name", "namespace", "labels", "annotations")
    }
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
