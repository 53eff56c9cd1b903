"""The state of one node: its last report, what is computed from it, and which report replaces it.

A report has the id of the node's boot and a sequence number within it. Boots are in the order of arrival of their first
reports. The ids of some past boots are kept, so that a late report of one is recognized.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from extender.cluster.ledger import NO_PODS
from extender.cluster.node_class import NOTHING_HIDDEN, NodeClass
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Certainty, Provider
from extender.nri.config import PolicyConfig
from extender.nri.counts import NriCounts, are_pools_of
from extender.replay.counts import Counted, Counts
from extender.replay.creation import policy_of
from extender.replay.possible_states import NO_STATES, PossibleStates

REMEMBERED_BOOTS: Final = 8
"""Number of earlier boots of a node whose ids are kept, so that a late report of one is recognized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One report, interpreted.

    `digest` is the SHA-256 of the body it came in. `observed_at` is Unix seconds by the node's clock, for people only.
    `kubelet` and `state` are None if the report is not enough for any verdict; `hidden` names the managers whose state
    is not in it. `contradictory`: the state contradicts itself, so that no verdict is certain. `pod_uids` are the pods
    that the report knows of; None if it could not list them. `listed` are those of them that the kubelet itself lists,
    `left` those that it does not count: gone, unless the pod watch has them alive. For the others it is not known
    whether they are counted. `unlisted`: pods that hold something and that a list with the UIDs of all its pods does
    not have. `version_from_node`: the kubelet version that the Node object named when the report came, "" if it was not
    known; None if the report itself has it. `kubelet_listens`: whether the kubelet listened on its podresources socket
    when the report was made; `kubelet_seconds`: for how long it had listened by then. Both are None if it is not known.
    `kubelet_digest`: SHA-256 of the parts of the report that describe the kubelet, "" if they describe none. `counts`:
    all that is known, instead of a report. `pools`: those that the NRI plugin publishes, kept only if the report does
    not know what its policy has granted, or if they are others than the replayed policy would have (`has_other_pools`:
    then the plugin is not the one that is replayed, and the policy is hidden); `nri_config`: the policy's
    configuration, None if it is not known. `facts` are passed on unread, for people: a JSON object.
    """

    node_name: str
    kubelet: Kubelet | None
    state: ManagerState | None
    boot_id: str = ""
    sequence: int = 0
    digest: str = ""
    observed_at: float = 0.0
    hidden: frozenset[Provider] = NOTHING_HIDDEN
    contradictory: bool = False
    pod_uids: frozenset[str] | None = None
    listed: frozenset[str] = NO_PODS
    left: frozenset[str] = NO_PODS
    unlisted: frozenset[str] = NO_PODS
    version_from_node: str | None = None
    kubelet_listens: bool | None = None
    kubelet_seconds: float | None = None
    kubelet_digest: str = ""
    counts: Counts | None = None
    pools: NriCounts | None = None
    has_other_pools: bool = False
    nri_config: PolicyConfig | None = None
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def identity(self) -> tuple[str, int, str]:
        """Equal for a report that was sent again."""
        return self.boot_id, self.sequence, self.digest

    @property
    def is_replayable(self) -> bool:
        """Whether the report is enough for verdicts."""
        return self.kubelet is not None and self.state is not None

    def beside(self, pools: NriCounts | None) -> Self:
        """The observation where the NRI plugin publishes *pools*; None: it publishes none, or they are too old."""
        kubelet, state = self.kubelet, self.state
        if (
            pools is not None
            and state is not None
            and kubelet is not None
            and (policy := policy_of(kubelet)) is not None
            and not are_pools_of(policy.setup.tree, pools.pools)
        ):
            return replace(
                self,
                pools=pools,
                hidden=self.hidden | {Provider.RUNTIME},
                has_other_pools=True,
                kubelet=replace(kubelet, runtime=None),
                state=replace(state, runtime=None),
            )
        is_wanted = Provider.RUNTIME in self.hidden and self.pools != pools
        return replace(self, pools=pools) if is_wanted else self

    @classmethod
    def of_counts(cls, counted: Counted) -> Self:
        """The observation of a node that does not report."""
        return cls(node_name=counted.node_name, kubelet=None, state=None, counts=counted.counts, facts=counted.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """A node at present. `heard_at`: when its last report or heartbeat arrived, seconds of the service's own clock.

    `possible`: the possible states for the next pod: the reported state with the events since then. They equal those of
    the class except for the ids of pods and devices. `past_boots`: earlier boot ids. `unread`: UIDs of pods that may be
    in flight, and whose requests cannot be read.
    """

    observation: Observation
    heard_at: float
    node_class: NodeClass
    possible: PossibleStates = NO_STATES
    past_boots: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The node's name in the cluster."""
        return self.observation.node_name

    @property
    def certainty(self) -> Certainty:
        """Certainty of verdicts on this node, except for pods with random device choices."""
        found = self.node_class
        if Provider.RUNTIME in found.hidden and not found.stale:
            return Certainty.UNKNOWN if found.pools is None else Certainty.DEGRADED
        if found.kubelet is None:
            if found.counts is not None:
                return Certainty.STALE if found.stale else Certainty.DEGRADED
            return Certainty.UNKNOWN
        return Certainty.STALE if found.stale else found.kubelet.certainty

    @property
    def states(self) -> tuple[ManagerState, ...]:
        """The possible states of the node; empty if no verdict is possible."""
        return self.possible.states

    @property
    def state(self) -> ManagerState | None:
        """The most likely of `states`; None if no verdict is possible."""
        return self.possible.first

    @property
    def kubelet(self) -> Kubelet | None:
        """The kubelet. Nodes with equal kubelets share one object."""
        return self.node_class.kubelet


class OutdatedError(Exception):
    """A report or heartbeat is older than the current report, or contradicts it. The message names both."""

    def __init__(self, reason: str, held: Observation) -> None:
        super().__init__(f"{reason}; the current report is of boot {held.boot_id!r}, sequence {held.sequence}")


class UnknownNodeError(LookupError):
    """There is no report of this node. The only argument is its name."""

    def __str__(self) -> str:
        """The error as a sentence."""
        return f"there is no report of node {str(self.args[0])[:253]!r}"


class ClusterFullError(Exception):
    """A report of a new node, although the limit of nodes is reached."""


def past_boots_after(held: NodeRecord | None, observation: Observation) -> tuple[str, ...]:
    """The past boots of the node after *observation* replaces the report in *held*.

    Raises:
        OutdatedError: it may not replace that report.
    """
    if held is None:
        return ()
    known = held.observation
    if known.counts is not None:
        return held.past_boots
    if observation.boot_id in held.past_boots:
        raise OutdatedError(f"boot {observation.boot_id!r} is over", known)
    if observation.boot_id != known.boot_id:
        return (*held.past_boots, known.boot_id)[-REMEMBERED_BOOTS:]
    if observation.sequence == known.sequence:
        raise OutdatedError(f"sequence {observation.sequence} was used for another report", known)
    if observation.sequence < known.sequence:
        raise OutdatedError(f"sequence {observation.sequence} is older", known)
    return held.past_boots
