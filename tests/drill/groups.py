"""Groups of pods in the drill, and how they were bound: each group as a whole, and single pods in time."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.drill.api import Api, Event, Watcher

Json = dict[str, Any]
SIZES = (2, 3, 4, 6)
MAX_ATTEMPTS = 30
"""After so many attempts for one of its pods, a group of which no pod is bound is taken back."""
MAX_REST_SECONDS = 300.0
"""So long after the first binding of a group its unbound pods are taken back: it is then half placed for good."""
REST_SECONDS = 60.0
"""A group of which only a part is bound for longer than this is at rest half placed."""


def members_of(pod: Json, size: int) -> list[Json]:
    """Copies of the pod that are one group."""
    name = f"g-{pod['metadata']['name']}"
    annotations = {"numa-extender.io/group": name, "numa-extender.io/group-size": str(size)}
    made = []
    for i in range(size):
        own = {"name": f"{name}-{i}", "uid": f"{pod['metadata']['uid']}-{i}", "annotations": annotations}
        made.append({**pod, "metadata": {**pod["metadata"], **own}})
    return made


def group_name(pod: Json) -> str:
    """The group of the pod; "" for a single pod."""
    return str(pod["metadata"].get("annotations", {}).get("numa-extender.io/group", ""))


@dataclass
class GroupBook:
    """Who came and was bound when. Times are those of the timeline."""

    came_at: dict[str, float] = field(default_factory=dict)
    bound_at: dict[str, float] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    group_of: dict[str, str] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)
    """Groups of which a pod was taken back, or was bound and has ended."""

    def follow(self, api: Api) -> None:
        """Take down every binding from now on."""

        def take(events: list[Event]) -> None:
            for kind, pod in events:
                uid = pod["metadata"]["uid"]
                if pod["spec"].get("nodeName"):
                    self.bound_at.setdefault(uid, api.timeline.now)
                if uid in self.group_of and (kind == "DELETED" or pod["status"]["phase"] in ("Succeeded", "Failed")):
                    self.over.add(self.group_of[uid])

        api.everywhere.append(Watcher(api, take, (0.0, 0.001)))

    def came(self, pod: Json, now: float) -> None:
        """The pod was made."""
        uid, group = pod["metadata"]["uid"], group_name(pod)
        self.came_at[uid] = now
        if group:
            self.groups.setdefault(group, []).append(uid)
            self.group_of[uid] = group

    def is_whole_or_over(self, uid: str) -> bool:
        """Whether the pod may end by itself: all pods of its group were bound, or one of them has ended."""
        group = self.group_of.get(uid, "")
        return not group or group in self.over or all(each in self.bound_at for each in self.groups[group])

    def to_take_back(self, uid: str, attempts: int, now: float) -> list[str]:
        """The pods to take back after this many attempts for the pod of a group."""
        group = self.groups[self.group_of[uid]]
        bound = [self.bound_at[each] for each in group if each in self.bound_at]
        is_hopeless = now > min(bound) + MAX_REST_SECONDS if bound else attempts >= MAX_ATTEMPTS
        return [each for each in group if each not in self.bound_at] if is_hopeless else []

    @property
    def half_placed(self) -> list[str]:
        """The groups of which some pods were bound, and others never, or more than `REST_SECONDS` later."""
        found = []
        for name, uids in self.groups.items():
            times = sorted(self.bound_at[uid] for uid in uids if uid in self.bound_at)
            if times and len(times) < len(uids):
                found.append(f"{name}: {len(times)} of {len(uids)} pods bound")
            elif times and times[-1] - times[0] > REST_SECONDS:
                found.append(f"{name}: the last of {len(uids)} pods was bound {times[-1] - times[0]:.0f} s later")
        return found

    @property
    def placed(self) -> int:
        """Groups of which every pod was bound."""
        return sum(all(uid in self.bound_at for uid in uids) for uids in self.groups.values())

    @property
    def gaps(self) -> list[float]:
        """Seconds from the first to the last binding of each group that was placed, in order."""
        times = [[self.bound_at.get(uid) for uid in uids] for uids in self.groups.values()]
        whole = [[at for at in each if at is not None] for each in times if None not in each]
        return sorted(max(each) - min(each) for each in whole)

    @property
    def waits(self) -> list[float]:
        """Seconds that each single pod waited until it was bound, in order."""
        singles = self.bound_at.keys() - self.group_of.keys()
        return sorted(self.bound_at[uid] - self.came_at[uid] for uid in singles)


def size_of(random: Random, share: float) -> int:
    """How many pods come next: 1 is a single pod."""
    return random.choice(SIZES) if share and random.random() < share else 1


def quantile(values: list[float], part: float) -> float:
    """The value below which this part of the sorted values is; 0 if there are none."""
    return values[min(len(values) - 1, int(part * len(values)))] if values else 0.0
