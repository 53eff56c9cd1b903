"""The law of the coarse replay: where it answers, its answer is the one of the full replay."""

from collections.abc import Mapping

from extender.kubelet.admission import Outcome, admit
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Placement, Reason, Rejected
from extender.replay.coarse.admission import CoarseReplay
from extender.replay.coarse.amounts import NO_TOPOLOGY, FreeAmounts, Kinds
from extender.replay.coarse.devices import footprint
from extender.replay.coarse.layout import layout_of
from extender.replay.coarse.verdict import CoarseAdmitted, CoarseRejected, CoarseVerdict
from extender.scheduling.ranking.outcome import _footprint

Facts = dict[str, object]


def amounts_of(kubelet: Kubelet, state: ManagerState) -> FreeAmounts:
    return FreeAmounts.of(kubelet, layout_of(kubelet), state)


def is_new(state: ManagerState, request: PodRequest) -> bool:
    """The coarse replay is for pods that the node holds nothing of, and that were not the last to be admitted."""
    held = state.pod_uids | state.cpu.pod_entries.keys() | state.memory.pod_entries.keys()
    last = {state.cpu.reusable[0], state.memory.reusable[0], state.devices.reusable[0]}
    return request.uid not in held | last


def compared(
    kubelet: Kubelet, state: ManagerState, request: PodRequest, replay: CoarseReplay | None = None
) -> tuple[CoarseVerdict | None, Outcome, Facts]:
    """The coarse answer, the full outcome, and the facts in which they differ: name -> (coarse, full)."""
    coarse = (replay or CoarseReplay(request)).admit(amounts_of(kubelet, state))
    full = admit(kubelet, state, request)
    return coarse, full, {} if coarse is None else differences(coarse, kubelet, state, full)


def differences(coarse: CoarseVerdict, kubelet: Kubelet, state: ManagerState, full: Outcome) -> Facts:
    """The facts in which a coarse answer and a full outcome differ: name -> (coarse, full)."""
    if full.alternatives or not full.complete or full.verdict.certainty is not kubelet.certainty:
        return {"certainty": (coarse, full)}
    if isinstance(full.verdict, Rejected) or isinstance(coarse, CoarseRejected):
        theirs = _rejection(full.verdict) if isinstance(full.verdict, Rejected) else full.verdict
        return {} if coarse == theirs else {"verdict": (coarse, theirs)}
    ours = {**_known(coarse, amounts_of(kubelet, state)), **_spans(coarse)}
    theirs_by_name = {**_facts(kubelet, state, full, full.verdict)}
    return {name: (ours[name], theirs_by_name[name]) for name in ours if ours[name] != theirs_by_name[name]}


def _rejection(verdict: Rejected) -> CoarseRejected:
    assert isinstance(verdict.reason, Reason)
    return CoarseRejected(verdict.reason, verdict.provider, verdict.container, verdict.resource, verdict.when)


def _known(coarse: CoarseAdmitted, before: FreeAmounts) -> Facts:
    """The placements, and what is left of what was free before."""
    taken = coarse.taken
    facts: Facts = {f"placement of {name}": placement for name, placement in coarse.placements.items()}
    facts |= {f"free {name}": _less(free, taken.bytes.get(name)) for name, free in before.bytes.free.items()}
    for resource, devices in before.devices.items():
        gone = taken.devices.get(resource, {})
        facts[f"free {resource}"] = {kind: left for kind, n in devices.free if (left := n - gone.get(kind, 0))}
    facts["grouped"] = (before.bytes.grouped | taken.joined) & ~taken.left
    if taken.cpus is not None:
        facts["free cpus"] = _less(before.cpus.free, taken.cpus)
    if taken.physical is not None:
        facts["physical cpus"] = _less(before.cpus.physical, taken.physical)
    return facts


def _less(before: tuple[int, ...], taken: tuple[int, ...] | None) -> tuple[int, ...]:
    return before if taken is None else tuple(was - gone for was, gone in zip(before, taken, strict=False))


def _spans(coarse: CoarseAdmitted) -> Facts:
    """The NUMA nodes that the strategy least-numa counts, where they do not depend on ids."""
    spans = {n: footprint(p.devices, p.cpus | p.memory) for n, p in coarse.placements.items()}
    return {f"footprint of {name}": span for name, span in spans.items() if span is not None}


def _facts(kubelet: Kubelet, before: ManagerState, full: Outcome, verdict: Admitted) -> Facts:
    after = amounts_of(kubelet, full.state)
    facts: Facts = {f"placement of {n}": _placed(kubelet, before, p) for n, p in verdict.placements.items()}
    facts |= {f"footprint of {n}": _footprint(kubelet.machine, before, p) for n, p in verdict.placements.items()}
    facts |= {f"free {name}": amounts for name, amounts in after.bytes.free.items()}
    facts |= {f"free {resource}": dict(devices.free) for resource, devices in after.devices.items()}
    facts["grouped"] = after.bytes.grouped
    facts["free cpus"], facts["physical cpus"] = after.cpus.free, after.cpus.physical
    return facts


def _placed(kubelet: Kubelet, before: ManagerState, placement: Placement) -> object:
    memory = 0
    for block in placement.memory:
        memory |= block.mask
    cpus = kubelet.machine.numa_bits_of_cpus(placement.cpus)
    devices = tuple((r, _kinds(before, r, ids)) for r, ids in placement.devices.items() if ids)
    return placement.affinity, placement.preferred, cpus, memory, devices


def _kinds(state: ManagerState, resource: str, ids: tuple[str, ...]) -> Kinds:
    kinds: dict[int, int] = {}
    for device_id in ids:
        numa = state.devices.devices[resource][device_id].numa
        kind = NO_TOPOLOGY if numa is None else numa
        kinds[kind] = kinds.get(kind, 0) + 1
    return tuple(sorted(kinds.items()))


def shares(answers: Mapping[object, int]) -> str:
    """For a person: how many of each, in percent."""
    total = sum(answers.values())
    return ", ".join(f"{name}: {100 * count / total:.1f} %" for name, count in sorted(answers.items(), key=str))
