"""The result of the admission of a pod in flight, with its prediction."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from extender.cluster.steps import held_by
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Verdict
from extender.replay.pod import Pod


class AdmissionResult(StrEnum):
    """The result of the admission of a pod in flight."""

    ADMITTED = "admitted"
    """A report shows resources allocated to it."""
    REFUSED = "refused"
    """The kubelet refused it."""
    LEFT = "left"
    """It was gone before a report showed it."""
    LOST = "lost"
    """It was assumed and the watch has never shown it, or its kubelet never started it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledPod:
    """One pod whose admission is over.

    `verdicts`: each outcome that the replay predicted; with `complete` False there were more. `state`: the reported
    state, for ADMITTED; `reason`: the kubelet's, for REFUSED. `is_ours`: as `ledger.Admit`. `predict_again`: the
    prediction for the pod with another kubelet: the verdicts, and whether they are complete; None: unknown. Pure, and
    takes as long as a projection.
    """

    node_name: str
    pod: Pod
    kubelet: Kubelet
    result: AdmissionResult
    verdicts: tuple[Verdict, ...]
    complete: bool = True
    state: ManagerState | None = None
    reason: str = ""
    is_ours: bool = False
    predict_again: Callable[[Kubelet], tuple[tuple[Verdict, ...], bool]] | None = None

    @property
    def reported(self) -> Mapping[str, object]:
        """What the report shows of the pod, as `steps.held_by`; empty if there is no report."""
        return {} if self.state is None else held_by(self.state, self.pod.uid)


def ignore(_settled: SettledPod) -> None:
    """For stores whose predictions are not audited."""
