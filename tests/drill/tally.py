"""What kubelets of a drill did, and the story of a refusal in one line."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What kubelets did.

    `unforeseen`: pods refused because of what was not known when they were bound: that the kubelet restarts, or, before
    its first report, that it differs from its siblings.

    `assumed`: pods whose binding was decided before the first report of their node; `refused_assumed`: of them.
    `demanding`: admitted pods that demand alignment; `against_demand`: the stories of those placed otherwise, but for
    `unforeseen_demand`: as `unforeseen`. `refused_again`: running pods that their kubelet refused when it had started
    again.
    """

    admitted: int = 0
    decided: set[str] = field(default_factory=set)
    """Pods that a kubelet has admitted or refused."""
    mixed_groups: set[str] = field(default_factory=set)
    """Groups of nodes in which a kubelet has differed from the others."""
    assumed: int = 0
    refused_assumed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    unforeseen: int = 0
    demanding: int = 0
    unforeseen_demand: int = 0
    against_demand: list[str] = field(default_factory=list)
    refused_again: Counter[str] = field(default_factory=Counter)
    refusals: list[str] = field(default_factory=list)
    create_errors: dict[str, str] = field(default_factory=dict)
    """Pods with a container that could not be created, by UID: the story of the first time."""
    unpredictable: set[str] = field(default_factory=set)
    """Pods whose placement could not be predicted: when they were admitted, another pod had ended on the node and the
    extender had not learned of it, or the kubelet had restarted and this was not known when they were bound."""
    running: Callable[[str], set[str]] = lambda _node_name: set()
    """The pods of a node that run and are not being deleted, as far as the extender's watch has shown."""
    believed: Callable[[str], str] = lambda _node_name: ""
    """What the extender believes of a node at present, in words: told with each refusal."""

    may_end: Callable[[str], bool] = lambda _uid: True
    """Whether the pod may end by itself, by UID: pods of a group work only when all of them run."""

    def note_create_error(self, uid: str, story: str) -> None:
        """A container of the pod was refused by the runtime."""
        self.create_errors.setdefault(uid, story)


@dataclass
class Restart:
    """The last restart of a kubelet, in virtual seconds; 0: not yet.

    `told`: when the extender got the first report made after the stop. `stale`: ended pods that held room meanwhile.
    """

    stopped: float = 0.0
    told: float = 0.0
    started: float = 0.0
    first_list: float = 0.0
    stale: int = 0

    def is_unforeseen(self, decided: float) -> bool:
        """Whether this restart concerns a pod and was not known when the pod's binding was decided."""
        return self.first_list > decided and (self.told == 0.0 or decided < self.told)

    def __str__(self) -> str:
        if not self.stopped:
            return "kubelet never stopped"
        down = f"stopped {self.stopped:.2f} (extender told {self.told:.2f}), started {self.started:.2f}"
        return f"kubelet {down}, first list {self.first_list:.2f} with {self.stale} stale"
