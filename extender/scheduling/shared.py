"""What the verbs share: the known cluster, the judge, the records, the objectors and the effects."""

from dataclasses import dataclass, field

from extender.cluster.node_class import UNKNOWN
from extender.cluster.pods import PodRegistry
from extender.cluster.store import NodeStore
from extender.replay.alignment_demand import Demand
from extender.scheduling.api_link import ApiServerLink
from extender.scheduling.barrier import Barrier
from extender.scheduling.cached_judge import CachedJudge
from extender.scheduling.effects import Effects
from extender.scheduling.fit_together import Candidate
from extender.scheduling.node_totals import NodeTotals
from extender.scheduling.objections import Objector
from extender.scheduling.records.decisions import DecisionLog
from extender.scheduling.records.refusals import RecentRefusals
from extender.scheduling.victims import RunningPods


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownCluster:
    """What is known: of nodes, pods, pods on nodes, the nodes' totals, the API server, and demands of namespaces."""

    nodes: NodeStore
    pods: PodRegistry
    running: RunningPods
    totals: NodeTotals
    link: ApiServerLink
    demands: dict[str, Demand]

    def candidate(self, name: str) -> Candidate:
        """The node as it is now."""
        node_class = UNKNOWN if (record := self.nodes.get(name)) is None else record.node_class
        return Candidate(name=name, node_class=node_class, left_milli=self.totals.left(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecords:
    """Records of calls, for explanations and for the next filter call, and of pods that kubelets have just refused."""

    decisions: DecisionLog
    barrier: Barrier
    refusals: RecentRefusals


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParts:
    """What the verbs share. `objectors`: asked in this order; the composition adds them."""

    known: KnownCluster
    judge: CachedJudge
    records: CallRecords
    effects: Effects
    objectors: list[Objector] = field(default_factory=list)
