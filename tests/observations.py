"""What the service learns from a report, made without one."""

from extender.cluster.node import Observation
from extender.kubelet.state import ManagerState
from extender.samples.nodes import SampleNode


def observation_of(name: str, node: SampleNode, sequence: int = 1, state: ManagerState | None = None) -> Observation:
    """The node under this name. *state*: what its kubelet has written down; None: the state of the sample."""
    return Observation(
        node_name=name,
        boot_id="b",
        sequence=sequence,
        digest=str(sequence),
        observed_at=0.0,
        kubelet=node.kubelet,
        state=node.state if state is None else state,
    )
