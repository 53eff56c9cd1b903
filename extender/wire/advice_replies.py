"""The replies of advice: what to evict, resize, restart or configure."""

from typing import Annotated, Literal

from extender.kubelet.resize import ResizeResult
from extender.kubelet.verdict import Certainty
from extender.wire import verdicts
from extender.wire.pod_replies import Outcome, PodSummary
from extender.wire.replies import Notes, ReplyBody, about
from extender.wire.verdicts import ContainerPlacement


class EvictedPod(ReplyBody):
    """One pod to evict, and where its replacement goes."""

    pod: Annotated[str, about("NAMESPACE/NAME.")]
    node: Annotated[str, about("The node on which it runs.")]
    priority: Annotated[int, about("Its priority; 0 if it is not known.")]
    owner: Annotated[str, about("Kind of its controller; empty if it is not known.")]
    requests: Annotated[dict[str, str], about("Its requests, as kube-scheduler counts them.")]
    to: Annotated[str, about("The node for its replacement: it is aligned there if it holds anything.")]
    numa: Annotated[list[int], about("NUMA nodes on that node; empty: it holds nothing there.")]


class RoomPlan(ReplyBody):
    """Evictions, and where the pod is placed after them."""

    node: Annotated[str, about("The node that aligns the pod afterwards.")]
    numa: Annotated[list[int], about("NUMA nodes of the pod on that node.")]
    containers: Annotated[dict[str, ContainerPlacement], about("Its placement, by container.")]
    cordon: Annotated[
        list[str],
        about(
            "Nodes to cordon before the first eviction: no replacement may go to a node that has to lose a pod. "
            "Uncordon each one once its last pod here has its replacement, and the plan's node at the end."
        ),
    ]
    evictions: Annotated[
        list[EvictedPod],
        about(
            "One after another: evict the next one only when the replacement of the one before has a node, and ask "
            "again if it is not `to`. Empty: the pod fits now."
        ),
    ]
    objects: Annotated[str, about("Eviction objects of policy/v1 as YAML; empty: none.")]
    script: Annotated[str, about("The same with kubectl, for a POSIX shell; empty: none.")]


class MakeRoomReply(ReplyBody):
    """Plans, the cheapest first."""

    pod: Annotated[PodSummary, about("The pod as it was understood.")]
    result: Annotated[
        Literal["fits", "room", "none"],
        about("`fits`: a node aligns it now. `room`: a node aligns it after the first plan. `none`: there is no plan."),
    ]
    plans: Annotated[list[RoomPlan], about("At most 3, each on another node.")]
    searched: Annotated[int, about("Sets of pods and placements that were tried.")]
    complete: Annotated[bool, about("False: not every choice was tried; `notes` say why.")]
    blocked: Annotated[
        list[str], about("If there is no plan: what keeps nodes and pods from one, and how many of them.")
    ]
    notes: Notes


class DefragmentPoint(ReplyBody):
    """The cluster after some moves."""

    moves: Annotated[int, about("Pods moved so far.")]
    copies: Annotated[int, about("Aligned copies of the pod that fit in all.")]
    largest_cpus: Annotated[int, about("The most CPUs that such a pod could request and still be aligned; 0: none.")]
    evictions: Annotated[list[EvictedPod], about("The moves of this step; empty: the present.")]


class DefragmentReply(ReplyBody):
    """How many copies fit after each number of moves."""

    pod: Annotated[PodSummary, about("The pod as it was understood.")]
    curve: Annotated[list[DefragmentPoint], about("The first is the present; after the last one no step gains more.")]
    objects: Annotated[str, about("All evictions as objects of policy/v1, YAML; empty: none.")]
    complete: Annotated[bool, about("False: the limit of tries ended the search.")]
    notes: Notes


class PodPlacement(ReplyBody):
    """Where a pod would be placed on one node, or why not."""

    node: Annotated[str, about("Its name.")]
    outcome: Annotated[Outcome, about("See `NodeAnswer.outcome`.")]
    alignment: Annotated[verdicts.AlignmentName | None, about("Null: it does not fit.")]
    alignment_certain: verdicts.AlignmentCertain
    numa: verdicts.AlignedNUMA
    containers: Annotated[dict[str, verdicts.ContainerPlacement], about("By name; empty: it does not fit.")]
    reason: Annotated[str, about("Why not, in one sentence with amounts; empty: it fits.")]
    certainty: Annotated[Certainty, about("How certain the placement is.")]


