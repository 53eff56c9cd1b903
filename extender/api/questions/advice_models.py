"""POST /v1/advice/NAME: the answers. The questions are in `extender.answers.advice_requests`."""

from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import AlignedNUMA, AlignmentCertain, AlignmentName, Answer, ContainerPlacement
from extender.api.questions.what_if_models import PodSummary
from extender.kubelet.resize import ResizeResult
from extender.kubelet.verdict import Certainty
from extender.wire.validation import doc

Notes = Annotated[list[str], doc("Assumptions of the answer, and what was not checked.")]


class PodPlacement(Answer):
    """Where a pod would be placed on one node, or why not."""

    node: Annotated[str, doc("Its name.")]
    outcome: Annotated[Literal["fits", "topology", "scheduler", "unknown"], doc("See `NodeAnswer.outcome`.")]
    alignment: Annotated[AlignmentName | None, doc("Null: it does not fit.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA
    containers: Annotated[dict[str, ContainerPlacement], doc("By name; empty: it does not fit.")]
    reason: Annotated[str, doc("Why not, in one sentence with amounts; empty: it fits.")]
    certainty: Annotated[Certainty, doc("How certain the placement is.")]


class ResizeCheckReply(Answer):
    """Whether the kubelet would accept the resize, and the alternatives."""

    pod: Annotated[str, doc("NAMESPACE/NAME.")]
    node: Annotated[str, doc("Its node.")]
    container: Annotated[str, doc("Name of the container.")]
    before: Annotated[dict[str, str], doc("The requests that change, as they are now.")]
    after: Annotated[dict[str, str], doc("The same requests after the change.")]
    limits: Annotated[dict[str, str], doc("The limits after the change; without resources that have none.")]
    result: Annotated[
        ResizeResult,
        doc(
            "`fits`. `deferred`: not as long as the other pods are there. `infeasible`: never on this node with its "
            "configuration. `not-supported`: this kubelet does not resize pods in place."
        ),
    ]
    reason: Annotated[str, doc("Why not, in one sentence; empty: it fits.")]
    exclusive_cpus: Annotated[
        str, doc("CPUs that the container has for itself. A kubelet changes none; see `notes` for an NRI policy.")
    ]
    shared_cpus: Annotated[str, doc("The node's shared pool; empty: the CPU Manager keeps none.")]
    recreated: Annotated[PodPlacement, doc("The pod if it were recreated on its own node.")]
    elsewhere: Annotated[list[PodPlacement], doc("Other nodes that it fits on, the best first; at most 5.")]
    other_nodes: Annotated[int, doc("How many other nodes it fits on.")]
    notes: Notes


class RefusedFileInfo(Answer):
    """A state file with which the kubelet does not start."""

    file: Annotated[str, Field(description="Its name in the kubelet's directory.", examples=["cpu_manager_state"])]
    reason: Annotated[str, doc("Why, in one sentence.")]


class RestartedPodInfo(Answer):
    """What the restart does to one pod."""

    pod: Annotated[str, doc("NAMESPACE/NAME.")]
    order: Annotated[int, doc("Its place in the order of admission, from 1.")]
    result: Annotated[
        Literal["kept", "moved", "may-fail", "fails"],
        doc(
            "`kept`: admitted with what it holds. `moved`: admitted with other CPUs or memory. `may-fail`: it depends "
            "on the order of admission or on a device plugin. `fails`: refused, and ended."
        ),
    ]
    reason: Annotated[str, doc("The pod status reason; empty if it is admitted.")]
    message: Annotated[str, doc("The message of the kubelet; empty if it is admitted.")]
    cpus_before: Annotated[str, doc("Exclusive CPUs that it holds; empty: none.")]
    cpus_after: Annotated[str, doc("Exclusive CPUs afterwards; empty: none, or it fails.")]
    drain_first: Annotated[bool, doc("Whether to evict it before the restart.")]
    elsewhere: Annotated[str | None, doc("The node that would admit it instead; null: none, or it need not move.")]


class RestartedNodeInfo(Answer):
    """What the restart does to one node."""

    node: Annotated[str, doc("Its name.")]
    action: Annotated[
        Literal["restart", "drain-first", "drain-and-delete-files", "does-not-start", "unknown"],
        doc(
            "`restart`: nothing fails. `drain-first`: some pods fail. `drain-and-delete-files`: the kubelet refuses "
            "state files. `does-not-start`: no kubelet starts with this configuration."
        ),
    ]
    kubelet_version: Annotated[str, doc("After the restart; empty: unknown.")]
    error: Annotated[str, doc("Why the configuration is invalid; empty: it is valid.")]
    refused_files: Annotated[list[RefusedFileInfo], doc("Empty: the kubelet reads all of them.")]
    kept: Annotated[int, doc("Pods that keep what they hold.")]
    moved: Annotated[int, doc("Pods that get other CPUs or memory.")]
    may_fail: Annotated[int, doc("Pods that may fail.")]
    fails: Annotated[int, doc("Pods that fail.")]
    pods: Annotated[
        list[RestartedPodInfo], doc("In the order of admission. If there are several nodes, without kept pods.")
    ]


class RestartSummary(Answer):
    """Counts over all nodes."""

    nodes: Annotated[int, doc("Number of nodes.")]
    actions: Annotated[dict[str, int], doc("Nodes by `action`.")]
    pods: Annotated[int, doc("Pods on them that request something from a manager or are watched.")]
    kept: Annotated[int, doc("Pods that keep what they hold.")]
    moved: Annotated[int, doc("Pods that get other CPUs or memory.")]
    may_fail: Annotated[int, doc("Pods that may fail.")]
    fails: Annotated[int, doc("Pods that fail.")]
    drained: Annotated[int, doc("Pods to evict before the restart.")]


class RestartCheckReply(Answer):
    """What the restart does to the nodes and their pods."""

    nodes: Annotated[list[RestartedNodeInfo], doc("The nodes, in a safe order.")]
    summary: Annotated[RestartSummary, doc("Counts.")]
    notes: Notes


class EvictedPod(Answer):
    """One pod to evict, and where its replacement goes."""

    pod: Annotated[str, doc("NAMESPACE/NAME.")]
    node: Annotated[str, doc("The node on which it runs.")]
    priority: Annotated[int, doc("Its priority; 0 if it is not known.")]
    owner: Annotated[str, doc("Kind of its controller; empty if it is not known.")]
    requests: Annotated[dict[str, str], doc("Its requests, as kube-scheduler counts them.")]
    to: Annotated[str, doc("The node for its replacement: it is aligned there if it holds anything.")]
    numa: Annotated[list[int], doc("NUMA nodes on that node; empty: it holds nothing there.")]


class RoomPlan(Answer):
    """Evictions, and where the pod is placed after them."""

    node: Annotated[str, doc("The node that aligns the pod afterwards.")]
    numa: Annotated[list[int], doc("NUMA nodes of the pod on that node.")]
    containers: Annotated[dict[str, ContainerPlacement], doc("Its placement, by container.")]
    cordon: Annotated[
        list[str],
        doc(
            "Nodes to cordon before the first eviction: no replacement may go to a node that has to lose a pod. "
            "Uncordon each one once its last pod here has its replacement, and the plan's node at the end."
        ),
    ]
    evictions: Annotated[
        list[EvictedPod],
        doc(
            "One after another: evict the next one only when the replacement of the one before has a node, and ask "
            "again if it is not `to`. Empty: the pod fits now."
        ),
    ]
    objects: Annotated[str, doc("Eviction objects of policy/v1 as YAML; empty: none.")]
    script: Annotated[str, doc("The same with kubectl, for a POSIX shell; empty: none.")]


class MakeRoomReply(Answer):
    """Plans, the cheapest first."""

    pod: Annotated[PodSummary, doc("The pod as it was understood.")]
    result: Annotated[
        Literal["fits", "room", "none"],
        doc("`fits`: a node aligns it now. `room`: a node aligns it after the first plan. `none`: there is no plan."),
    ]
    plans: Annotated[list[RoomPlan], doc("At most 3, each on another node.")]
    searched: Annotated[int, doc("Sets of pods and placements that were tried.")]
    complete: Annotated[bool, doc("False: not every choice was tried; `notes` say why.")]
    blocked: Annotated[list[str], doc("If there is no plan: what keeps nodes and pods from one, and how many of them.")]
    notes: Notes


class DefragmentPoint(Answer):
    """The cluster after some moves."""

    moves: Annotated[int, doc("Pods moved so far.")]
    copies: Annotated[int, doc("Aligned copies of the pod that fit in all.")]
    largest_cpus: Annotated[int, doc("The most CPUs that such a pod could request and still be aligned; 0: none.")]
    evictions: Annotated[list[EvictedPod], doc("The moves of this step; empty: the present.")]


class DefragmentReply(Answer):
    """How many copies fit after each number of moves."""

    pod: Annotated[PodSummary, doc("The pod as it was understood.")]
    curve: Annotated[list[DefragmentPoint], doc("From the present on; ends where no step gains more.")]
    objects: Annotated[str, doc("All evictions as objects of policy/v1, YAML; empty: none.")]
    complete: Annotated[bool, doc("False: the limit of tries ended the search.")]
    notes: Notes


class TuneRestart(Answer):
    """What restart-check says of a change."""

    files_refused: Annotated[int, doc("Nodes whose kubelets refuse a state file.")]
    not_starting: Annotated[int, doc("Nodes whose kubelets do not start with the change.")]
    pods_failing: Annotated[int, doc("Running pods that fail.")]
    pods_to_drain: Annotated[int, doc("Running pods to evict before the restart.")]


class KubeletPatch(Answer):
    """A change of the kubelet's configuration, for some nodes."""

    nodes: Annotated[list[str], doc("The nodes that need it.")]
    patch: Annotated[str, doc("The changed fields as KubeletConfiguration, YAML.")]


class TunedConfiguration(Answer):
    """One configuration. Numbers of pods are means over the orders of arrival."""

    current: Annotated[bool, doc("Whether this is the present configuration.")]
    best: Annotated[bool, doc("Whether no other configuration surpasses this one.")]
    change: Annotated[
        dict[str, str],
        doc(
            "Fields of KubeletConfiguration; options by name. `reservedSystemCPUs`: which NUMA nodes have the reserved "
            "CPUs."
        ),
    ]
    patches: Annotated[list[KubeletPatch], doc("By node; without nodes that need no change.")]
    admitted: Annotated[int, doc("Pods admitted.")]
    admitted_least: Annotated[int, doc("At least so many in 19 of 20 orders of arrival.")]
    admitted_most: Annotated[int, doc("At most so many in 19 of 20 orders of arrival.")]
    aligned: Annotated[int, doc("Admitted pods that are on one NUMA node.")]
    aligned_least: Annotated[int, doc("As `admitted_least`.")]
    aligned_most: Annotated[int, doc("As `admitted_most`.")]
    split: Annotated[int, doc("Admitted pods that are split over several NUMA nodes.")]
    not_managed: Annotated[int, doc("Admitted pods that no manager places.")]
    refused: Annotated[int, doc("Pods refused.")]
    stranded_cpus: Annotated[
        int,
        doc(
            "Free CPUs of NUMA nodes that have too few for any pod that the node admits; all CPUs of a node that "
            "admits none of its pods."
        ),
    ]
    stranded_cpus_least: Annotated[int, doc("As `admitted_least`.")]
    stranded_cpus_most: Annotated[int, doc("As `admitted_most`.")]
    guarantee_ends: Annotated[
        int,
        doc(
            "Nodes whose kubelets guarantee less alignment than now: after the change they may split a pod that they "
            "would refuse now."
        ),
    ]
    failing_nodes: Annotated[int, doc("Nodes whose kubelets do not start with it.")]
    restart: Annotated[TuneRestart | None, doc("What the change would do now; null: no change, or no time was left.")]


class TuneReply(Answer):
    """The present configuration, then the Pareto front: those that keep the guarantee of alignment first."""

    configurations: Annotated[list[TunedConfiguration], doc("The present one first; at most 7.")]
    pods: Annotated[int, doc("Pods replayed.")]
    nodes: Annotated[int, doc("Nodes replayed; a note says how many were left out.")]
    tried: Annotated[int, doc("Configurations tried.")]
    complete: Annotated[bool, doc("False: not every node and configuration was tried; see `notes`.")]
    seed: Annotated[int, doc("Seed of the orders of arrival. The same seed gives the same answer.")]
    notes: Notes


class RightsizeSuggestion(Answer):
    """A smaller request of one shape of pods."""

    pods: Annotated[int, doc("Pods of this shape.")]
    examples: Annotated[list[str], doc("Some of them, NAMESPACE/NAME.")]
    nodes: Annotated[int, doc("Nodes that they run on.")]
    container: Annotated[str, doc("Name of the container.")]
    resource: Annotated[str, doc("`cpu` or `memory`.")]
    before: Annotated[str, doc("Its request now.")]
    after: Annotated[str, doc("The request that reaches the boundary.")]
    boundary: Annotated[str, doc("Which boundary, in words.")]
    copies_before: Annotated[int, doc("Aligned copies on these nodes if they were empty, now.")]
    copies_after: Annotated[int, doc("The same copies with the smaller request.")]
    freed: Annotated[str, doc("How much less the pods would request in total.")]


class RightsizeReply(Answer):
    """Suggestions, the most valuable first: by the share of copies won, times the pods."""

    suggestions: Annotated[list[RightsizeSuggestion], doc("At most `limit`.")]
    shapes: Annotated[int, doc("Shapes examined.")]
    found: Annotated[int, doc("Suggestions found.")]
    notes: Notes
