"""Unschedulable pods that could be requeued when a node changes.

Rules of this file
- The time of each call is an argument.
- Bounded in number and in time. The deletion of a pod is not observed here: its entry expires.
- A pod is kept if every candidate refused it, and at least one of them refused it only for now.
- A change of one node requeues every such pod: kube-scheduler knows only that an extender refused them. So the first
  fit found is enough.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from extender.replay.pod import Pod
from extender.scheduling.feasibility import Filtered
from extender.scheduling.reasons import NEVER_TEXTS


class WaitingPods:
    """The pods. *max_pods*: how many are kept; *seconds*: how long after the last filter call."""

    def __init__(self, max_pods: int, seconds: float) -> None:
        self._max: Final = max_pods
        self._seconds: Final = seconds
        self._pods: OrderedDict[str, tuple[float, Pod]] = OrderedDict()
        """By UID, the oldest filter call first."""

    def __len__(self) -> int:
        return len(self._pods)

    def note(self, pod: Pod, filtered: Filtered, now: float) -> None:
        """Record the result of a filter call."""
        if not pod.uid:
            return
        self._pods.pop(pod.uid, None)
        if filtered.feasible or NEVER_TEXTS.issuperset(filtered.reasons):
            return
        self._pods[pod.uid] = (now, pod)
        if len(self._pods) > self._max:
            self._pods.popitem(last=False)

    def forget(self, uids: Iterable[str]) -> None:
        """Remove these pods."""
        for uid in uids:
            self._pods.pop(uid, None)

    def waiting(self, now: float) -> list[Pod]:
        """The pods that still wait. The last filter call comes first: that pod is the most likely to exist."""
        while self._pods:
            uid, (at, _) = next(iter(self._pods.items()))
            if now - at <= self._seconds:
                break
            del self._pods[uid]
        return [pod for _, pod in reversed(self._pods.values())]
