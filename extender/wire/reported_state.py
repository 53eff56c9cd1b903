"""What the kubelet's managers hold, from the state files in a report.

A manager whose state file is missing, or was written under a policy other than the configured one, is hidden, and so is
one whose state names what the machine does not have. Any other contradiction leaves the state as it is, in doubt: the
kubelet goes on from it, unless it was killed while it wrote. Nothing is guessed: each gap and each contradiction is a
problem of the report.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import MAX_CPUS
from extender.kubelet.observed import ObservedStateError, UnknownPartError, contradictions
from extender.kubelet.startup import initial_state
from extender.kubelet.state import CPUState, DeviceState, ManagerState, MemoryState
from extender.kubelet.verdict import Provider
from extender.wire.checkpoints import (
    CPU_FIELD,
    DEVICE_FIELD,
    MEMORY_FIELD,
    JsonObject,
    cpu_state,
    device_entries_from_json,
    memory_state,
    policy_name,
    restored,
)
from extender.wire.errors import shown
from extender.wire.problems import problem
from extender.wire.scenarios import Devices
from node_exporter.report import NodeReport, Problem

NOTHING_HIDDEN: Final[frozenset[Provider]] = frozenset()


class _Gaps:
    """Collects what is missing in a report."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems
        self.hidden: set[Provider] = set()
        self.contradictory = False

    def hide(self, manager: Provider, path: str, reason: str) -> None:
        self.hidden.add(manager)
        self.problems.append(problem(path, f"{reason}: no verdict for pods that need the {manager.value} manager"))

    def doubt(self, error: ObservedStateError) -> None:
        self.contradictory = True
        reason = f"{error.reason}: the kubelet has not finished writing, or was stopped before; no verdict is certain"
        self.problems.append(problem(error.field, reason))


class ObservedState(NamedTuple):
    """`hidden`: the managers whose state is unknown; theirs is the one of a node without pods.

    `contradictory`: the state contradicts itself in a way that no kubelet writes which has finished writing.
    """

    state: ManagerState
    hidden: frozenset[Provider] = NOTHING_HIDDEN
    contradictory: bool = False


def observed_state(facts: NodeReport, kubelet: Kubelet, devices: Devices, problems: list[Problem]) -> ObservedState:
    """What the managers hold. Adds to *problems*.

    Raises:
        WireError: a state file has a wrong type, or a value that none of its kind has.
    """
    gaps = _Gaps(problems)
    empty = initial_state(kubelet, devices)
    state = ManagerState(
        cpu=_cpu_state(facts.state.cpu_manager_state, kubelet, empty.cpu, gaps),
        memory=_memory_state(facts.state.memory_manager_state, kubelet, empty.memory, gaps),
        devices=_device_state(facts, devices, gaps),
    )
    for manager, error in contradictions(kubelet, state):
        if isinstance(error, UnknownPartError):
            gaps.hide(manager, error.field, error.reason)
            state = replace(state, cpu=empty.cpu) if manager is Provider.CPU else replace(state, memory=empty.memory)
        else:
            gaps.doubt(error)
    return ObservedState(state, frozenset(gaps.hidden) if gaps.hidden else NOTHING_HIDDEN, gaps.contradictory)


def _cpu_state(document: JsonObject | None, kubelet: Kubelet, empty: CPUState, gaps: _Gaps) -> CPUState:
    policy = kubelet.config.cpu_manager_policy
    content = _readable(document, policy, Provider.CPU, CPU_FIELD, gaps, needed=kubelet.cpu_static)
    if content is None:
        return empty
    return cpu_state(content, max(MAX_CPUS - 1, kubelet.machine.cpus[-1].cpu)) or empty


def _memory_state(document: JsonObject | None, kubelet: Kubelet, empty: MemoryState, gaps: _Gaps) -> MemoryState:
    policy = kubelet.config.memory_manager_policy
    content = _readable(document, policy, Provider.MEMORY, MEMORY_FIELD, gaps, needed=kubelet.memory_static)
    return empty if content is None else memory_state(content) or empty


def _readable(
    document: JsonObject | None, policy: str, manager: Provider, field: str, gaps: _Gaps, *, needed: bool
) -> JsonObject | None:
    """The content of the document. None if it has no state; if it should have one, the manager is hidden."""
    if document is None:
        if needed:
            gaps.hide(manager, field, "missing")
        return None
    content = restored(document, field)
    written_by = policy_name(content)
    if written_by != policy:
        gaps.hide(
            manager, field, f"written under policy {shown(written_by)}, but the configuration has {shown(policy)}"
        )
        return None
    return content if needed else None


def _device_state(facts: NodeReport, devices: Devices, gaps: _Gaps) -> DeviceState:
    """A node on which no plugin ever registered has no checkpoint, and needs none."""
    document = facts.state.kubelet_internal_checkpoint
    if facts.devices is None:
        gaps.hide(Provider.DEVICE, "devices", "not known")
    elif document is None and devices:
        gaps.hide(Provider.DEVICE, DEVICE_FIELD, "missing")
    return DeviceState.of(devices, device_entries_from_json(document) if document is not None else {})
