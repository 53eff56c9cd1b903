"""How many pods of each declared shape could start now: counted again and again, beside the event loop.

Rules of this file
- A count is the question `capacity` about all nodes, answered in a worker process. What counts is copies that are
  aligned, one after another, as kube-scheduler and the kubelets would admit them.
- One shape at a time, the one with the oldest count first, every `COUNT_SECONDS` at most. Counting takes at most
  1 / (1 + `PAUSE_SHARE`) of the time: after each count there is a pause.
- If a count fails, the last one stays with its age, and the reason is shown.
- Every process counts for itself, leader or not.
- Bounded: `MAX_SHAPES` shapes, `MAX_HISTORY` counts of each, `MAX_POOLS` pools.
"""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
import orjson

from extender.api.nodes.map import POOL_LABELS
from extender.api.service import Service
from extender.questions.asked import Asked, QuestionError, QuestionKind, Questions
from extender.questions.shapes import DeclaredShape, DeclaredShapes
from extender.wire.errors import WireError
from extender.wire.pod_replies import CapacityReply

COUNT_SECONDS: Final = 15.0
STEP_SECONDS: Final = 1.0
PAUSE_SHARE: Final = 19.0
HISTORY_SECONDS: Final = 300.0
"""One count of so many seconds is kept in the history."""
MAX_HISTORY: Final = 288
MAX_POOLS: Final = 50
MAX_COPIES: Final = 1000
"""Copies that are counted on one node."""
NO_POOL: Final = "none"
OTHER_POOLS: Final = "other"
CALLER: Final = "numa-extender/shapes"
_REPLY: Final = msgspec.json.Decoder(CapacityReply)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeCount:
    """One count. `at`: seconds of the service's clock. `nodes`: aligned copies by node; nodes without any are left out.

    `fits`: all of them. `most`: the most on one node. `pools`: by pool, of all nodes that the shape may run on;
    `NO_POOL`: of nodes without a pool's label.
    """

    at: float
    nodes: Mapping[str, int]
    pools: Mapping[str, int]
    fits: int
    most: int


@dataclass(slots=True)
class CountedShape:
    """A shape, with its last count and why the count after it failed. `history`: time and number, the oldest first.

    `touched`: nodes on which room was reserved since the count began.
    """

    shape: DeclaredShape
    count: ShapeCount | None = None
    problem: str = ""
    tried_at: float = float("-inf")
    history: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=MAX_HISTORY))
    touched: set[str] = field(default_factory=set)

    @property
    def missing(self) -> int | None:
        """How many pods too few could start; None: not counted yet."""
        return None if self.count is None else max(0, self.shape.copies - self.count.fits)


class ShapeCounts:
    """All shapes with their counts, by name. `unread`: why the other entries of the ConfigMap cannot be read."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self.questions: Questions | None = None
        self.shapes: dict[str, CountedShape] = {}
        self.unread: Mapping[str, str] = {}
        self._next_at = float("-inf")

    def declare(self, declared: DeclaredShapes) -> None:
        """These are the shapes from now on. One that has not changed keeps its counts."""
        before, self.unread = self.shapes, declared.unread
        self.shapes = {
            name: known if (known := before.get(name)) is not None and known.shape == shape else CountedShape(shape)
            for name, shape in declared.shapes.items()
        }

    def reserved(self, node_name: str) -> None:
        """Room on the node is reserved for a pod."""
        for counted in self.shapes.values():
            counted.touched.add(node_name)

    async def step(self) -> DeclaredShape | None:
        """Count one shape, if it is time for one; returns it."""
        now = self._service.clock()
        counted = min(self.shapes.values(), key=lambda each: each.tried_at, default=None)
        if counted is None or self.questions is None or now < self._next_at or now < counted.tried_at + COUNT_SECONDS:
            return None
        counted.tried_at = now
        touched, counted.touched = counted.touched, set()
        try:
            counted.count = await self._count(counted.shape, self.questions, now)
        except (QuestionError, WireError, msgspec.DecodeError) as error:
            counted.problem = str(error)
            counted.touched |= touched
        else:
            counted.problem = ""
            if not counted.history or now >= counted.history[-1][0] + HISTORY_SECONDS:
                counted.history.append((now, counted.count.fits))
        finally:
            ended = self._service.clock()
            self._next_at = ended + PAUSE_SHARE * (ended - now)
        return counted.shape

    async def _count(self, shape: DeclaredShape, questions: Questions, now: float) -> ShapeCount:
        """Raises QuestionError, or WireError."""
        body = orjson.dumps({"pods": [shape.document], "max_copies": MAX_COPIES})
        asked = Asked(kind=QuestionKind.CAPACITY, body=body, media_type="application/json")
        pieces = [piece async for piece in questions.ask(asked, CALLER)]
        return await self._service.offload(self._read, shape, b"".join(pieces), now)

    def _read(self, shape: DeclaredShape, reply: bytes, now: float) -> ShapeCount:
        nodes, pools = dict[str, int](), Counter[str]()
        for each in _REPLY.decode(reply).nodes:
            labels = self._service.surroundings(each.node).labels or {}
            if each.aligned:
                nodes[each.node] = each.aligned
            elif not shape.node_selector.items() <= labels.items():
                continue
            pool = next((labels[key] for key in POOL_LABELS if labels.get(key)), NO_POOL)
            pools[pool if pool in pools or len(pools) < MAX_POOLS else OTHER_POOLS] += each.aligned
        return ShapeCount(
            at=now, nodes=nodes, pools=pools, fits=sum(nodes.values()), most=max(nodes.values(), default=0)
        )
