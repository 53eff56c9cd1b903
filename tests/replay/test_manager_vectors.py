"""Cases below the level of a pod's admission, as recorded from kubelet 1.36: every state after every step."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from extender.kubelet import device_manager
from extender.kubelet.admission import release_pods
from extender.kubelet.budget import Budget
from extender.kubelet.config import KubeletConfig
from extender.kubelet.device_manager import Choices
from extender.kubelet.hints import Hints, TopologyHint
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import CPUFacts, Machine, NUMANodeFacts
from extender.kubelet.pod import ContainerRequest, PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.rules import Rules
from extender.kubelet.sets import bits_of, format_list, iter_bits, universe
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import Device, DeviceState, ManagerState
from extender.kubelet.topology_manager import Walk, admit_by_scope
from extender.kubelet.verdict import NO_TRACE, Refusal
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import kubelet_config_from_json
from tests.replay.vectors import manager_cases

PARTS = 2


def _machine(document: dict[str, Any]) -> Machine:
    cpus, nodes = [], []
    for node in document["topology"]:
        for core in node["cores"]:
            caches = core.get("uncore_caches")
            uncore = caches[0]["id"] if caches else None
            cpus += [
                CPUFacts(t, core["core_id"], core["socket_id"], node["node_id"], uncore) for t in core["thread_ids"]
            ]
        hugepages = {h["page_size"] * 1024: h["num_pages"] for h in node["hugepages"]}
        nodes.append(NUMANodeFacts(node["node_id"], node["memory"], hugepages, tuple(node["distances"])))
    return Machine.build(cpus, nodes, document["num_sockets"])


def _config(case: dict[str, Any]) -> KubeletConfig:
    return kubelet_config_from_json(
        "1.36",
        {
            "cpuManagerPolicy": case["cpuPolicy"],
            "cpuManagerPolicyOptions": case["cpuOpts"],
            "memoryManagerPolicy": case["memPolicy"],
            "reservedMemory": case["memReserved"],
            "topologyManagerPolicy": case["tmPolicy"],
            "topologyManagerScope": case["tmScope"],
            "topologyManagerPolicyOptions": case["tmOpts"],
            "reservedSystemCPUs": case.get("reserved", ""),
            "reservation": case["reservation"],
            "featureGates": case["gates"],
        },
    )


def _hints(document: list[dict[str, Any]] | None) -> Hints | None:
    if document is None:
        return None
    space = universe(tuple(range(16)))
    feasible = space.family(bits_of(h["mask"]) for h in document)
    return Hints(space, feasible, space.family(bits_of(h["mask"]) for h in document if h["preferred"]))


class _InjectedHints:
    """Stands where the device manager's hints are asked for: the recordings injected them by container name."""

    def __init__(self) -> None:
        self.hints: Mapping[str, Any] = {}

    def for_container(
        self, _kubelet: Kubelet, _state: DeviceState, _pod: PodRequest, container: ContainerRequest, _budget: Budget
    ) -> dict[str, Hints | None]:
        return {r: _hints(h) for r, h in (self.hints.get(container.name) or {}).items()}

    def for_pod(
        self, _kubelet: Kubelet, _state: DeviceState, _pod: PodRequest, _budget: Budget
    ) -> dict[str, Hints | None]:
        return {r: _hints(h) for r, h in (self.hints.get("") or {}).items()}


def _affinity(hint: TopologyHint) -> str:
    mask = "nil" if hint.affinity is None else "[" + ",".join(str(i) for i in iter_bits(hint.affinity)) + "]"
    return mask + ("/p" if hint.preferred else "")


def _shown(state: ManagerState, *, memory_static: bool) -> dict[str, Any]:
    nodes = {
        str(n.id): {
            "numberOfAssignments": n.assignments,
            "cells": list(iter_bits(n.cells)),
            "memoryMap": {
                name: {
                    "total": a.total,
                    "systemReserved": a.system_reserved,
                    "allocatable": a.allocatable,
                    "reserved": a.reserved,
                    "free": a.free,
                }
                for name, a in n.amounts
            },
        }
        for n in state.memory.nodes
    }
    blocks = {
        uid: {
            name: sorted(
                ({"numaAffinity": list(iter_bits(b.mask)), "type": b.type, "size": b.size} for b in blocks), key=str
            )
            for name, blocks in containers.items()
        }
        for uid, containers in state.memory.entries.items()
    }
    return {
        "default": format_list(state.cpu.default),
        "cpu": {u: {n: format_list(c) for n, c in cs.items()} for u, cs in state.cpu.entries.items()},
        "machine": nodes if memory_static else None,
        "mem": blocks if memory_static else None,
    }


