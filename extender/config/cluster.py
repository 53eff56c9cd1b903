"""Settings of the cluster connection and of pods in flight; part of `extender.config.settings.Settings`."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings


class ClusterSettings(BaseSettings):
    """The API server, pods in flight, deadlines, the prediction audit."""

    kubernetes: Literal["off", "on"] = Field(
        default="off",
        description="`on`: watch pods, nodes and disruption budgets, and write bindings. Uses the pod's service "
        "account, or `kubeconfig`. Off: pods are known from reports only, and there is no bind verb.",
    )
    kubeconfig: Path | None = Field(default=None, description="Replaces the service account. Implies `kubernetes`.")
    topologies: Literal["off", "on"] = Field(
        default="off",
        description="`on`: also read NodeResourceTopology objects; needs `kubernetes`. Those of our exporters are full "
        "reports, so that any number of replicas have the same state; those of others are counts per NUMA node, see "
        "`degraded_nodes`.",
    )
    namespace_demands: Literal["off", "on"] = Field(
        default="off",
        description="`on`: labels of namespaces demand alignment for their pods, as annotations of pods do; needs "
        "`kubernetes` and components/namespace-demands. See docs/alignment.md.",
    )
    dra: Literal["off", "on"] = Field(
        default="off",
        description="`on`: read the devices that DRA drivers publish and the claims that hold them, for notes of "
        "what-if, for pods that demand alignment, and to rank nodes by where claimed devices can be; needs "
        "`kubernetes`, Kubernetes 1.34 and components/dra. See docs/alignment.md.",
    )
    sibling_labels: str = Field(
        default="",
        description="Labels that nodes of one kind have in common, such as `node.kubernetes.io/instance-type`, with "
        "commas between them. A node that has not reported yet is then judged as an empty copy of a node of its "
        "kind. Needs `kubernetes`. Empty: such a node is unknown, see `unknown_nodes`.",
    )
    gangs: Literal["off", "on"] = Field(
        default="off",
        description="`on`: pods of one group are placed together or not at all; see docs/gangs.md. Off by default, "
        "because it changes when pods of groups are bound: not before all of them have come.",
    )
    gang_apis: str = Field(
        default="",
        description="APIs whose objects state the sizes of groups, with commas between them: "
        "`scheduling.x-k8s.io/v1alpha1` (coscheduling), `scheduling.k8s.io/v1alpha1` (Kubernetes 1.35), "
        "`scheduling.k8s.io/v1alpha2` (1.36), `scheduling.k8s.io/v1beta1` (1.37), `jobset.x-k8s.io/v1alpha2`, "
        "`scheduling.sigs.k8s.io/v1alpha1` (Koordinator), `scheduling.volcano.sh/v1beta1`, "
        "`scheduling.run.ai/v2alpha2` (KAI), `scheduler.grove.io/v1alpha1`, `kubeflow.org/v2beta1` (MPIJob), "
        "`kubeflow.org/v1` (PyTorchJob), `ray.io/v1` (RayCluster). "
        "Needs `kubernetes` and components/gangs. Empty: sizes are known from pods only.",
    )
    gang_hold_seconds: float = Field(
        default=30.0,
        gt=0,
        description="How long places are held for the pods of a group before one of them is bound, and for pods "
        "that have not come after each binding. kube-scheduler tries a pod again after 10 s at most, so 30 s are "
        "enough for pods that exist.",
    )
    gang_rest_seconds: float = Field(
        default=60.0,
        ge=0,
        description="After places were held for `gang_hold_seconds` and given back unused, no group holds a place on "
        "these nodes for this long; less if they were held for less. So single pods do not wait for long.",
    )
    gang_max_pods: int = Field(
        default=256,
        ge=2,
        le=4096,
        description="Pods of a larger group are judged one by one: their plan would take too long.",
    )
    node_profiles: Path | None = Field(
        default=None,
        description="A directory with profiles: reports that are used for nodes with certain labels until a node of "
        "their kind has reported. Needs `kubernetes`. See docs/operating.md.",
    )
    filter_seconds: float = Field(
        default=1.5,
        gt=0,
        description="Time for one filter call. Keep it below the scheduler's `httpTimeout` (7 s in our recipes).",
    )
    late_nodes: Literal["error", "refuse", "pass"] = Field(
        default="refuse",
        description="What a filter call replies about nodes that it had no time to replay. The next call goes "
        "on with them. `refuse`: they are refused, and if no other node admits "
        "the pod, the call fails and the scheduler tries again. `error`: the call fails, so that a pod is placed "
        "only when all nodes are judged. `pass`: they are offered; with the bind verb a wrong one costs a retry, "
        "without it the pod may fail.",
    )
    barrier_seconds: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="If the scheduler binds pods itself: how long a filter call waits for the pods of earlier calls "
        "to appear on their nodes; 0.02 is enough. 0 with our bind verb, which does not need it.",
    )
    bind_seconds: float = Field(
        default=3.0,
        gt=0,
        description="Time for one binding. Waiting for other bindings to the same node may take as long again. If it "
        "is not set, `lease` limits it to two fifths of `lease_seconds` (2.8 s).",
    )
    assume_seconds: float = Field(
        default=120.0, gt=0, description="A pod that we bound is dropped if nothing has confirmed it after this time."
    )
    finish_seconds: float = Field(
        default=3.0,
        ge=0,
        description="A finished pod still counts for this long: its kubelet reports the end before it has torn the pod "
        "down, and gives the pod's resources to no other pod before that.",
    )
    bind_wait_seconds: float = Field(
        default=3.0,
        ge=0,
        description="How long a bind call waits for an API server that does not answer, and for terminating pods: on "
        "the node that a pod is nominated to, where the scheduler would clear the nomination after an error, and where "
        "pods that have just ended may still count in the totals. At most `bind_seconds`.",
    )
    hold_back_seconds: float = Field(
        default=10.0,
        ge=0,
        description="For how long after its first bind call a pod is not bound if the kubelet would refuse it as soon "
        "as one other pod ends, because the extender learns of ends with a delay. kube-scheduler tries other nodes.",
    )
    young_node_seconds: float = Field(
        default=60.0,
        ge=0,
        description="Up to this age of its Node object a node without a report gets no pod that needs alignment: its "
        "exporter is about to start. Later it is unknown, see `unknown_nodes`. Needs `kubernetes`. 0: never wait.",
    )
    kubelet_start_seconds: float = Field(
        default=10.0,
        ge=0,
        description="After the start of its kubelet a node gets no pod that needs alignment for this time. Until the "
        "kubelet has its first list of pods, its managers do not release the resources of ended pods. The list arrives "
        "within a second or two, later if the API server is slow, and no API shows when. 0: never wait.",
    )
    kubelet_down_seconds: float = Field(
        default=50.0,
        ge=0,
        description="The longest such wait for a node whose kubelet is stopped. After this time without its kubelet "
        "Kubernetes itself marks the node as not ready (`node-monitor-grace-period`, 40 or 50 s).",
    )
    watch_silent_seconds: float = Field(
        default=150.0,
        gt=0,
        description="If the watch of pods or of nodes makes no progress for this long, every node counts as stale. If "
        "the API server is heard meanwhile, the service is not ready either. A quiet watch is reopened after four "
        "fifths of this (120 s at most), and its success counts as progress.",
    )
    max_remembered_pods: int = Field(
        default=50_000,
        ge=100,
        description="Pods recorded that are not on a node yet; about 1 kB each, and 24 MiB of larger ones. Pods that "
        "are being bound or nominated to a node are dropped last.",
    )
    leave_out_seconds: float = Field(
        default=30.0,
        ge=0,
        description="How long filter leaves out a node whose resource managers have just refused a pod of the same "
        "shape, unless no other node is feasible: the controller's next pod is likely to fail there as well. A refused "
        "pod that this service did not offer the node for counts for pods of its namespace only. 0: never.",
    )
    placement_annotations: Literal["off", "on"] = Field(
        default="off",
        description="`on`: the bind verb gives each pod the annotation `numa-extender.io/placement`: the NUMA nodes, "
        "CPUs, memory and devices that its kubelet is predicted to give it. It is part of the binding and needs no "
        "right of its own. See docs/alignment.md.",
    )
    audit_window: int = Field(default=20, ge=1, le=1000, description="Results of a node that the audit considers.")
    distrust_after: int = Field(
        default=0,
        ge=0,
        description="A node becomes score-only after this many wrong predictions in the window: its verdicts score it "
        "but refuse nothing. 0: never; wrong predictions are only shown.",
    )

    @property
    def watches(self) -> bool:
        """Whether there is an API server to watch."""
        return self.kubernetes == "on" or self.kubeconfig is not None
