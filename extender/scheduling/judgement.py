"""Judgements as values: what a judge says of a class of nodes, and how the settings treat uncertain nodes."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from extender.kubelet.verdict import Certainty
from extender.scheduling.reasons import RefusalReason


class Action(StrEnum):
    """What to do with a node whose verdict is not certain."""

    PASS = "pass"  # noqa: S105 - not a password
    """Offered to the scheduler, whatever the replay says."""
    REFUSE = "refuse"
    """Not offered, unless the pod requests nothing that a manager aligns."""
    REPLAY = "replay"
    """Judged by its last known state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertaintyPolicy:
    """The action for each kind of uncertain node.

    `unknown`: no report, or not enough in it (PASS or REFUSE). `stale`: no message for too long. `possible`: the
    kubelet's random choice of devices decides, or the order of events on the node; REPLAY and REFUSE both refuse the
    node if any possible outcome is a refusal. `degraded`: only counts per NUMA node are known; REPLAY refuses the node
    where they prove that its kubelet must refuse the pod. `newer`: the kubelet is newer than the newest known one;
    REPLAY judges the node by the rules of the newest known one, PASS scores it by them and never refuses it.
    `annotations`: the pod has an annotation of the NRI topology-aware policy with a fault, so that it has no effect,
    and the policy runs on the node (PASS or REFUSE).
    """

    unknown: Action = Action.PASS
    stale: Action = Action.REPLAY
    possible: Action = Action.REFUSE
    degraded: Action = Action.REPLAY
    newer: Action = Action.REPLAY
    annotations: Action = Action.PASS

    @property
    def requires_certainty(self) -> bool:
        """Whether a node is refused unless it is certain to admit the pod."""
        return self.possible is not Action.PASS


class LateNodes(StrEnum):
    """What happens to nodes that were not judged in time."""

    ERROR = "error"
    """The call fails."""
    REFUSE = "refuse"
    """They are refused, and the call fails only if no other node is feasible."""
    PASS = "pass"  # noqa: S105 - not a password
    """They are feasible."""


class Trouble(StrEnum):
    """Why a class of nodes could not be judged."""

    STEPS = "steps"
    """The replay needs more steps than that of any real node. It would end at the same step each time."""
    TIME = "time"
    """The time of the call was over. This says nothing about the nodes, and is not cached."""
    DEFECT = "defect"
    """The replay raised an exception."""


class Judgement(NamedTuple):
    """`refusal` None: the nodes are feasible. `merit`: more is better; None if there is nothing to compare nodes by.

    `certainty` UNKNOWN: no verdict could be computed. POSSIBLE: not everything that matters was tried. `trouble`: why a
    replay gave no verdict; `detail` is the traceback of a defect. `misses`: the pod prefers one NUMA node and would be
    split.
    """

    refusal: RefusalReason | None
    certainty: Certainty
    merit: int | None = None
    trouble: Trouble | None = None
    detail: str = ""
    misses: bool = False


INDIFFERENT = Judgement(None, Certainty.EXACT)
"""The pod requests nothing that a manager of the node aligns."""
