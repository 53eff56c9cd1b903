"""The audit: compares what was predicted of each pod with what its kubelet then did.

Rules of this file
- Bounded: counters with closed sets of labels, the last results of each node, and the last disagreements of all nodes.
- If several outcomes were predicted for a pod, the prediction agrees if one of them happened.
- Placements are compared only if all possible outcomes were predicted. Otherwise the kubelet may have done one of the
  others, and the result is `unsettled`.
- A wrong prediction counts, but not against the node, if the node had not reported yet, or if this service did not
  offer it for the pod: then the pod's author chose what the kubelet gets.
- Refusals that do not come from the managers (predicates, eviction, shutdown) do not show whether the replay is right.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from extender.bounded import BoundedMap
from extender.cluster.events import AdmissionResult, SettledPod
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import ContainerKind
from extender.kubelet.state import Device
from extender.kubelet.verdict import MANAGERS_REASONS, Admitted, Certainty
from extender.replay.creation import lasting_grants
from extender.scheduling.records.demand_results import DemandResults
from extender.scheduling.records.kubelet_rules import Behaviour, KubeletBehaviours, RuleSetting
from extender.scheduling.records.prediction_texts import predicted_words, reported_words

MAX_NODES: Final = 20_000
MAX_RECENT: Final = 200


class Result(StrEnum):
    """The result of a prediction."""

    AGREED = "agreed"
    """The kubelet did as predicted, down to CPUs, memory and kinds of devices."""
    PLACEMENT = "placement"
    """The kubelet admitted the pod as predicted, and placed it elsewhere."""
    FALSE_ADMIT = "false_admit"
    """The kubelet refused a pod that was predicted to be admitted."""
    FALSE_REFUSAL = "false_refusal"
    """The kubelet admitted a pod that was predicted to be refused."""
    OTHER = "other"
    """The kubelet refused the pod for a reason other than those of its managers."""
    UNSETTLED = "unsettled"
    """The outcome was not seen, or the prediction did not name every possible outcome."""


DISAGREEING: Final = frozenset({Result.PLACEMENT, Result.FALSE_ADMIT, Result.FALSE_REFUSAL})
_REASONS: Final = frozenset({*MANAGERS_REASONS, "CreateContainerError"})
_SAYS_NOTHING: Final = frozenset({Result.OTHER, Result.UNSETTLED})


class Kind(NamedTuple):
    """The labels by which predictions are counted."""

    policy: str
    scope: str
    version: str
    certainty: str
    result: Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """One prediction that did not come true. `predicted` and `reported` describe both sides for people.

    `agrees_with`: rules with each of which the prediction would be right; None: not examined.
    """

    at: float
    node_name: str
    namespace: str
    pod_name: str
    uid: str
    kind: Kind
    predicted: str
    reported: str
    agrees_with: tuple[RuleSetting, ...] | None = None


class Audit:
    """The results so far.

    A node is score-only while *distrust_after* or more of its last *window* results disagree. 0: never.
    """

    def __init__(self, *, clock: Callable[[], float], window: int, distrust_after: int) -> None:
        self._clock, self._window, self._distrust_after = clock, window, distrust_after
        self.counts: Counter[Kind] = Counter()
        self.recent: deque[Disagreement] = deque()
        """At most `MAX_RECENT`. Beyond that the oldest one of the namespace with the most is dropped."""
        self.behaviours = KubeletBehaviours()
        self.demands = DemandResults()
        self.allocations: Counter[str] = Counter()
        """How kube-scheduler's allocations of devices came out; see `AllocationsView`."""
        self._nodes: BoundedMap[str, deque[Result]] = BoundedMap(MAX_NODES)

    def take(self, settled: SettledPod) -> Kind:
        """Count the outcome of one pod; returns what it was counted as."""
        kind = _kind_of(settled)
        self.counts[kind] += 1
        if kind.result not in _SAYS_NOTHING and settled.is_ours and not settled.kubelet.borrowed:
            results = self._nodes.pop(settled.node_name, deque(maxlen=self._window))
            results.append(kind.result)
            self._nodes[settled.node_name] = results
        if kind.result in DISAGREEING:
            self.recent.append(_disagreement(settled, kind, self._clock()))
            if len(self.recent) > MAX_RECENT:
                ((most, _),) = Counter(each.namespace for each in self.recent).most_common(1)
                self.recent.remove(next(each for each in self.recent if each.namespace == most))
            if not settled.kubelet.borrowed:
                self.behaviours.add(settled)
        return kind

    def forget(self, node_name: str) -> None:
        """The node was deleted. A later one of the same name is another node."""
        self._nodes.pop(node_name, None)

    def examined(self, settled: SettledPod, agreeing: Sequence[RuleSetting]) -> list[Behaviour]:
        """Record which rules explain a disagreement; returns what is now known of its kubelet for the first time."""
        for i, each in enumerate(self.recent):
            if each.uid == settled.pod.uid and each.node_name == settled.node_name:
                self.recent[i] = replace(each, agrees_with=tuple(agreeing))
        return self.behaviours.record(settled, agreeing)

    def disagreements(self, node_name: str) -> int:
        """How many of the node's last results disagree."""
        return sum(result in DISAGREEING for result in self._nodes.get(node_name, ()))

    def is_score_only(self, node_name: str) -> bool:
        """Whether too many predictions for the node failed."""
        return 0 < self._distrust_after <= self.disagreements(node_name)

    def disagreeing_nodes(self) -> Iterator[tuple[str, int, int]]:
        """(name, disagreements, results) of every node with disagreements, the most first."""
        rows = ((name, self.disagreements(name), len(results)) for name, results in self._nodes.items())
        return iter(sorted((row for row in rows if row[1]), key=lambda row: (-row[1], row[0])))


