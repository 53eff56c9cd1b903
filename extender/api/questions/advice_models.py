"""POST /v1/advice/NAME: the answers. The questions are in `extender.answers.advice_requests`."""

from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import AlignedNUMA, AlignmentCertain, AlignmentName, Answer, ContainerPlacement
from extender.api.questions.what_if_models import PodSummary
from extender.replay.resize import ResizeResult
from extender.replay.verdict import Certainty

Notes = Annotated[list[str], Field(description="Assumptions of the answer, and what was not checked.")]


class PodPlacement(Answer):
    """Where a pod would be placed on one node, or why not."""

    node: Annotated[str, Field(description="Its name.")]
    outcome: Annotated[
        Literal["fits", "topology", "scheduler", "unknown"], Field(description="See `NodeAnswer.outcome`.")
    ]
    alignment: Annotated[AlignmentName | None, Field(description="Null: it does not fit.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA
    containers: Annotated[dict[str, ContainerPlacement], Field(description="By name; empty: it does not fit.")]
    reason: Annotated[str, Field(description="Why not, in one sentence with amounts; empty: it fits.")]
    certainty: Annotated[Certainty, Field(description="How certain the placement is.")]


class ResizeCheckReply(Answer):
    """Whether the kubelet would accept the resize, and the alternatives."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    node: Annotated[str, Field(description="Its node.")]
    container: Annotated[str, Field(description="Name of the container.")]
    before: Annotated[dict[str, str], Field(description="The requests that change, as they are now.")]
    after: Annotated[dict[str, str], Field(description="The same requests after the change.")]
    limits: Annotated[
        dict[str, str], Field(description="The limits after the change; without resources that have none.")
    ]
    result: Annotated[
        ResizeResult,
        Field(
            description="`fits`. `deferred`: not as long as the other pods are there. `infeasible`: never on this node "
            "with its configuration. `not-supported`: this kubelet does not resize pods in place."
        ),
    ]
    reason: Annotated[str, Field(description="Why not, in one sentence; empty: it fits.")]
    exclusive_cpus: Annotated[
        str,
        Field(
            description="CPUs that the container has for itself. A kubelet changes none; see `notes` for an NRI policy."
        ),
    ]
    shared_cpus: Annotated[str, Field(description="The node's shared pool; empty: the CPU Manager keeps none.")]
    recreated: Annotated[PodPlacement, Field(description="The pod if it were recreated on its own node.")]
    elsewhere: Annotated[
        list[PodPlacement], Field(description="Other nodes that it fits on, the best first; at most 5.")
    ]
    other_nodes: Annotated[int, Field(description="How many other nodes it fits on.")]
    notes: Notes


class RefusedFileInfo(Answer):
    """A state file with which the kubelet does not start."""

    file: Annotated[str, Field(description="Its name in the kubelet's directory.", examples=["cpu_manager_state"])]
    reason: Annotated[str, Field(description="Why, in one sentence.")]


class RestartedPodInfo(Answer):
    """What the restart does to one pod."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    order: Annotated[int, Field(description="Its place in the order of admission, from 1.")]
    result: Annotated[
        Literal["kept", "moved", "may-fail", "fails"],
        Field(
            description="`kept`: admitted with what it holds. `moved`: admitted with other CPUs or memory. `may-fail`: "
            "it depends on the order of admission or on a device plugin. `fails`: refused, and ended."
        ),
    ]
    reason: Annotated[str, Field(description="The pod status reason; empty if it is admitted.")]
    message: Annotated[str, Field(description="The message of the kubelet; empty if it is admitted.")]
    cpus_before: Annotated[str, Field(description="Exclusive CPUs that it holds; empty: none.")]
    cpus_after: Annotated[str, Field(description="Exclusive CPUs afterwards; empty: none, or it fails.")]
    drain_first: Annotated[bool, Field(description="Whether to evict it before the restart.")]
    elsewhere: Annotated[
        str | None, Field(description="The node that would admit it instead; null: none, or it need not move.")
    ]


class RestartedNodeInfo(Answer):
    """What the restart does to one node."""

    node: Annotated[str, Field(description="Its name.")]
    action: Annotated[
        Literal["restart", "drain-first", "drain-and-delete-files", "does-not-start", "unknown"],
        Field(
            description="`restart`: nothing fails. `drain-first`: some pods fail. `drain-and-delete-files`: the "
            "kubelet refuses state files. `does-not-start`: no kubelet starts with this configuration."
        ),
    ]
    kubelet_version: Annotated[str, Field(description="After the restart; empty: unknown.")]
    error: Annotated[str, Field(description="Why the configuration is invalid; empty: it is valid.")]
    refused_files: Annotated[list[RefusedFileInfo], Field(description="Empty: the kubelet reads all of them.")]
    kept: Annotated[int, Field(description="Pods that keep what they hold.")]
    moved: Annotated[int, Field(description="Pods that get other CPUs or memory.")]
    may_fail: Annotated[int, Field(description="Pods that may fail.")]
    fails: Annotated[int, Field(description="Pods that fail.")]
    pods: Annotated[
        list[RestartedPodInfo],
        Field(description="In the order of admission. If there are several nodes, without kept pods."),
    ]


class RestartSummary(Answer):
    """Counts over all nodes."""

    nodes: Annotated[int, Field(description="Number of nodes.")]
    actions: Annotated[dict[str, int], Field(description="Nodes by `action`.")]
    pods: Annotated[int, Field(description="Pods on them that request something from a manager or are watched.")]
    kept: Annotated[int, Field(description="Pods that keep what they hold.")]
    moved: Annotated[int, Field(description="Pods that get other CPUs or memory.")]
    may_fail: Annotated[int, Field(description="Pods that may fail.")]
    fails: Annotated[int, Field(description="Pods that fail.")]
    drained: Annotated[int, Field(description="Pods to evict before the restart.")]


class RestartCheckReply(Answer):
    """What the restart does to the nodes and their pods."""

    nodes: Annotated[list[RestartedNodeInfo], Field(description="The nodes, in a safe order.")]
    summary: Annotated[RestartSummary, Field(description="Counts.")]
    notes: Notes


class EvictedPod(Answer):
    """One pod to evict, and where its replacement goes."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    node: Annotated[str, Field(description="The node on which it runs.")]
    priority: Annotated[int, Field(description="Its priority; 0 if it is not known.")]
    owner: Annotated[str, Field(description="Kind of its controller; empty if it is not known.")]
    requests: Annotated[dict[str, str], Field(description="Its requests, as kube-scheduler counts them.")]
    to: Annotated[str, Field(description="The node on which its replacement is aligned.")]
    numa: Annotated[list[int], Field(description="NUMA nodes on that node.")]


class RoomPlan(Answer):
    """Evictions, and where the pod is placed after them."""

    node: Annotated[str, Field(description="The node that aligns the pod afterwards.")]
    numa: Annotated[list[int], Field(description="NUMA nodes of the pod on that node.")]
    containers: Annotated[dict[str, ContainerPlacement], Field(description="Its placement, by container.")]
    evictions: Annotated[list[EvictedPod], Field(description="In the order of their placement; empty: it fits now.")]
    objects: Annotated[str, Field(description="Eviction objects of policy/v1 as YAML; empty: none.")]
    script: Annotated[str, Field(description="The same with kubectl, for a POSIX shell; empty: none.")]


class MakeRoomReply(Answer):
    """Plans, the cheapest first."""

    pod: Annotated[PodSummary, Field(description="The pod as it was understood.")]
    result: Annotated[
        Literal["fits", "room", "none"],
        Field(
            description="`fits`: a node aligns it now. `room`: a node aligns it after the first plan. `none`: there is "
            "no plan."
        ),
    ]
    plans: Annotated[list[RoomPlan], Field(description="At most 3, each on another node.")]
    searched: Annotated[int, Field(description="Sets of pods and placements that were tried.")]
    complete: Annotated[bool, Field(description="False: the limit of tries ended the search.")]
    notes: Notes


class DefragmentPoint(Answer):
    """The cluster after some moves."""

    moves: Annotated[int, Field(description="Pods moved so far.")]
    copies: Annotated[int, Field(description="Aligned copies of the pod that fit in all.")]
    largest_cpus: Annotated[
        int, Field(description="The most CPUs that such a pod could request and still be aligned; 0: none.")
    ]
    evictions: Annotated[list[EvictedPod], Field(description="The moves of this step; empty: the present.")]


class DefragmentReply(Answer):
    """How many copies each number of moves gains."""

    pod: Annotated[PodSummary, Field(description="The pod as it was understood.")]
    curve: Annotated[list[DefragmentPoint], Field(description="From the present on; ends where no step gains more.")]
    objects: Annotated[str, Field(description="All evictions as objects of policy/v1, YAML; empty: none.")]
    complete: Annotated[bool, Field(description="False: the limit of tries ended the search.")]
    notes: Notes


class TuneRestart(Answer):
    """What restart-check says of a change."""

    files_refused: Annotated[int, Field(description="Nodes whose kubelets refuse a state file.")]
    not_starting: Annotated[int, Field(description="Nodes whose kubelets do not start with the change.")]
    pods_failing: Annotated[int, Field(description="Running pods that fail.")]
    pods_to_drain: Annotated[int, Field(description="Running pods to evict before the restart.")]


class KubeletPatch(Answer):
    """A change of the kubelet's configuration, for some nodes."""

    nodes: Annotated[list[str], Field(description="The nodes that need it.")]
    patch: Annotated[str, Field(description="The changed fields as KubeletConfiguration, YAML.")]


class TunedConfiguration(Answer):
    """One configuration. Numbers of pods are means over the orders of arrival."""

    current: Annotated[bool, Field(description="Whether this is the present configuration.")]
    best: Annotated[bool, Field(description="Whether no other configuration surpasses this one.")]
    change: Annotated[
        dict[str, str],
        Field(
            description="Fields of KubeletConfiguration; options by name. `reservedSystemCPUs`: which NUMA nodes have "
            "the reserved CPUs."
        ),
    ]
    patches: Annotated[list[KubeletPatch], Field(description="By node; without nodes that need no change.")]
    admitted: Annotated[int, Field(description="Pods admitted.")]
    admitted_least: Annotated[int, Field(description="At least so many in 19 of 20 orders of arrival.")]
    admitted_most: Annotated[int, Field(description="At most so many in 19 of 20 orders of arrival.")]
    aligned: Annotated[int, Field(description="Admitted pods that are on one NUMA node.")]
    split: Annotated[int, Field(description="Admitted pods that are split over several NUMA nodes.")]
    not_managed: Annotated[int, Field(description="Admitted pods that no manager places.")]
    refused: Annotated[int, Field(description="Pods refused.")]
    stranded_cpus: Annotated[
        int,
        Field(
            description="Free CPUs of NUMA nodes that have too few for any pod that the node admits; all CPUs of a "
            "node that admits none of its pods."
        ),
    ]
    failing_nodes: Annotated[int, Field(description="Nodes whose kubelets do not start with it.")]
    restart: Annotated[TuneRestart | None, Field(description="What the change would do now; null: no change.")]


class TuneReply(Answer):
    """The present configuration, then the Pareto front."""

    configurations: Annotated[list[TunedConfiguration], Field(description="The present one first; at most 7.")]
    pods: Annotated[int, Field(description="Pods replayed.")]
    nodes: Annotated[int, Field(description="Nodes replayed; a note says how many were left out.")]
    tried: Annotated[int, Field(description="Configurations tried.")]
    seed: Annotated[int, Field(description="Seed of the search. The same seed gives the same answer.")]
    notes: Notes


class RightsizeSuggestion(Answer):
    """A smaller request of one shape of pods."""

    pods: Annotated[int, Field(description="Pods of this shape.")]
    examples: Annotated[list[str], Field(description="Some of them, NAMESPACE/NAME.")]
    nodes: Annotated[int, Field(description="Nodes that they run on.")]
    container: Annotated[str, Field(description="Name of the container.")]
    resource: Annotated[str, Field(description="`cpu` or `memory`.")]
    before: Annotated[str, Field(description="Its request now.")]
    after: Annotated[str, Field(description="The request that reaches the boundary.")]
    boundary: Annotated[str, Field(description="Which boundary, in words.")]
    copies_before: Annotated[int, Field(description="Aligned copies on these nodes if they were empty, now.")]
    copies_after: Annotated[int, Field(description="The same copies with the smaller request.")]
    freed: Annotated[str, Field(description="How much less the pods would request in total.")]


class RightsizeReply(Answer):
    """Suggestions, the most valuable first: by the share of copies won, times the pods."""

    suggestions: Annotated[list[RightsizeSuggestion], Field(description="At most `limit`.")]
    shapes: Annotated[int, Field(description="Shapes examined.")]
    found: Annotated[int, Field(description="Suggestions found.")]
    notes: Notes
