"""Pods whose admission no end of another pod can turn into a refusal: no replay is needed to find that out.

Laws of this file
- A refusal because of *more* room is possible: a container that finds another place than before leaves another one to
  the next container, memory of init containers is taken over only where they were put, and groups of NUMA nodes hide
  memory that a single one would offer. None of these is there for a pod of one container on a node without groups.
- Then each manager offers at least the hints that it offered before, of the same widths. If their merge was preferred
  and on one NUMA node, it still is, and what the managers take under it is a question of counts, which have grown.
- Only a yes is an answer. Where this file cannot tell, the question is replayed (`following.survives_sudden_exit`).

Mirrors: kubelet `cm/cpumanager/policy_static.go`, `cm/memorymanager/policy_static.go`, `cm/topologymanager/policy.go`.
"""

from collections.abc import Sequence
from dataclasses import replace

from extender.replay.config import CPUOptions
from extender.replay.kubelet import Kubelet
from extender.replay.pod import PodRequest
from extender.replay.state import ManagerState
from extender.replay.verdict import Admitted, Certainty, Verdict


def can_only_gain(kubelet: Kubelet, state: ManagerState, request: PodRequest, verdicts: Sequence[Verdict]) -> bool:
    """Whether the pod is still admitted if any pods of *state* end before its admission.

    *verdicts* are those of its admission from *state*, and from every state that differs from it by other pods that may
    have ended or whose init containers may be over. False: not known.
    """
    if len(request.containers) != 1 or request.pod_level is not None or request.total_devices:
        return False
    if not _takes_by_count(kubelet.cpu_options):
        return False
    (container,) = request.containers
    pins_memory = kubelet.memory_static and container.memory_bytes is not None
    if pins_memory and any(node.cells != 1 << node.id for node in state.memory.nodes):
        return False
    return bool(verdicts) and all(_is_firm(verdict, container.name, pins_memory=pins_memory) for verdict in verdicts)


def _takes_by_count(options: CPUOptions) -> bool:
    """Whether the CPU manager can give CPUs whenever there are enough of them."""
    return replace(options, full_pcpus_only=False, strict_reservation=False) == CPUOptions()


def _is_firm(verdict: Verdict, container: str, *, pins_memory: bool) -> bool:
    """Whether the pod is admitted; with pinned memory only if a preferred hint puts it on one NUMA node."""
    if not isinstance(verdict, Admitted) or verdict.certainty is Certainty.POSSIBLE:
        return False
    placed = verdict.placements[container]
    is_on_one_node = placed.affinity is not None and placed.affinity.bit_count() == 1 and placed.preferred
    return is_on_one_node or not pins_memory
