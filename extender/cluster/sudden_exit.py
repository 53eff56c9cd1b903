"""Whether a pod in flight is still certain to be admitted, as it demands, if any single other pod exits unobserved.

A pod can exit some time before this service learns of it. More free resources can turn an admission into a refusal: a
container is then placed elsewhere and leaves other resources to the next one, memory of init containers can be reused
only where it was allocated, and groups of NUMA nodes hide memory that a single node would offer. Without this check 14
of 99,905 bound pods were refused (`make drill`).

Rules of this file
- Under the NRI topology-aware policy a container that shares CPUs is refused only by the sums of the node, which can
  only grow. One that gets whole CPUs may find too few in its pool, which another exit can change.
- `can_only_gain` finds most pods that survive any exit without a replay: one container, on a node without groups. Each
  manager then offers at least the hints that it offered before, of the same widths. If their merge was preferred and on
  one NUMA node, it still is. What the managers take there depends only on counts, which have grown.
- `have_room_together` finds most others: one NUMA node has room for all pods in flight, wherever each of them goes. It
  counts, so its cost does not grow with the pods of the node.
- Only True is an answer of these two functions. Otherwise `survives_sudden_exit` replays the exit of each other pod.
  Pods whose exits free the same amounts on the same NUMA node count once, where ids do not matter.

Mirrors: kubelet `cm/cpumanager/policy_static.go`, `cm/memorymanager/policy_static.go`, `cm/topologymanager/policy.go`.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Final

from extender.cluster.projection import Projection, ProjectionInput, project_from
from extender.cluster.steps import MAX_MAYBE_GONE, Steps
from extender.kubelet.config import CPUOptions, TopologyPolicy
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Certainty, Verdict
from extender.replay.free_amounts import FreeAmounts, layout_of
from extender.replay.nri_pod import nri_pod
from extender.replay.pod import claimed_of

MAX_EXITS: Final = 64
"""The exits of how many other pods are replayed. A node rarely runs more aligned pods."""
MAX_EXIT_ADMISSIONS: Final = 512
"""How many admissions all bind calls together replay for this: about a quarter of a second in another thread."""

MAX_COUNTED: Final = 16
"""For how many pods in flight it is counted how often their largest amounts fit."""
MAX_EXIT_STEPS: Final = 1_000_000
"""Most steps for replaying exits in one bind call, checked after each exit."""


def survives_sudden_exit(given: ProjectionInput, uid: str, max_admissions: int = MAX_EXIT_ADMISSIONS) -> bool:
    """Whether the pod in flight is certain to be admitted if any single other pod exits unobserved.

    Where the order of admissions is not certain, the pods that it may overtake must also stay as certain as before.
    Replays stop after about *max_admissions*, or `MAX_EXIT_STEPS`; exits that were not replayed then count as harmless.
    """
    # 1. The node without any exit. A pod that is alone in flight only meets exits before its admission.
    steps = Steps()
    start, leaving = given.initial_states(steps), given.leaving
    if not steps.is_all:
        return False
    in_flight = {admit.uid for admit in given.ledger.admits}
    is_alone = in_flight == {uid}
    at_risk = frozenset() if is_alone else project_from(start, given, leaving, steps).at_risk
    # 2. Each other pod that is assumed to run exits: at an unknown time, unless the pod is alone in flight.
    others = (start[0].pod_uids | in_flight) - leaving - given.ledger.left.keys() - {uid}
    worked = steps.work
    for other in islice(_one_of_each_kind(given, start[0], others, steps), MAX_EXITS):
        if is_alone:
            gone = tuple(after for state in start for after in steps.release(state, (other,)))
            projection = project_from(gone, given, leaving, steps)
        else:
            projection = project_from(start, given, leaving | {other}, steps)
        # 3. No endangered pod may be refused, or placed against its demand, in any order.
        endangered = frozenset({uid}) if projection.one_order else projection.at_risk - at_risk | {uid}
        if not projection.complete or projection.at_risk & endangered:
            return False
        worked += steps.work
        if steps.admissions >= max_admissions or worked > MAX_EXIT_STEPS:
            break
    return True


def is_known_to_survive(given: ProjectionInput, uid: str, projection: Projection, steps: Steps) -> bool:
    """Whether `survives_sudden_exit` is certain to be True, without a replay. False: not known.

    *projection*: what `project` returned for the same input.
    """
    admits = given.ledger.admits
    # With one pod less, every combination of the pods that may be gone must still be followed.
    maybe_gone = len(given.leaving) + len(given.ledger.starting)
    is_alone = projection.complete and [admit.uid for admit in admits] == [uid]
    if is_alone and not given.maybe_gone and maybe_gone <= MAX_MAYBE_GONE:
        request, is_demanding = steps.request(admits[0].pod, given.kubelet.rules), admits[0].pod.demand.is_required
        verdicts = projection.verdicts.get(uid, ())
        if can_only_gain(given.kubelet, given.reported, request, verdicts, is_demanding=is_demanding):
            return True
    return have_room_together(given, projection, steps)


def have_room_together(given: ProjectionInput, projection: Projection, steps: Steps) -> bool:
    """Whether all pods in flight are admitted, as they demand, in any order and whichever other pods exit.

    One NUMA node then has room for all of them together. Each container finds room on this node, so its hints
    contain a preferred one of a single NUMA node. Exits only add room, and no group of NUMA nodes can come into being.
    A container that takes over what an init container had must follow it: then each NUMA node must have that room.
    With single-numa-node and one container a pod, it is enough if the largest amounts fit on the NUMA nodes as often as
    there are pods, as each pod takes the place of at most one: 8 CPUs fit 4 times in 17 and 16. False: not known.
    """
    kubelet, is_by_count = given.kubelet, _takes_by_count(given.kubelet.cpu_options)
    if kubelet.runtime is not None or not is_by_count or not projection.complete or projection.at_risk:
        return False
    if kubelet.memory_static and kubelet.policy is not TopologyPolicy.SINGLE_NUMA_NODE:
        return False
    wanted, largest, reuses, pods = Counter[str](), Counter[str](), False, len(given.ledger.admits)
    is_counted = kubelet.policy is TopologyPolicy.SINGLE_NUMA_NODE and pods <= MAX_COUNTED
    for admit in given.ledger.admits:
        request = steps.request(admit.pod, kubelet.rules)
        is_aligned = kubelet.policy is not TopologyPolicy.NONE and len(request.containers) == 1
        if request.pod_level is not None or request.total_devices or claimed_of(request):
            return False
        if admit.pod.demand.is_required and not is_aligned:
            return False
        is_counted &= len(request.containers) == 1
        for container in request.containers:
            amounts = {"cpu": container.cpus} if kubelet.cpu_static else {}
            amounts |= (container.memory_bytes or {}) if kubelet.memory_static else {}
            wanted.update(amounts)
            largest |= Counter(amounts)
            reuses |= container.reusable
    multiples = [{name: n * size for name, size in largest.items()} for n in range(1, pods + 1)] if is_counted else []
    return all(
        _able(kubelet, free, wanted, everywhere=reuses)
        or sum(max(0, _able(kubelet, free, each)).bit_count() for each in multiples) >= pods
        for free in (steps.amounts(kubelet, state) for state in given.initial_states(steps))
    )


def _able(kubelet: Kubelet, amounts: FreeAmounts, wanted: Mapping[str, int], *, everywhere: bool = False) -> int:
    """The NUMA nodes that have all that is wanted; none if one is in a group or, with *everywhere*, not each has it."""
    if amounts.bytes.grouped:
        return 0
    able, every = -1, 0
    rows = {resource: amounts.single.get(resource) for resource, size in wanted.items() if size}
    if "cpu" in rows and kubelet.cpu_options.full_pcpus_only:
        bits = (1 << numa for numa in kubelet.machine.cpu_numa_ids)
        rows["cpu"] = tuple(zip(bits, map(min, amounts.cpus.free, amounts.cpus.physical), strict=True))
    for resource, row in rows.items():
        if row is None:
            return 0
        able &= sum(bit for bit, free in row if free >= wanted[resource])
        every |= sum(bit for bit, _ in row)
    return able if not everywhere or able & every == every else 0


def _one_of_each_kind(given: ProjectionInput, start: ManagerState, uids: Collection[str], steps: Steps) -> list[str]:
    """One UID of each set of *uids* whose exits have the same effect on the admissions that follow."""
    kubelet, in_flight = given.kubelet, given.ledger.admits
    counts_decide = (
        kubelet.policy is TopologyPolicy.SINGLE_NUMA_NODE
        and kubelet.runtime is None
        and _takes_by_count(kubelet.cpu_options)
        and not kubelet.cpu_options.full_pcpus_only
        and layout_of(kubelet).counts_suffice
        and not any(steps.request(admit.pod, kubelet.rules).total_devices for admit in in_flight)
    )
    if not counts_decide:
        return sorted(uids)
    apart = {admit.uid for admit in in_flight} | given.ledger.starting.keys()
    numa_cpus = kubelet.machine.numa_cpus.values()
    kinds: dict[object, str] = {}
    for uid in sorted(uids):
        cpus = [each & cpu for each in start.cpu.entries.get(uid, {}).values() for cpu in numa_cpus]
        blocks = sorted(block for held in start.memory.entries.get(uid, {}).values() for block in held)
        is_apart = uid in apart or uid in start.cpu.pod_entries or uid in start.memory.pod_entries
        kinds.setdefault(uid if is_apart else (tuple(each.bit_count() for each in cpus), tuple(blocks)), uid)
    return list(kinds.values())


def can_only_gain(
    kubelet: Kubelet,
    state: ManagerState,
    request: PodRequest,
    verdicts: Sequence[Verdict],
    *,
    is_demanding: bool = False,
) -> bool:
    """Whether the pod is still admitted if any pods of *state* exit before its admission. False: not known.

    *is_demanding*: the pod must also be placed as it demands. A placement on one NUMA node always meets the demand.
    *verdicts* are those of its admission from *state*, and from every state that differs from it by pods that may have
    exited or whose init containers may be over.
    """
    if kubelet.runtime is not None:
        return nri_pod(request).takes_no_whole_cpus and all(map(_is_certain, verdicts))
    if len(request.containers) != 1 or request.pod_level is not None or request.total_devices or claimed_of(request):
        return False
    if not _takes_by_count(kubelet.cpu_options):
        return False
    (container,) = request.containers
    pins_memory = kubelet.memory_static and container.memory_bytes is not None
    if pins_memory and any(node.cells != 1 << node.id for node in state.memory.nodes):
        return False
    needs_one_node = pins_memory or is_demanding
    return bool(verdicts) and all(_is_firm(each, container.name, needs_one_node=needs_one_node) for each in verdicts)


@lru_cache
def _takes_by_count(options: CPUOptions) -> bool:
    """Whether a CPU manager with these options can give CPUs whenever there are enough of them."""
    return replace(options, full_pcpus_only=False, strict_reservation=False) == CPUOptions()


def _is_certain(verdict: Verdict) -> bool:
    return isinstance(verdict, Admitted) and verdict.certainty is not Certainty.POSSIBLE


def _is_firm(verdict: Verdict, container: str, *, needs_one_node: bool) -> bool:
    """Whether the pod is admitted and, with *needs_one_node*, a preferred hint puts it on one NUMA node."""
    if not isinstance(verdict, Admitted) or verdict.certainty is Certainty.POSSIBLE:
        return False
    placed = verdict.placements[container]
    is_on_one_node = placed.affinity is not None and placed.affinity.bit_count() == 1 and placed.preferred
    return is_on_one_node or not needs_one_node
