"""The seam for a policy of the container runtime, which decides when a container is created.

The kubelet knows of no such policy: it admits a pod, and then asks the runtime to create the containers. A policy
there, such as a plugin of the Node Resource Interface (NRI), may refuse one, or give it other CPUs and memory.
`admission` asks the policy after the managers have admitted the pod, and passes on what it has given unread.
"""

from collections.abc import Hashable
from typing import Protocol

from extender.kubelet.budget import Budget
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import DeviceState, RuntimeGrants
from extender.kubelet.verdict import Admitted, Verdict


class RuntimePolicy(Protocol):
    """A policy of the container runtime on one node. A value: it never changes while the node runs."""

    @property
    def identity(self) -> Hashable:
        """Equal for policies that decide alike."""

    def start(self) -> RuntimeGrants:
        """What containers hold on a node where nothing runs yet: nothing."""

    def create(
        self, granted: RuntimeGrants, pod: PodRequest, admitted: Admitted, devices: DeviceState, budget: Budget
    ) -> tuple[Verdict, RuntimeGrants]:
        """The verdict on a pod that the kubelet has *admitted*, and what containers hold after it.

        *devices*: with those that the kubelet has assigned to the pod.

        Raises:
            BudgetError: the work takes more steps than *budget* has.
        """