class ResizeCheckReply(ReplyBody):
    """Whether the kubelet would accept the resize, and the alternatives."""

    pod: Annotated[str, about("NAMESPACE/NAME.")]
    node: Annotated[str, about("Its node.")]
    container: Annotated[str, about("Name of the container.")]
    before: Annotated[dict[str, str], about("The requests that change, as they are now.")]
    after: Annotated[dict[str, str], about("The same requests after the change.")]
    limits: Annotated[dict[str, str], about("The limits after the change; without resources that have none.")]
    result: Annotated[
        ResizeResult,
        about(
            "`fits`. `deferred`: not as long as the other pods are there. `infeasible`: never on this node with its "
            "configuration. `not-supported`: this kubelet does not resize pods in place."
        ),
    ]
    reason: Annotated[str, about("Why not, in one sentence; empty: it fits.")]
    exclusive_cpus: Annotated[
        str, about("CPUs that the container has for itself. A kubelet changes none; see `notes` for an NRI policy.")
    ]
    shared_cpus: Annotated[str, about("The node's shared pool; empty: the CPU Manager keeps none.")]
    recreated: Annotated[PodPlacement, about("The pod if it were recreated on its own node.")]
    elsewhere: Annotated[list[PodPlacement], about("Other nodes that it fits on, the best first; at most 5.")]
    other_nodes: Annotated[int, about("How many other nodes it fits on.")]
    notes: Notes


PodResult = Literal["kept", "moved", "fails", "may-fail"]
NodeAction = Literal["restart", "drain-first", "drain-and-delete-files", "does-not-start", "unknown"]


class RefusedFileInfo(ReplyBody):
    """A state file with which the kubelet does not start."""

    file: Annotated[str, about("Its name in the kubelet's directory.", "cpu_manager_state")]
    reason: Annotated[str, about("Why, in one sentence.")]


class RestartedPodInfo(ReplyBody):
    """What the restart does to one pod."""

    pod: Annotated[str, about("NAMESPACE/NAME.")]
    order: Annotated[int, about("Its place in the order of admission, from 1.")]
    result: Annotated[
        PodResult,
        about(
            "`kept`: admitted with what it holds. `moved`: admitted with other CPUs or memory. `may-fail`: it depends "
            "on the order of admission or on a device plugin. `fails`: refused, and ended."
        ),
    ]
    reason: Annotated[str, about("The pod status reason; empty if it is admitted.")]
    message: Annotated[str, about("The message of the kubelet; empty if it is admitted.")]
    cpus_before: Annotated[str, about("Exclusive CPUs that it holds; empty: none.")]
    cpus_after: Annotated[str, about("Exclusive CPUs afterwards; empty: none, or it fails.")]
    drain_first: Annotated[bool, about("Whether to evict it before the restart.")]
    elsewhere: Annotated[str | None, about("The node that would admit it instead; null: none, or it need not move.")]


class RestartedNodeInfo(ReplyBody):
    """What the restart does to one node."""

    node: Annotated[str, about("Its name.")]
    action: Annotated[
        NodeAction,
        about(
            "`restart`: nothing fails. `drain-first`: some pods fail. `drain-and-delete-files`: the kubelet refuses "
            "state files. `does-not-start`: no kubelet starts with this configuration."
        ),
    ]
    kubelet_version: Annotated[str, about("After the restart; empty: unknown.")]
    error: Annotated[str, about("Why the configuration is invalid; empty: it is valid.")]
    refused_files: Annotated[list[RefusedFileInfo], about("Empty: the kubelet reads all of them.")]
    kept: Annotated[int, about("Pods that keep what they hold.")]
    moved: Annotated[int, about("Pods that get other CPUs or memory.")]
    may_fail: Annotated[int, about("Pods that may fail.")]
    fails: Annotated[int, about("Pods that fail.")]
    pods: Annotated[
        list[RestartedPodInfo], about("In the order of admission. If there are several nodes, without kept pods.")
    ]


class RestartSummary(ReplyBody):
    """Counts over all nodes."""

    nodes: Annotated[int, about("Number of nodes.")]
    actions: Annotated[dict[NodeAction, int], about("Nodes by `action`.")]
    pods: Annotated[int, about("Pods on them that request something from a manager or are watched.")]
    kept: Annotated[int, about("Pods that keep what they hold.")]
    moved: Annotated[int, about("Pods that get other CPUs or memory.")]
    may_fail: Annotated[int, about("Pods that may fail.")]
    fails: Annotated[int, about("Pods that fail.")]
    drained: Annotated[int, about("Pods to evict before the restart.")]


class RestartCheckReply(ReplyBody):
    """What the restart does to the nodes and their pods."""

    nodes: Annotated[list[RestartedNodeInfo], about("The nodes, in a safe order.")]
    summary: Annotated[RestartSummary, about("Counts.")]
    notes: Notes


