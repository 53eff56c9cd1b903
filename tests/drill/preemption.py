"""How kube-scheduler chooses whom to evict, and where (`defaultpreemption`, `framework/preemption`).

Only totals count, as in its own dry run: extenders are called afterwards.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Json = dict[str, Any]
Amounts = dict[str, int]
Status = Literal["Unschedulable", "UnschedulableAndUnresolvable"]
Statuses = dict[str, Status]
"""Why each node did not pass; nodes that are not named were not looked at."""
RESOLVABLE: Status = "Unschedulable"
UNRESOLVABLE: Status = "UnschedulableAndUnresolvable"


@dataclass(frozen=True)
class Victim:
    """A pod on a node, as the scheduler knows it."""

    uid: str
    pod: Json


def priority(pod: Json) -> int:
    """`spec.priority`."""
    return int(pod["spec"].get("priority", 0))


def is_being_preempted(victim: Json, preemptor: Json) -> bool:
    """Whether a less important pod terminates because the scheduler has evicted it (podTerminatingByPreemption)."""
    conditions = victim["status"].get("conditions", ())
    is_evicted = any(c["type"] == "DisruptionTarget" and c["reason"] == "PreemptionByScheduler" for c in conditions)
    return is_evicted and "deletionTimestamp" in victim["metadata"] and priority(victim) < priority(preemptor)


def victims(pod: Json, on_node: Iterable[Victim], fits: Callable[[Sequence[str]], bool]) -> list[Victim]:
    """Whom to evict from a node, most important first; nobody if it does not help (SelectVictimsOnNode).

    *fits*: whether the pod fits once these UIDs are gone.
    """
    potential = sorted((v for v in on_node if priority(v.pod) < priority(pod)), key=_importance)
    if not potential or not fits([v.uid for v in potential]):
        return []
    gone = [v.uid for v in potential]
    chosen = []
    for victim in potential:
        gone.remove(victim.uid)
        if not fits(gone):
            gone.append(victim.uid)
            chosen.append(victim)
    return chosen


def choose(candidates: Mapping[str, list[Victim]]) -> tuple[str, list[Victim]]:
    """The node to evict from (pickOneNodeForPreemption, without disruption budgets)."""

    def cost(name: str) -> tuple[int, int, int, float]:
        pods = [v.pod for v in candidates[name]]
        started = min(_started(pod) for pod in pods)
        return priority(pods[0]), sum(priority(pod) + (1 << 31) for pod in pods), len(pods), -started

    name = min(candidates, key=cost)
    return name, candidates[name]


def to_json(proposals: Mapping[str, Iterable[Victim]]) -> Json:
    """`NodeNameToMetaVictims`."""
    return {name: {"Pods": [{"UID": v.uid} for v in each], "NumPDBViolations": 0} for name, each in proposals.items()}


def _importance(victim: Victim) -> tuple[int, float]:
    return -priority(victim.pod), _started(victim.pod)


def _started(pod: Json) -> float:
    """When its kubelet has admitted it, virtual seconds; a pod without start counts as the youngest."""
    return float(pod["status"].get("startedAt", float("inf")))
