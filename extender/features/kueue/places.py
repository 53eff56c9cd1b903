"""Finds places for the pods of a Workload, with the question `plan`, and judges what an empty node would take.

Rules of this file
- All pods get a place, or none does. The nodes are those of the flavors, in their present state with pods in flight.
- The places that are held for other Workloads are taken first, each by a pod of its shape on its node. Nodes on which
  another feature may keep room, such as places of groups, get no pod.
- Large pod sets are placed first. If not all fit, the order of the Workload is tried as well.
- A shape is impossible only if every node of its flavor is known and can never take it, and if no profile that could be
  of the flavor takes it on an empty node.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import orjson

from extender.api.service import Service
from extender.cluster.pods import KnownPod
from extender.features.kueue.held import HeldPlaces, WorkloadPlace
from extender.features.kueue.workloads import PodSet
from extender.features.profiles import NodeProfile
from extender.kube.changes import Batch, Gone
from extender.kube.client import JSON
from extender.kube.nodes import NodeObject
from extender.kubelet.verdict import Certainty
from extender.questions.asked import Asked, QuestionKind, Questions
from extender.questions.node_context import NOTHING_KNOWN, empty_node
from extender.scheduling.node_totals import pod_requests
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import NEVER_TEXTS, RefusalReason
from extender.wire.errors import WireError
from extender.wire.pods import pod_from_json

CALLER: Final = "numa-extender/kueue"
NOT_KNOWN: Final = frozenset(
    RefusalReason[name].text
    for name in ("STALE", "UNKNOWN", "AWAITED", "NEWER", "LATE", "NO_TURN", "CHANGING", "CONTRADICTORY", "STARTING")
)
"""Refusals that say nothing of the room on a node."""
_UNSURE: Final = frozenset({Certainty.STALE, Certainty.UNKNOWN, Certainty.POSSIBLE})
MAX_REASONS: Final = 4


class _PlanLine(msgspec.Struct):
    """One line of the reply: a pod, or at the end the summary."""

    entry: int = -1
    node: str | None = None
    certainty: str | None = None
    reasons: dict[str, int] = {}
    summary: dict[str, object] | None = None


_LINE: Final = msgspec.json.Decoder(_PlanLine)


@dataclass(slots=True)
class FoundPlaces:
    """What a plan has found. `places`: one for each pod; empty if one has none. `short`: the first pod set without.

    `why`: how many nodes refuse a pod of it, by reason. `unsure`: places on nodes whose state is not known exactly.
    `unknown`: nodes of which nothing is known. `notes`: what was not checked.
    """

    places: list[WorkloadPlace] = field(default_factory=list)
    short: PodSet | None = None
    why: dict[str, int] = field(default_factory=dict)
    unsure: int = 0
    unknown: int = 0
    notes: Sequence[str] = ()

    @property
    def is_known(self) -> bool:
        """Whether the refusals are about room."""
        return not self.unknown and not NOT_KNOWN & self.why.keys()

    @property
    def reasons(self) -> str:
        """The most frequent reasons, as one text."""
        counted = Counter(self.why) + Counter({"no report of the node": self.unknown})
        return "; ".join(f"{count} {why}" for why, count in counted.most_common(MAX_REASONS))


class Planner:
    """Asks. *profiles*: of nodes that may come. `labels`: of all nodes, by name.

    Its coroutines may raise QuestionError, WireError, UnknownNodeError or msgspec.DecodeError.
    """

    def __init__(self, service: Service, held: HeldPlaces, profiles: Sequence[NodeProfile]) -> None:
        self._service, self._held, self._profiles = service, held, profiles
        self.labels: dict[str, Mapping[str, str]] = {}
        self.questions: Questions | None = None

    def apply_nodes(self, batch: Batch[NodeObject]) -> None:
        """Apply changes from the watch of nodes."""
        for change in batch.changes:
            if isinstance(change, Gone):
                self.labels.pop(change.value.name, None)
            else:
                self.labels[change.value.name] = change.value.labels

    def nodes_of(self, pod_sets: Iterable[PodSet]) -> set[str]:
        """The nodes of the pod sets' flavors."""
        wanted = [dict(each) for each in {tuple(sorted(each.labels.items())) for each in pod_sets}]
        found = ((name, labels.items()) for name, labels in self.labels.items())
        return {name for name, labels in found if any(each.items() <= labels for each in wanted)}

    async def find(self, pod_sets: Sequence[PodSet], uid: str) -> FoundPlaces:
        """Places for all pods. *uid*: of the Workload, whose own held places count as free."""
        shapes = {each.name: PodShape(pod_from_json(each.parts[0][0])) for each in pod_sets}
        nodes = self.nodes_of(pod_sets)
        kept = nodes & self._kept(shapes.values())
        nodes -= kept
        reporting = sorted(name for name in nodes if self._service.known.nodes.observation(name) is not None)
        large_first = sorted(pod_sets, key=lambda each: _size(shapes[each.name]), reverse=True)
        found = FoundPlaces()
        for order in [large_first] if large_first == list(pod_sets) else [large_first, pod_sets]:
            found = await self._plan(order, shapes, reporting, uid)
            if found.places:
                break
        found.unknown = len(nodes) - len(reporting)
        found.why |= {RefusalReason.HELD.text: len(kept)} if kept else {}
        return found

    async def is_impossible(self, pod_set: PodSet) -> bool:
        """Whether no empty node of the pod set's flavor would ever take one of its pods. All nodes have reported."""
        document, names = pod_set.parts[0][0], self.nodes_of([pod_set])
        profiles = [each for each in self._profiles if _may_have(each.labels, pod_set.labels)]
        if not names and not profiles:
            return False
        shape = PodShape(pod_from_json(document))
        for each in profiles:
            if await self._service.offload(self._takes, shape, each):
                return False
        why = Counter[str]()
        for line in await self._asked([(document, 1)], sorted(names)) if names else ():
            if line.node is not None:
                return False
            why.update(line.reasons)
        return why.total() == len(names) and why.keys() <= NEVER_TEXTS

    def _takes(self, shape: PodShape, profile: NodeProfile) -> bool:
        kubelet, state = profile.observed.kubelet, profile.observed.state
        assert kubelet is not None
        assert state is not None  # a profile has both
        empty = empty_node(profile.name, kubelet, state.devices.devices, NOTHING_KNOWN)
        return self._service.judging.judge(shape, empty.node_class).refusal is None

    def _kept(self, shapes: Iterable[PodShape]) -> set[str]:
        """The nodes on which another feature may keep room from such pods."""
        kept = set[str]()
        for each in self._service.scheduling.objectors:
            for shape in shapes if each is not self._held else ():
                # None: the pod has claims, and a note says so
                kept.update(each.kept_nodes(KnownPod(""), shape.pod) or ())
        return kept

    async def _plan(
        self, pod_sets: Sequence[PodSet], shapes: Mapping[str, PodShape], names: Sequence[str], uid: str
    ) -> FoundPlaces:
        found, of_entry = FoundPlaces(), list[PodSet | None]()
        wanted = list[tuple[JSON, int]]()
        for name, place in self._held.places(names, uid):
            wanted.append(({**place.document, "spec": {**place.document["spec"], "nodeName": name}}, 1))
            of_entry.append(None)
        for each in pod_sets:
            wanted += each.parts
            of_entry += [each] * len(each.parts)
        for line in await self._asked(wanted, names):
            if line.summary is not None:
                notes = line.summary.get("notes")
                found.notes = [str(note) for note in notes] if isinstance(notes, list) else ()
            elif (pod_set := of_entry[line.entry]) is None:
                continue
            elif line.node is None:
                if found.short is None:
                    found.short, found.why = pod_set, line.reasons
            else:
                document, _ = wanted[line.entry]
                found.places.append(WorkloadPlace(line.node, pod_set.name, shapes[pod_set.name], document))
                found.unsure += line.certainty in _UNSURE
        if found.short is not None:
            found.places.clear()
        return found

    async def _asked(self, wanted: Sequence[tuple[JSON, int]], names: Sequence[str]) -> list[_PlanLine]:
        """The lines of the reply to `plan`."""
        assert self.questions is not None
        question = {"pods": [{"pod": pod, "copies": copies} for pod, copies in wanted], "nodes": names}
        try:
            written = orjson.dumps(question)
        except orjson.JSONEncodeError as error:  # half of a surrogate pair, or a number of any size
            raise WireError("spec.podSets", str(error)) from None
        asked = Asked(kind=QuestionKind.PLAN, body=written, media_type="application/json", lines=True)
        body = b"".join([piece async for piece in self.questions.ask(asked, CALLER)])
        return _LINE.decode_lines(body)


def _size(shape: PodShape) -> tuple[float, ...]:
    """Pods with much of an extended resource are large, then those with many CPUs."""
    requests = pod_requests(shape.pod, {})
    return sum(amount for name, amount in requests.items() if "/" in name), requests.get("cpu", 0)


def _may_have(profile: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a node of the profile could have the labels of a flavor."""
    return all(profile.get(name, value) == value for name, value in labels.items())