class RightsizeSuggestion(ReplyBody):
    """A smaller request of one shape of pods."""

    pods: Annotated[int, about("Pods of this shape.")]
    examples: Annotated[list[str], about("Some of them, NAMESPACE/NAME.")]
    nodes: Annotated[int, about("Nodes that they run on.")]
    container: Annotated[str, about("Name of the container.")]
    resource: Annotated[str, about("`cpu` or `memory`.")]
    before: Annotated[str, about("Its request now.")]
    after: Annotated[str, about("The request that reaches the boundary.")]
    boundary: Annotated[str, about("Which boundary, in words.")]
    copies_before: Annotated[int, about("Aligned copies on these nodes if they were empty, now.")]
    copies_after: Annotated[int, about("The same copies with the smaller request.")]
    freed: Annotated[str, about("How much less the pods would request in total.")]


class RightsizeReply(ReplyBody):
    """Suggestions, the most valuable first: by the share of copies won, times the pods."""

    suggestions: Annotated[list[RightsizeSuggestion], about("At most `limit`.")]
    shapes: Annotated[int, about("Shapes examined.")]
    found: Annotated[int, about("Suggestions found.")]
    notes: Notes


class TuneRestart(ReplyBody):
    """What restart-check says of a change."""

    files_refused: Annotated[int, about("Nodes whose kubelets refuse a state file.")]
    not_starting: Annotated[int, about("Nodes whose kubelets do not start with the change.")]
    pods_failing: Annotated[int, about("Running pods that fail.")]
    pods_to_drain: Annotated[int, about("Running pods to evict before the restart.")]


class KubeletPatch(ReplyBody):
    """A change of the kubelet's configuration, for some nodes."""

    nodes: Annotated[list[str], about("The nodes that need it.")]
    patch: Annotated[str, about("The changed fields as KubeletConfiguration, YAML.")]


class TunedConfiguration(ReplyBody):
    """One configuration. Numbers of pods are means over the orders of arrival."""

    current: Annotated[bool, about("Whether this is the present configuration.")]
    best: Annotated[bool, about("Whether no other configuration surpasses this one.")]
    change: Annotated[
        dict[str, str],
        about(
            "Fields of KubeletConfiguration; options by name. `reservedSystemCPUs`: which NUMA nodes have the reserved "
            "CPUs."
        ),
    ]
    patches: Annotated[list[KubeletPatch], about("By node; without nodes that need no change.")]
    admitted: Annotated[int, about("Pods admitted.")]
    admitted_least: Annotated[int, about("At least so many in 19 of 20 orders of arrival.")]
    admitted_most: Annotated[int, about("At most so many in 19 of 20 orders of arrival.")]
    aligned: Annotated[int, about("Admitted pods that are on one NUMA node.")]
    aligned_least: Annotated[int, about("As `admitted_least`.")]
    aligned_most: Annotated[int, about("As `admitted_most`.")]
    split: Annotated[int, about("Admitted pods that are split over several NUMA nodes.")]
    not_managed: Annotated[int, about("Admitted pods that no manager places.")]
    refused: Annotated[int, about("Pods refused.")]
    stranded_cpus: Annotated[
        int,
        about(
            "Free CPUs of NUMA nodes that have too few for any pod that the node admits; all CPUs of a node that "
            "admits none of its pods."
        ),
    ]
    stranded_cpus_least: Annotated[int, about("As `admitted_least`.")]
    stranded_cpus_most: Annotated[int, about("As `admitted_most`.")]
    guarantee_ends: Annotated[
        int,
        about(
            "Nodes whose kubelets guarantee less alignment than now: after the change they may split a pod that they "
            "would refuse now."
        ),
    ]
    failing_nodes: Annotated[int, about("Nodes whose kubelets do not start with it.")]
    restart: Annotated[TuneRestart | None, about("What the change would do now; null: no change, or no time was left.")]


class TuneReply(ReplyBody):
    """The present configuration, then the Pareto front: those that keep the guarantee of alignment first."""

    configurations: Annotated[list[TunedConfiguration], about("The present one first; at most 7.")]
    pods: Annotated[int, about("Pods replayed.")]
    nodes: Annotated[int, about("Nodes replayed; a note says how many were left out.")]
    tried: Annotated[int, about("Configurations tried.")]
    complete: Annotated[bool, about("False: not every node and configuration was tried; see `notes`.")]
    seed: Annotated[int, about("Seed of the orders of arrival. The same seed gives the same answer.")]
    notes: Notes
