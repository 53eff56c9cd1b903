"""The knobs of what happens between reports: a part of `extender.config.settings.Settings`."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings


class LiveSettings(BaseSettings):
    """The API server, pods in flight, deadlines, the audit."""

    kubernetes: Literal["off", "on"] = Field(
        default="off",
        description="`on`: watch pods, nodes and disruption budgets, and write bindings. With the service account of "
        "our own pod, or with `kubeconfig`. Off: only reports tell of pods, and there is no bind verb.",
    )
    kubeconfig: Path | None = Field(default=None, description="Instead of the service account; implies `kubernetes`.")
    topologies: Literal["off", "on"] = Field(
        default="off",
        description="`on`: read NodeResourceTopology objects too; needs `kubernetes`. Those of our exporters are whole "
        "reports, so that any number of replicas share one truth; those of others are counts per NUMA node, see "
        "`degraded_nodes`.",
    )
    filter_seconds: float = Field(
        default=1.5,
        gt=0,
        description="Time for one filter call, below the scheduler's `httpTimeout` for us (7 s in our recipes).",
    )
    late_nodes: Literal["error", "pass"] = Field(
        default="error",
        description="What a filter call answers when its time is over. `error`: the scheduler tries the pod again, and "
        "we go on where we stopped. `pass`: nodes not judged are offered; with the bind verb that costs a try, without "
        "it the pod may fail.",
    )
    barrier_seconds: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Where the scheduler binds by itself: how long a filter call waits for the pods of earlier calls "
        "to appear on their nodes, 0.02 is plenty. 0 with our bind verb, which needs no waiting.",
    )
    bind_seconds: float = Field(
        default=3.0,
        gt=0,
        description="Time for one binding; waiting for others to the same node may take as long again. With `lease`, "
        "if it is not set, two fifths of `lease_seconds` where that is less (2.8 s).",
    )
    assume_seconds: float = Field(
        default=120.0, gt=0, description="A pod that we bound and that nobody has seen since is given up after this."
    )
    finish_seconds: float = Field(
        default=3.0,
        ge=0,
        description="A finished pod still counts for so long: its kubelet publishes the end before it has torn the pod "
        "down, and until then gives its room to nobody.",
    )
    bind_wait_seconds: float = Field(
        default=3.0,
        ge=0,
        description="How long a bind call waits for leaving pods: on the node that a pod is nominated to, where the "
        "scheduler would clear the nomination after an error, and where pods that have just ended may still count in "
        "the totals. At most `bind_seconds`.",
    )
    hold_back_seconds: float = Field(
        default=10.0,
        ge=0,
        description="How long a pod is held back, from its first bind call on, where the end of a single other pod "
        "would have the kubelet refuse it: we hear of ends a moment late. Meanwhile it is tried on other nodes, too.",
    )
    kubelet_start_seconds: float = Field(
        default=10.0,
        ge=0,
        description="How long after the start of its kubelet a node takes no pod that needs alignment: until the "
        "kubelet has had its first list of pods, its managers release nothing that ended pods hold. That list comes "
        "within a second or two, later if the API server is slow, and nobody can see when it is over. 0: never wait.",
    )
    kubelet_down_seconds: float = Field(
        default=50.0,
        ge=0,
        description="The same for a node whose kubelet is stopped, at most. After so long without its kubelet "
        "Kubernetes itself marks the node as not ready (`node-monitor-grace-period`, 40 or 50 s).",
    )
    watch_silent_seconds: float = Field(
        default=150.0,
        gt=0,
        description="Without a sign of life of the API server for so long, every node counts as stale. A quiet watch "
        "is opened again after four fifths of this (120 s at most), and that the server accepts it is a sign of life.",
    )
    max_remembered_pods: int = Field(
        default=50_000, ge=100, description="Pods of filter calls, kept for their bind calls; about 1 kB each."
    )
    audit_window: int = Field(default=20, ge=1, le=1000, description="Results of a node that the audit looks back on.")
    distrust_after: int = Field(
        default=0,
        ge=0,
        description="So many disagreements in the window demote a node to score-only: its verdicts rank it, and refuse "
        "nothing. 0: never, disagreements are only shown.",
    )

    @property
    def watches(self) -> bool:
        """Whether there is an API server to talk to."""
        return self.kubernetes == "on" or self.kubeconfig is not None
