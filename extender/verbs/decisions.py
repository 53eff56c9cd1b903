"""Why the last scheduling calls answered as they did: a bounded memory of what was judged.

Laws of this file
- Noting a call costs a few references and no work: the candidates, and the judgements that the answer was made of.
  Everything that people read is rendered when they ask.
- Bounded by calls and by candidates held over all calls; the oldest calls go first.
- Judgements are by class id, classes are immutable and hold the state of that moment: the past is replayed as it was.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from extender.cluster.classes import NodeClass
from extender.replay.pod import Pod
from extender.verbs.candidates import Candidates
from extender.verbs.judge import Judgement
from extender.verbs.memo import Judgements
from extender.verbs.prioritize import MAX_SCORE, prioritize_nodes

MAX_CALLS: Final = 5000
MAX_NAMES: Final = 400_000
"""Candidates held over all calls: 80 calls about 5,000 nodes each; about 40 MB if no two calls share a name."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `candidates` None: the pod asks for nothing that any node aligns, and all of `names` passed."""

    verb: str
    pod: Pod
    names: Sequence[str]
    at: float
    candidates: Candidates | None
    judgements: Judgements

    def by_judgement(self) -> Iterator[tuple[Judgement, list[str]]]:
        """The names of each class, with the judgement of the class."""
        if self.candidates is None:
            return
        groups: dict[NodeClass, list[str]] = {}
        for name, node_class in zip(self.candidates.names, self.candidates.classes, strict=True):
            groups.setdefault(node_class, []).append(name)
        for node_class, names in groups.items():
            yield self.judgements[node_class.id], names

    def scores(self) -> list[tuple[str, int]]:
        """Name and score of each candidate, in the order asked, as prioritize gave them."""
        if self.candidates is None:
            return [(name, MAX_SCORE) for name in self.names]
        return list(zip(self.names, prioritize_nodes(self.candidates, self.judgements), strict=True))

    def class_of(self, name: str) -> NodeClass | None:
        """The class that a candidate was of; None if it was none, or nothing was judged."""
        if self.candidates is None:
            return None
        return dict(zip(self.candidates.names, self.candidates.classes, strict=True)).get(name)


class DecisionLog:
    """The calls of the last pods."""

    def __init__(self, max_calls: int = MAX_CALLS, max_names: int = MAX_NAMES) -> None:
        self._max_calls: Final = max_calls
        self._max_names: Final = max_names
        self._by_pod: OrderedDict[str, dict[str, Call]] = OrderedDict()
        self._order: deque[Call] = deque()
        self._names = 0
        self.forgotten = 0
        """Calls that were too many to remember."""

    def __len__(self) -> int:
        """Calls remembered, those that a later one of the same pod replaced included."""
        return len(self._order)

    def note(
        self, verb: str, pod: Pod, names: Sequence[str], judged: tuple[Candidates, Judgements] | None, at: float
    ) -> None:
        """Remember one call, in place of the last one of the same verb about the same pod."""
        candidates, judgements = judged if judged is not None else (None, {})
        call = Call(verb, pod, names, at, candidates, judgements)
        calls = self._by_pod.setdefault(pod.uid, {})
        calls[verb] = call
        self._by_pod.move_to_end(pod.uid)
        self._order.append(call)
        self._names += len(names)
        while len(self._order) > 1 and (len(self._order) > self._max_calls or self._names > self._max_names):
            self._forget(self._order.popleft())

    def _forget(self, call: Call) -> None:
        self._names -= len(call.names)
        self.forgotten += 1
        calls = self._by_pod.get(call.pod.uid)
        if calls is not None and calls.get(call.verb) is call:
            del calls[call.verb]
            if not calls:
                del self._by_pod[call.pod.uid]

    def of_pod(self, uid: str) -> list[Call]:
        """The last call of each verb about a pod, the newest first; empty if none is remembered."""
        return sorted(self._by_pod.get(uid, {}).values(), key=lambda call: -call.at)

    def newest(self, limit: int, text: str = "") -> list[list[Call]]:
        """The calls of the pods asked about last, those first; *text* is part of UID or NAMESPACE/NAME."""
        found: list[list[Call]] = []
        for uid in reversed(self._by_pod):
            calls = self.of_pod(uid)
            pod = calls[0].pod
            if text in uid or text in f"{pod.namespace}/{pod.name}":
                found.append(calls)
            if len(found) >= limit:
                break
        return found


def certainties(call: Call) -> Counter[str]:
    """Candidates by how sure the answer was."""
    counted: Counter[str] = Counter()
    for judgement, names in call.by_judgement():
        counted[judgement.certainty.value] += len(names)
    return counted
