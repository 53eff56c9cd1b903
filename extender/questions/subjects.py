"""The nodes of a question: live ones, and hypothetical ones.

Rules of this file
- A subject is a value: no question can change the cluster.
- `states` are the node's own, with the ids of its own devices. The states of its class differ only in such ids.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from extender.cluster.node_class import NodeClass
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.questions.node_context import NOTHING_KNOWN, NodeContext
from extender.scheduling.node_totals import node_allocatable


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One node of a question. `states` is empty if no verdict is possible; the first one is the most likely.

    `facts` come from the report (`cluster.node.Observation`).
    """

    name: str
    node_class: NodeClass
    states: tuple[ManagerState, ...]
    hypothetical: bool = False
    around: NodeContext = NOTHING_KNOWN
    facts: Mapping[str, object] = field(default_factory=dict)

    @property
    def kubelet(self) -> Kubelet | None:
        """None if no verdict is possible."""
        return self.node_class.kubelet


def subject_of(
    name: str, node_class: NodeClass, state: ManagerState | None, around: NodeContext, facts: Mapping[str, object]
) -> Subject:
    """A live node from its parts. *state* is the node's own; None if no verdict is possible."""
    if node_class.kubelet is None or state is None:
        return Subject(name=name, node_class=node_class, states=(), around=around)
    if around.allocatable_milli is None:
        around = replace(around, allocatable_milli=node_allocatable(node_class.kubelet, state.devices))
    return Subject(name=name, node_class=node_class, states=(state, *node_class.states[1:]), around=around, facts=facts)