def _recorded(result: dict[str, Any]) -> dict[str, Any]:
    blocks = result["mem"]
    if blocks is not None:
        blocks = {u: {n: sorted(bs, key=str) for n, bs in cs.items()} for u, cs in blocks.items()}
    machine = result["machine"]
    if machine is not None:
        machine = {
            i: {
                "numberOfAssignments": n["numberOfAssignments"],
                "cells": sorted(n["cells"]),
                "memoryMap": n["memoryMap"],
            }
            for i, n in machine.items()
        }
    return {"default": result["default"], "cpu": result["cpu"] or {}, "machine": machine, "mem": blocks}


def _with_hinted_devices(request: PodRequest) -> PodRequest:
    """Each container requests a resource of no device plugin, so that the device manager is asked for hints."""
    containers = tuple(replace(each, devices={"hinted": 1}) for each in request.containers)
    return replace(request, containers=containers)


@pytest.mark.parametrize("name", ["cpu-mem-tm", "distribute-5-16-numa", "hybrid-topologies"])
@pytest.mark.parametrize("part", range(PARTS))
def test_admission_sequences(name: str, part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    injected = _InjectedHints()
    monkeypatch.setattr(device_manager, "container_hints", injected.for_container)
    monkeypatch.setattr(device_manager, "pod_hints", injected.for_pod)
    admissions = 0
    for number, case, expect in manager_cases(name, part, PARTS):
        kubelet = start(_machine(case["machine"]), _config(case))
        state = initial_state(kubelet, {})
        known: set[str] = set()
        for index, (op, result) in enumerate(zip(case["ops"], expect["results"], strict=True)):
            if op["op"] == "remove":
                known.discard(op["uid"])
                continue
            injected.hints = op.get("hints") or {}
            request = _with_hinted_devices(resolve(pod_from_json(op["pod"]), kubelet.rules))
            known.add(request.uid)
            walk = Walk(
                kubelet=kubelet,
                pod=request,
                state=release_pods(state, state.pod_uids - known),
                affinities={},
                choices=Choices(),
                budget=Budget(),
                trace=NO_TRACE,
            )
            answer = {"admit": True, "reason": "", "message": ""}
            try:
                admit_by_scope(walk)
            except Refusal as refusal:
                answer = {"admit": False, "reason": str(refusal.reason), "message": refusal.message}
                known.discard(request.uid)  # inactive from now on, collected before the next admission
            state = walk.state
            where = f"{name}:{number} op {index}"
            assert answer == {k: result[k] for k in answer}, where
            stale = (
                set(result["mem"] or ()) - known - {request.uid}
            )  # the memory manager was not reached, nor its collection
            shown = _shown(state, memory_static=case["memPolicy"] == "Static" and not stale)
            recorded = _recorded({**result, "mem": None, "machine": None} if stale else result)
            assert shown == recorded, where
            if answer["admit"] and case["tmPolicy"] != "none":
                assert {n: _affinity(h) for n, h in walk.affinities.items()} == result["affinity"], where
            admissions += 1
    assert admissions > 2000


def _device_kubelet(numa: list[int]) -> Kubelet:
    """A kubelet with these NUMA nodes, a CPU on the first, and no CPU or memory policy."""
    nodes = [NUMANodeFacts(i, 0) for i in numa]
    machine = Machine.build([CPUFacts(0, 0, 0, numa[0], None)], nodes)
    return start(machine, KubeletConfig(kubelet_version="1.36"))


def _hint_lists(hints: Mapping[str, Hints | None]) -> dict[str, Any]:
    return {
        r: None if h is None else sorted(([list(iter_bits(m)), m in h.preferred_masks] for m in h.masks), key=str)
        for r, h in hints.items()
    }


def _sorted_hints(recorded: Mapping[str, Any]) -> dict[str, Any]:
    return {r: None if h is None else sorted(h, key=str) for r, h in recorded.items()}


def _pick_as_recorded(
    state: DeviceState, pod: PodRequest, container: str, recorded: Mapping[str, list[str]]
) -> DeviceState:
    """Continue with the recorded ids where they are of the same kinds as ours; anything else fails here."""
    ours = state.entries.get(pod.uid, {}).get(container, {})
    assert {r: len(ids) for r, ids in ours.items()} == {r: len(ids) for r, ids in recorded.items()}
    for resource, ids in recorded.items():
        state = device_manager.rename_devices(state, pod.uid, resource, container, ours[resource], frozenset(ids))
    return state


@pytest.mark.parametrize("part", range(PARTS))
def test_device_hints_and_allocation(part: int) -> None:
    compared = 0
    for number, case, expect in manager_cases("devices", part, PARTS):
        kubelet = _device_kubelet(case["numa"])
        devices = {
            resource: {d["id"]: Device(None if d["nil"] else bits_of(d["numa"]), d["healthy"]) for d in ds}
            for resource, ds in case["res"].items()
        }
        state = DeviceState.of(devices)
        for index, (step, result) in enumerate(zip(case["pods"], expect, strict=True)):
            where = f"devices:{number} pod {index}"
            request = resolve(pod_from_json(step["pod"]), Rules.of("1.36", {}, {}))
            for uid in sorted(set(state.entries) - set(step["keep"])):
                state = device_manager.release(state, uid)
            assert _hint_lists(device_manager.pod_hints(kubelet, state, request)) == _sorted_hints(
                result["podHints"]
            ), where
            state = _allocate_containers(kubelet, state, request, step, result, where)
            compared += 1
    assert compared > 4000


def _allocate_containers(
    kubelet: Kubelet, state: DeviceState, request: PodRequest, step: dict[str, Any], result: dict[str, Any], where: str
) -> DeviceState:
    for i, container in enumerate(request.containers):
        if i >= len(result["hints"]):
            break
        hints = device_manager.container_hints(kubelet, state, request, container)
        assert _hint_lists(hints) == _sorted_hints(result["hints"][i]), where
        nodes = step["affinity"].get(container.name)
        affinity = None if nodes is None else bits_of(nodes)
        error, before = "", state
        try:
            state = device_manager.allocate(state, request, container, affinity, Choices())
        except Refusal as refusal:
            error = refusal.message.removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")
        assert bool(error) == bool(result["err"][i]), where
        if error:
            assert len(container.devices) > 1 or error == result["err"][i], where
            return _with_partial(before, request, container, result["devs"][i])
        state = _follow(before, state, request, container, affinity, result["devs"][i])
    return state


def _with_partial(
    state: DeviceState, request: PodRequest, container: ContainerRequest, recorded: Mapping[str, list[str]]
) -> DeviceState:
    """The state with what the failing container had got before: which resources come first is random."""
    held = {r: frozenset(ids) for r, ids in recorded.items()}
    pod = {**state.entries.get(request.uid, {}), **({container.name: held} if held else {})}
    return DeviceState.of(state.devices, {**state.entries, **({request.uid: pod} if pod else {})})


def _follow(
    before: DeviceState,
    state: DeviceState,
    request: PodRequest,
    container: ContainerRequest,
    affinity: int | None,
    recorded: Mapping[str, list[str]],
) -> DeviceState:
    """Allocate again along each script of choices until the recorded kinds come out, then take the recorded ids."""
    script: tuple[int, ...] = ()
    for _ in range(200):
        ours = state.entries.get(request.uid, {}).get(container.name, {})
        if {r: _kinds(state, r, ids) for r, ids in ours.items()} == {
            r: _kinds(state, r, ids) for r, ids in recorded.items()
        }:
            state = _pick_as_recorded(state, request, container.name, recorded)
            taken = {r: frozenset(ids) for r, ids in recorded.items()}
            return replace(state, reusable=device_manager._reusable_after(before, request, container, taken))
        choices = Choices(script)
        device_manager.allocate(before, request, container, affinity, choices)
        padded = list(script) + [0] * (len(choices.alternatives) - len(script))
        for position in reversed(range(len(padded))):
            padded[position] += 1
            if padded[position] < choices.alternatives[position]:
                break
            padded[position] = 0
        script = tuple(padded)
        state = device_manager.allocate(before, request, container, affinity, Choices(script))
    raise AssertionError(f"no choice leads to the recorded devices {recorded}")


def _kinds(state: DeviceState, resource: str, ids: Iterable[str]) -> list[str]:
    return sorted(str(state.devices[resource][i]) for i in ids)


def test_releasing_unknown_pods_changes_nothing() -> None:
    kubelet = _device_kubelet([0])
    state = initial_state(kubelet, {})

    assert release_pods(state, ["nobody"]) == state
    assert replace(state) == state
