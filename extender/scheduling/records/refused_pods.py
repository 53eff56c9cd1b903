"""Pods that no node takes now, and whether one would by now.

Laws of this file
- Pure but for its own memory; the time of each call is an argument.
- Bounded in number and in time: a pod that was deleted meanwhile is never told of, it is forgotten when its time is up.
- Only pods that were refused by every candidate, and by one of them *not for good*: what `never` says stays true, and
  a pod that some node takes is the scheduler's to place.
- One touch of one node wakes every such pod: kube-scheduler knows no more of an extender's refusals than that they came
  from an extender. So the first fit found is enough.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from extender.replay.pod import Pod
from extender.scheduling.feasibility import Filtered
from extender.scheduling.reasons import NEVER_TEXTS


class WaitingPods:
    """The memory. *max_pods*; *seconds* since the scheduler last asked about a pod."""

    def __init__(self, max_pods: int, seconds: float) -> None:
        self._max: Final = max_pods
        self._seconds: Final = seconds
        self._pods: OrderedDict[str, tuple[float, Pod]] = OrderedDict()
        """By UID, the one asked about longest ago first."""

    def __len__(self) -> int:
        return len(self._pods)

    def note(self, pod: Pod, filtered: Filtered, now: float) -> None:
        """What a filter call answered."""
        if not pod.uid:
            return
        self._pods.pop(pod.uid, None)
        if filtered.feasible or NEVER_TEXTS.issuperset(filtered.refused.values()):
            return
        self._pods[pod.uid] = (now, pod)
        if len(self._pods) > self._max:
            self._pods.popitem(last=False)

    def forget(self, uids: Iterable[str]) -> None:
        """These wait no more."""
        for uid in uids:
            self._pods.pop(uid, None)

    def waiting(self, now: float) -> list[Pod]:
        """Those that still wait, the one asked about last first: it is the surest to exist."""
        while self._pods:
            uid, (at, _) = next(iter(self._pods.items()))
            if now - at <= self._seconds:
                break
            del self._pods[uid]
        return [pod for _, pod in reversed(self._pods.values())]
