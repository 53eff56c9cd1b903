"""How late a kubelet is, and what it did."""

from collections import Counter
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Lags:
    """Spans in seconds from which each delay is drawn. `teardown`: from the published end to the pod being inactive."""

    sync: tuple[float, float] = (0.005, 0.15)
    start: tuple[float, float] = (0.1, 1.0)
    stop: tuple[float, float] = (0.1, 2.0)
    teardown: tuple[float, float] = (0.0, 1.5)
    publish: tuple[float, float] = (0.005, 0.1)
    plugins: tuple[float, float] = (0.2, 1.0)


USUAL = Lags()


@dataclass
class Tally:
    """What kubelets did.

    `admitted`: pods of the scene, without those of the exporters, which are in another namespace. `refused_again`: pods
    that ran before a restart and were refused by the first list. `refused_first`: other pods that a first list refused,
    by UID: when their kubelet had stopped, in monotonic seconds.
    """

    admitted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    refused_again: Counter[str] = field(default_factory=Counter)
    refused_first: dict[str, float] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    restarts: int = 0

    def copy(self) -> "Tally":
        """As it is now."""
        return replace(
            self,
            refused=self.refused.copy(),
            refused_again=self.refused_again.copy(),
            refused_first=dict(self.refused_first),
            refusals=list(self.refusals),
        )

    def since(self, before: "Tally") -> "Tally":
        """What was added after *before*."""
        return Tally(
            self.admitted - before.admitted,
            self.refused - before.refused,
            self.refused_again - before.refused_again,
            {uid: at for uid, at in self.refused_first.items() if uid not in before.refused_first},
            self.refusals[len(before.refusals) :],
            self.restarts - before.restarts,
        )