def agrees(settled: SettledPod) -> bool:
    """Whether the kubelet did as predicted."""
    return _compare(settled) is Result.AGREED


def _kind_of(settled: SettledPod) -> Kind:
    verdicts = settled.verdicts
    certainty = verdicts[0].certainty if verdicts else Certainty.UNKNOWN
    return Kind(*labels_of(settled.kubelet), certainty.value, _compare(settled))


def labels_of(kubelet: Kubelet) -> tuple[str, str, str]:
    """Policy, scope and version, as in `Kind`."""
    return kubelet.policy.value, kubelet.scope.value, f"1.{kubelet.rules.minor}"


def _compare(settled: SettledPod) -> Result:
    """What the kubelet did, compared with the prediction."""
    admitted = [v for v in settled.verdicts if isinstance(v, Admitted)]
    match settled.result:
        case AdmissionResult.REFUSED:
            if settled.reason not in _REASONS:
                return Result.OTHER
            return Result.FALSE_ADMIT if len(admitted) == len(settled.verdicts) else Result.AGREED
        case AdmissionResult.ADMITTED:
            if not admitted:
                return Result.FALSE_REFUSAL
            observed = _comparable(settled, settled.reported)
            predicted = [_comparable(settled, _predicted(settled, v)) for v in admitted]
            if observed in predicted:
                return Result.AGREED
            is_in_doubt = not settled.complete or _of_kubelet(observed) in map(_of_kubelet, predicted)
            return Result.UNSETTLED if is_in_doubt else Result.PLACEMENT
        case _:
            return Result.UNSETTLED


def _of_kubelet(held: Mapping[str, object]) -> dict[str, object]:
    """*held* without grants of the NRI policy: pods come and go between an admission and the creation of containers."""
    return {key: value for key, value in held.items() if not key.startswith("nri/")}


def _comparable(settled: SettledPod, held: Mapping[str, object]) -> dict[str, object]:
    """*held*, without memory if the pod has init containers: they release memory, so the amounts change."""
    shrinks = any(c.kind is not ContainerKind.APP for c in settled.pod.containers)
    return {key: value for key, value in held.items() if not (shrinks and key.startswith("memory/"))}


def _predicted(settled: SettledPod, verdict: Admitted) -> dict[str, object]:
    """A predicted placement, in the form of `holdings`."""
    held: dict[str, object] = {}
    devices: Mapping[str, Mapping[str, Device]] = {} if settled.state is None else settled.state.devices.devices
    for name, placement in verdict.placements.items():
        if placement.cpus:
            held[f"cpu/{name}"] = placement.cpus
        if placement.memory:
            held[f"memory/{name}"] = placement.memory
        for resource, ids in placement.devices.items():
            known = devices.get(resource, {})
            held[f"device/{name}/{resource}"] = sorted(str(known.get(i)) for i in ids)
    return held | {f"nri/{name}": granted for name, granted in lasting_grants(verdict).items()}


def _disagreement(settled: SettledPod, kind: Kind, at: float) -> Disagreement:
    first, state = settled.verdicts[0], settled.state
    predicted = predicted_words(state, first) if isinstance(first, Admitted) else f"refused: {first.message}"
    reported = f"refused: {settled.reason}" if state is None else reported_words(state, settled.pod.uid)
    return Disagreement(
        at=at,
        node_name=settled.node_name,
        namespace=settled.pod.namespace,
        pod_name=settled.pod.name,
        uid=settled.pod.uid,
        kind=kind,
        predicted=predicted[:500],
        reported=reported[:500],
    )
