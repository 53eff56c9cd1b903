"""The last scheduling calls, with what decided their results; bounded.

Rules of this file
- To record a call costs little: the classes and the different judgements of the answer are kept, and the names as one
  string (5,000 separate strings slow later calls). What people read is rendered on request.
- Bounded by the number of calls and of candidates in all calls. A pod counts as one candidate for each `NAME_BYTES` of
  its size. When the log is full, the namespace with the most calls loses its oldest one, so it cannot displace those of
  others.
- Calls keep classes alive that no node has any longer, and nodes decide how large these are. Beyond `MAX_RETIRED_BYTES`
  the oldest calls lose kubelets and states: their judgements stay, and can no longer be replayed.
- Classes are immutable and hold the state of that moment, so an explanation replays the past as it was.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Final

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from extender.bounded import Shares
from extender.cluster.class_index import Classes
from extender.cluster.node_class import NodeClass, RetiredClasses
from extender.replay.pod import Pod
from extender.scheduling.judgement import Judgement
from extender.scheduling.pod_shape import NodeAnswers
from extender.scheduling.scoring import MAX_SCORE, score_nodes
from extender.wire.scheduler import SchedulerArgs

VERBS: Final = ("filter", "prioritize")
"""The verbs whose calls are recorded."""
MAX_CALLS: Final = 5000
MAX_NAMES: Final = 400_000
"""Candidates held over all calls: 80 calls about 5,000 nodes each, with names of 30 characters about 16 MB."""

NAME_BYTES: Final = 40
MAX_RETIRED_BYTES: Final = 16 << 20
"""Kubelets and states of nodes in the past. One of a node with 24 pods counts as 36 kB."""
STRIPPED_AT_ONCE: Final = 20_000
"""How many candidates are stripped at once. That takes some milliseconds."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call about `count` nodes.

    `packed_names`: the candidates, in the order of the request, as JSON. `classes`: their classes, in the same order;
    None: the pod requests nothing that any node aligns, and all of them passed. `counts`: the different judgements of
    their classes, as in `NodeAnswers`; `codes`: each candidate's. `instead`: judgements by name of candidates that did
    not get that of their class. `is_refused`: filter refused every candidate. `given`: the scores, one byte each, where
    they do not follow from the judgements; empty if they do. `place`: the node of the pod's place in its group, the
    only one that was offered; "": all nodes that passed were. `is_bare`: the classes of the call have lost kubelets and
    states.
    """

    verb: str
    pod: Pod
    packed_names: bytes
    count: int
    at: float
    classes: Classes | None = field(default=None, repr=False, compare=False)
    counts: Sequence[tuple[int, Judgement, int]] = ()
    codes: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32), repr=False, compare=False)
    instead: Mapping[str, Judgement] = field(default_factory=dict)
    is_refused: bool = False
    given: bytes = b""
    place: str = ""
    is_bare: bool = False

    @property
    def names(self) -> list[str]:
        """The candidates."""
        names: list[str] = orjson.loads(self.packed_names)
        return names

    @property
    def judgements(self) -> list[Judgement]:
        """The judgement of the class of each candidate, in the order of `names`; empty if `classes` is None."""
        different = {code: judgement for code, judgement, _ in self.counts}
        return list(map(different.__getitem__, self.codes.tolist()))

    def by_judgement(self) -> dict[Judgement, list[str]]:
        """The names that got each judgement; empty if `classes` is None."""
        groups: dict[Judgement, list[str]] = {}
        for name, judgement in zip(self.names, self.judgements, strict=self.classes is not None):
            groups.setdefault(self.instead.get(name, judgement), []).append(name)
        return groups

    def judgement_of(self, name: str) -> Judgement | None:
        """The judgement of a candidate; None if *name* was no candidate, or nothing was judged."""
        return next((judgement for judgement, names in self.by_judgement().items() if name in names), None)

    def scores(self) -> list[tuple[str, int]]:
        """Name and score of each candidate, in the order of `names`, as prioritize returned them."""
        if self.classes is None:
            return [(name, MAX_SCORE) for name in self.names]
        return list(zip(self.names, self.given or score_nodes(self.judgements), strict=True))

    def class_of(self, name: str) -> NodeClass | None:
        """The class of a candidate; None if *name* was no candidate, or nothing was judged."""
        return None if self.classes is None else dict(zip(self.names, self.classes, strict=True)).get(name)


def call_about(
    verb: str,
    args: SchedulerArgs,
    answers: NodeAnswers | None,
    at: float,
    instead: Mapping[str, Judgement] = MappingProxyType({}),
    *,
    is_refused: bool = False,
    place: str = "",
) -> Call:
    """The record of a call; see `Call`. *answers*: None if no kubelet aligns the pod."""
    packed = msgspec.json.encode(args.names)  # an orjson result keeps 4 KB, however short it is
    call = partial(
        Call, verb, args.pod, packed, len(args.names), at, instead=instead, is_refused=is_refused, place=place
    )
    if answers is None:
        return call()
    return call(classes=answers.classes, counts=answers.counts, codes=answers.codes.astype(np.uint32))


def _weight(call: Call) -> int:
    """The weight of a call in the log: the number of its candidates."""
    return call.count + call.pod.weight_bytes // NAME_BYTES


class DecisionLog:
    """The calls of the last pods."""

    def __init__(
        self, max_calls: int = MAX_CALLS, max_names: int = MAX_NAMES, retired: RetiredClasses | None = None
    ) -> None:
        self._retired: Final = RetiredClasses() if retired is None else retired
        self._max_calls: Final = max_calls
        self._max_names: Final = max_names
        self._calls: dict[tuple[str, str], Call] = {}
        """The last call of each verb for each pod, by its UID and the verb; the oldest first."""
        self._shares: Final = Shares()
        """Candidates by namespace of the pod."""
        self.forgotten = 0
        """Calls that were dropped, beside those that a later call for the same pod replaced."""

    def __len__(self) -> int:
        """Calls kept."""
        return len(self._calls)

    def note(self, call: Call) -> None:
        """Record a call, in place of the last one of the same verb for the same pod."""
        key, calls = (call.pod.uid, call.verb), self._calls
        if key in calls:
            self._drop(key)
        calls[key] = call
        self._shares.change(call.pod.namespace, _weight(call))
        while len(calls) > 1 and (len(calls) > self._max_calls or self._shares.held_bytes > self._max_names):
            owner = self._shares.largest
            self._drop(next(key for key, each in calls.items() if each.pod.namespace == owner))
            self.forgotten += 1
        if self._retired.added_bytes > MAX_RETIRED_BYTES // 16 and self._retired.held_bytes() > MAX_RETIRED_BYTES:
            self._strip()

    def _strip(self) -> None:
        """Take kubelets and states out of some of the oldest calls that have them: see the file's rules."""
        bare: dict[int, NodeClass] = {}
        left = STRIPPED_AT_ONCE
        for key, call in self._calls.items():
            if left > 0 and not call.is_bare and call.classes is not None:
                left -= 1 + call.count
                classes = [bare.setdefault(each.id, NodeClass(id=each.id)) for each in call.classes]
                self._calls[key] = replace(call, classes=np.array(classes, np.object_), is_bare=True)

    def _drop(self, key: tuple[str, str]) -> None:
        call = self._calls.pop(key)
        self._shares.change(call.pod.namespace, -_weight(call))

    def of_pod(self, uid: str) -> list[Call]:
        """The last call of each verb for a pod, the newest first; empty if there is none."""
        calls = (self._calls[key] for verb in VERBS if (key := (uid, verb)) in self._calls)
        return sorted(calls, key=lambda call: -call.at)

    def newest(self, limit: int, text: str = "") -> list[list[Call]]:
        """The calls for the last *limit* pods, the newest first. *text*: part of UID or NAMESPACE/NAME."""
        found: list[list[Call]] = []
        for uid in dict.fromkeys(uid for uid, _ in reversed(self._calls)):
            calls = self.of_pod(uid)
            pod = calls[0].pod
            if text in uid or text in f"{pod.namespace}/{pod.name}":
                found.append(calls)
            if len(found) >= limit:
                break
        return found

    def filtered(self, limit: int, since: float) -> Iterator[Call]:
        """The last filter calls of the last *limit* pods, the newest pod first, without calls before *since*."""
        calls = (call for each in self.newest(limit) for call in each if call.verb == "filter")
        return (call for call in calls if call.at >= since)


def certainties(call: Call) -> Counter[str]:
    """The number of candidates by certainty."""
    counted: Counter[str] = Counter()
    for judgement, names in call.by_judgement().items():
        counted[judgement.certainty.value] += len(names)
    return counted
