"""Explains one verdict: the hints of each provider, the result of the merge, the first failure, and what would fit.

Rules of this file
- The explanation is the replay's own trace. The sentence about the first failure uses the trace, the verdict, and the
  state in which the kubelet refused the pod.
- Limited to `MAX_STEPS` steps and `MAX_HINTS` hints per provider, with a count of what is left out.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from extender.kubelet import cpu_manager, device_manager, memory_manager
from extender.kubelet.admission import Outcome, admit, is_given_up
from extender.kubelet.config import TopologyPolicy
from extender.kubelet.errors import BudgetError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import format_list, iter_bits
from extender.kubelet.startup import format_bytes
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import (
    Admitted,
    HintsOffered,
    Merged,
    Provider,
    Reason,
    RecordingTrace,
    Rejected,
    TraceEvent,
)
from extender.nri.comparison import PoolComparison, compare_pools
from extender.questions.free_room import numa_room
from extender.questions.suggestions import nearest
from extender.replay.alignment_demand import AlignmentDemand, ContainerDemand, Demand, MemoryDemand
from extender.replay.creation import grants_of, policy_of, with_devices
from extender.replay.demands import Breach, BrokenDemand, broken_by_outcome, is_always_met
from extender.replay.nri_pod import nri_pod
from extender.replay.pod import Pod
from extender.scheduling.pod_shape import SHAPE_UID
from extender.wire.pod_replies import AllocationStep, ComparedPool, Explanation, Hint, HintsStep, MergeStep, PoolsStep
from extender.wire.verdicts import shown_amount

MAX_STEPS: Final = 256
MAX_HINTS: Final = 32
MAX_CONTAINERS: Final = 16
"""For how many containers of a pod pools are compared."""
MAX_POOLS: Final = 64


def explain(kubelet: Kubelet, state: ManagerState, pod: Pod, *, search: bool = True) -> Explanation:
    """Explain the admission of *pod* as a new pod. *search*: also find the nearest requests that would be admitted.

    `first_fault` None: the pod is admitted as it demands.
    """
    trace = RecordingTrace()
    pod = replace(pod, uid=SHAPE_UID)
    request = resolve(pod, kubelet.rules)
    outcome = admit(kubelet, state, request, trace, verdict_only=not pod.demand.is_required)
    if isinstance(outcome.verdict, Rejected):
        fault = first_fault(kubelet, state, request, outcome.verdict, trace.events)
    else:
        fault = demand_fault(pod.demand, kubelet, request, (outcome, *outcome.alternatives))
    near, replays = nearest(kubelet, state, pod) if fault and search and not pod.demand.fault else ([], 0)
    return Explanation(
        first_fault=fault or None,
        steps=[*map(_step, trace.events[:MAX_STEPS]), *map(_pools_step, _pools(kubelet, outcome, request))],
        steps_left_out=max(0, len(trace.events) - MAX_STEPS),
        nearest=near,
        replays=replays,
    )


def _step(event: TraceEvent) -> HintsStep | MergeStep | AllocationStep:
    if isinstance(event, HintsOffered):
        return _offer(event)
    if isinstance(event, Merged):
        return MergeStep.filled(event, affinity=None if event.affinity is None else list(iter_bits(event.affinity)))
    return AllocationStep.filled(event, provider=Provider(event.provider))


def _offer(event: HintsOffered) -> HintsStep:
    hints = event.hints or ()
    return HintsStep.filled(
        event,
        provider=Provider(event.provider),
        wanted=shown_amount(event.wanted) or 0,
        opinion="none" if event.hints is None else "hints" if hints else "impossible",
        hints=[Hint(numa=list(iter_bits(each.mask)), preferred=each.preferred) for each in hints[:MAX_HINTS]],
        hints_left_out=max(0, len(hints) - MAX_HINTS),
        preferred_count=sum(each.preferred for each in hints),
    )


def _pools_step(comparison: PoolComparison) -> PoolsStep:
    pools = [
        ComparedPool(
            pool=score.pool.name,
            depth=score.pool.depth,
            shared_left_millicpu=score.shared,
            isolated_left=score.isolated,
            memory_numa=None if score.offer is None else list(iter_bits(score.offer.zone)),
            hint_score=round(score.hint_product, 3) if has_hints else None,
            containers=score.colocated,
            lost_by=lost_by,
            why_not=lost_by.sentence,
        )
        for score, lost_by, has_hints in comparison.pools[:MAX_POOLS]
    ]
    return PoolsStep.filled(comparison, pools=pools, pools_left_out=max(0, len(comparison.pools) - MAX_POOLS))


def _pools(kubelet: Kubelet, outcome: Outcome, request: PodRequest) -> tuple[PoolComparison, ...]:
    """Empty if the kubelet refuses the pod, or the replay of a decision takes too many steps."""
    policy, state, pod = policy_of(kubelet), grants_of(outcome.before), nri_pod(request)
    if isinstance(outcome.verdict, Rejected) and outcome.verdict.provider is not Provider.RUNTIME:
        return ()
    if policy is None or state is None or pod.excess:
        return ()
    if isinstance(outcome.verdict, Admitted):
        pod = with_devices(policy, pod, outcome.verdict, outcome.state.devices)
    with suppress(BudgetError):
        return tuple(compare_pools(replace(state.node, running={}), pod.pod, pod.containers[:MAX_CONTAINERS]))
    return ()


def first_fault(
    kubelet: Kubelet, state: ManagerState, request: PodRequest, verdict: Rejected, events: Iterable[TraceEvent]
) -> str:
    """The first failure, in one sentence. *state*: before the pod."""
    if verdict.reason is Reason.KUBELET_PANIC:
        return _crash(kubelet, verdict)
    if is_given_up(verdict):
        return f"The verdict is unknown: {verdict.message}."
    if verdict.provider is Provider.RUNTIME:
        return f"{_who(verdict)} would fail to start, because the NRI policy refuses it: {verdict.message}."
    # its earlier containers have got their parts
    state = admit(kubelet, state, request, verdict_only=True, collects=False).state
    if verdict.reason is not Reason.TOPOLOGY_AFFINITY:
        return _in_allocation(kubelet, state, request.uid, verdict)
    merge = [event for event in events if isinstance(event, HintsOffered) and event.container == verdict.container]
    if verdict.provider is Provider.TOPOLOGY:
        return _nothing_in_common(verdict, merge)
    offer = next((e for e in merge if (e.provider, e.resource) == (verdict.provider, verdict.resource)), None)
    return _cannot_be_aligned(kubelet, state, request.uid, verdict, offer)


def _crash(kubelet: Kubelet, verdict: Rejected) -> str:
    """The kubelet crashes."""
    if (missing := verdict.resource) is not None:
        sizes = [{f"hugepages-{format_bytes(size)}" for size in node.hugepages} for node in kubelet.machine.numa_nodes]
        if not any(missing in each for each in sizes):
            return f"The node has no {missing}, and its kubelet would crash on a pod that requests them."
        lacking = [str(n.id) for n, each in zip(kubelet.machine.numa_nodes, sizes, strict=True) if missing not in each]
        where = f"NUMA {', '.join(lacking)}"
        return f"The node has no {missing} on {where}, and its kubelet would crash on a pod that requests them."
    return f"The kubelet would crash on this pod: {verdict.message}."


def _in_allocation(kubelet: Kubelet, state: ManagerState, uid: str, verdict: Rejected) -> str:
    """A manager could not allocate what the merge allowed, or there was no merge. *state*: at that moment."""
    if verdict.resource is None or verdict.wanted is None:
        return f"{_who(verdict)} is refused by the {verdict.provider} manager: {verdict.message}."
    sentence = f"{_who(verdict)} wants {_amount(verdict.resource, verdict.wanted)}"
    if verdict.had is None:
        return f"{sentence}: {verdict.message}."
    if verdict.provider is Provider.MEMORY and (most := _most(kubelet, state, uid, verdict)):
        return f"{sentence}, and the most that is free on one NUMA node is {most}."
    return f"{sentence}, and {_amount(verdict.resource, verdict.had)} {'is' if verdict.had == 1 else 'are'} available."


def _nothing_in_common(verdict: Rejected, offers: Iterable[HintsOffered]) -> str:
    """Each resource could be aligned, but not on the same NUMA nodes."""
    places = []
    for offer in offers:
        preferred = [hint.mask for hint in offer.hints or () if hint.preferred]
        if preferred:
            narrowest = min(mask.bit_count() for mask in preferred)
            where = " or ".join(format_list(m) for m in preferred if m.bit_count() == narrowest)
            places.append(f"{_amount(offer.resource, offer.wanted)} on NUMA {where}")
    return f"{_who(verdict)} could have {_listed(places)}, but not all of it in the same place."


def _cannot_be_aligned(
    kubelet: Kubelet, state: ManagerState, uid: str, verdict: Rejected, offer: HintsOffered | None
) -> str:
    """A single resource cannot be aligned. *state*: when the pod was refused."""
    resource = verdict.resource or ""
    wanted = _amount(resource, verdict.wanted or 0)
    single = kubelet.policy is TopologyPolicy.SINGLE_NUMA_NODE
    width = offer.minimum_width if offer is not None else None
    if single and width is not None and width > 1:
        return f"{_who(verdict)} wants {wanted}, more than any one NUMA node of this machine has."
    nodes = "one NUMA node" if single or width in (None, 1) else f"{width} NUMA nodes"
    sentence = f"{_who(verdict)} wants {wanted} from {nodes}"
    if nodes == "one NUMA node" and (most := _most(kubelet, state, uid, verdict)):
        return f"{sentence}, and the most that is free on one is {most}."
    if offer is not None and not offer.hints:
        return f"{sentence}, and no set of NUMA nodes has that much free."
    if kept := _kept(kubelet, state, resource, uid):
        where = f"with those of the pod's init containers on NUMA {format_list(kept)}"
        return f"{sentence}, {where}, and there is no such place."
    return f"{sentence}, and what is free is spread over more."


def _kept(kubelet: Kubelet, state: ManagerState, resource: str, uid: str) -> int:
    """The NUMA nodes of the CPUs or devices that the next container of the pod has to take over; 0: none."""
    cpus = cpu_manager.reusable_by(state.cpu, uid) if resource == "cpu" else 0
    kept = sum(1 << numa for numa, members in kubelet.machine.numa_cpus.items() if members & cpus)
    for each in device_manager.reusable_by(state.devices, uid).get(resource, ()):
        kept |= state.devices.devices[resource][each].numa or 0
    return kept


def _most(kubelet: Kubelet, state: ManagerState, uid: str, verdict: Rejected) -> str:
    """The largest amount of the resource that is free on one NUMA node, and on which.

    Empty if the amounts are not counted, or if this one is not less than what is wanted and so does not explain the
    refusal.
    """
    resource, wanted = verdict.resource or "", verdict.wanted or 0
    rooms = _rooms(kubelet, state, resource, uid)
    numa, most = max(rooms.items(), key=lambda item: (item[1], -item[0]), default=(0, wanted))
    return f"{_amount(resource, most)}, on NUMA {numa}" if most < wanted else ""


def _rooms(kubelet: Kubelet, state: ManagerState, resource: str, uid: str) -> dict[int, int]:
    """What the next container of the pod can have of one resource, by NUMA node. Empty if it is not counted.

    Containers take over what init containers before them had.
    """
    cpus = replace(state.cpu, default=state.cpu.default | cpu_manager.reusable_by(state.cpu, uid))
    rooms = numa_room(kubelet, replace(state, cpu=cpus))
    if resource == "cpu":
        return {numa: room.cpus for numa, room in rooms.items()}
    if (devices := state.devices.devices.get(resource)) is not None:
        left = [devices[each].numa or 0 for each in device_manager.reusable_by(state.devices, uid).get(resource, ())]
        return {
            numa: room.devices.get(resource, 0) + sum(mask >> numa & 1 for mask in left) for numa, room in rooms.items()
        }
    memory = memory_manager.reusable_by(state.memory, uid)
    return {
        numa: room.memory[resource] + memory.get((1 << numa, resource), 0)
        for numa, room in rooms.items()
        if resource in room.memory
    }


def _who(verdict: Rejected) -> str:
    return f"Container {verdict.container}" if verdict.container is not None else "The pod as a whole"


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return f"{amount} {'CPU' if amount == 1 else 'CPUs'}"
    if resource == "memory" or resource.startswith("hugepages-"):
        return f"{format_bytes(amount)} of {resource}"
    return f"{amount} {resource}"


def _listed(parts: list[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def demand_fault(demand: Demand, kubelet: Kubelet, request: PodRequest, outcomes: Iterable[Outcome]) -> str:
    """How an outcome breaks the pod's demand, in a sentence. Empty: each meets it, or refuses the pod."""
    if demand.fault:
        return f"The pod's demand is not understood: {demand.fault}."
    if not demand.is_required or is_always_met(demand, kubelet.machine):
        return ""
    broken = (broken_by_outcome(demand, kubelet, request, outcome) for outcome in outcomes)
    return next((sentence_of(demand, found) for found in broken if found is not None), "")


def sentence_of(demand: Demand, broken: BrokenDemand) -> str:
    """One broken demand in a sentence."""
    wanted = _wanted(demand.of(broken.container or ""))
    who = f"container {broken.container}" if broken.container is not None else "the pod as a whole"
    where = f"on NUMA {format_list(broken.numa)}"
    match broken.breach:
        case Breach.NUMA_NODES:
            return f"The pod demands one NUMA node, and {who} would be split {where}."
        case Breach.SOCKETS:
            return f"The pod demands one socket, and {who} would be split {where}."
        case Breach.REMOTE_MEMORY:
            return f"The pod demands {wanted}, and CPUs and memory of {who} could be on different NUMA nodes."
        case Breach.NOT_PLACED:
            return f"The pod demands {wanted}, and the kubelet would not place {who} on NUMA nodes."


def _wanted(demand: ContainerDemand) -> str:
    if demand.memory is MemoryDemand.NO_REMOTE_MEMORY:
        return "local memory"
    if demand.alignment is AlignmentDemand.SINGLE_NUMA_NODE:
        return "one NUMA node"
    return "one socket"
