"""Builds hypothetical nodes from their description in a question.

Rules of this file
- They are built from values. Copying a live node does not change it.
- Pods keep their resources as long as the state is valid under the changed kubelet, checked as a kubelet checks its own
  state files on startup. Otherwise the question must empty the node.
- Every error names its path in the question.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import count, islice
from typing import Final

import orjson

from extender.cluster.node_class import NOTHING_HIDDEN
from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.config import KubeletConfig
from extender.kubelet.errors import KubeletConfigError, UnknownVersionError
from extender.kubelet.kubelet import Kubelet, RuntimePolicy
from extender.kubelet.machine import Machine
from extender.kubelet.observed import contradictions
from extender.kubelet.resolve import resolve
from extender.kubelet.rules import parse_minor
from extender.kubelet.startup import start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Provider, Rejected
from extender.questions.dra import devices_of_copy
from extender.questions.node_context import NOTHING_KNOWN, NodeContext, Subject, Taint, empty_node
from extender.replay.possible_states import PossibleStates
from extender.samples.machines import CATALOGUE, NEWEST_VERSION, devices_on
from extender.scheduling.node_totals import add, pod_requests
from extender.wire.errors import WireError, shown
from extender.wire.known_fields import start_fault, unknown_gates
from extender.wire.machines import Devices
from extender.wire.parsing import check_switches
from extender.wire.questions import HypotheticalNode
from extender.wire.reports import read_report
from extender.wire.scenarios import CONFIG_FIELDS, devices_from_json, kubelet_config_from_json
from extender.wire.workloads import workload_from_json

MAX_UNKNOWN_GATES: Final = 8
FindLive = Callable[[str], Subject | None]


def attributes_of(field: str) -> tuple[str, ...]:
    """Where a KubeletConfig has a field of KubeletConfiguration: `cpuManagerPolicy` is `cpu_manager_policy`."""
    if field == "reservation":
        return "reservation_cpu_milli", "reservation_bytes"
    return (re.sub("(?<=[a-z])(?=[A-Z])", "_", field).lower(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Base:
    """The base of a hypothetical node, before any change."""

    name: str
    machine: Machine
    config: KubeletConfig
    devices: Devices
    state: ManagerState | None
    hidden: frozenset[Provider] = NOTHING_HIDDEN
    around: NodeContext = NOTHING_KNOWN
    facts: Mapping[str, object]
    runtime: RuntimePolicy | None = None


def build(node: HypotheticalNode, path: str, number: int, find_live: FindLive) -> Subject:
    """The node that *node*, at *path* in the question, describes. *number* distinguishes it from the others.

    Raises:
        WireError: it is not possible; the error names its path.
    """
    base = _base(node, path, find_live)
    config = changed_config(base.config, node, path)
    _check_gates(config, base.config if node.machine is None else None, path)
    kubelet = _start(base.machine, config, path)
    kubelet = replace(kubelet, runtime=base.runtime, caveats=(*kubelet.caveats, *_gate_caveats(config, base, node)))
    devices = base.devices if node.devices is None else devices_from_json(node.devices, f"{path}.devices")
    around = replace(
        base.around,
        labels=node.labels if node.labels is not None else base.around.labels,
        taints=base.around.taints
        if node.taints is None
        else [Taint(key=t.key, value=t.value, effect=t.effect) for t in node.taints],
    )
    empty = empty_node(node.name or f"hypothetical {number}: {base.name}", kubelet, devices, around, number)
    is_empty = node.empty or base.state is None
    state = empty.states[0] if is_empty else _carried(base, kubelet, empty.states[0], node, path)
    hidden = NOTHING_HIDDEN if is_empty else base.hidden
    gone = [_uid(said, base.facts, state, f"{path}.remove_pods[{i}]") for i, said in enumerate(node.remove_pods)]
    state = release_pods(state, gone)
    requested: dict[str, int] | None = {} if is_empty else None
    if node.add_pods:
        state, requested = _with_pods(kubelet, state, requested, node, path)
    around = devices_of_copy(around, is_empty=is_empty, has_other_pods=bool(gone or node.add_pods))
    after = replace(around, allocatable_milli=empty.around.allocatable_milli, requested_milli=requested)
    node_class = replace(empty.node_class, possible=PossibleStates((state,)), hidden=hidden)
    return replace(empty, node_class=node_class, states=(state,), around=after, facts=base.facts)


def _base(node: HypotheticalNode, path: str, find_live: FindLive) -> _Base:
    given = [name for name in ("report", "machine", "copy_of") if getattr(node, name) is not None]
    if len(given) != 1:
        raise WireError(path, f"one of report, machine and copy_of is expected, not {' and '.join(given) or 'none'}")
    if node.machine is not None:
        return _of_machine(node, node.machine, path)
    if node.copy_of is not None:
        return _of_live(node.copy_of, path, find_live)
    return _of_report(node, path)


def _of_machine(node: HypotheticalNode, name: str, path: str) -> _Base:
    shape = CATALOGUE.get(name)
    if shape is None:
        raise WireError(f"{path}.machine", f"{shown(name)} is none of {', '.join(CATALOGUE)}")
    version = node.kubelet_version or NEWEST_VERSION
    _known_fields(node, path)
    config = kubelet_config_from_json(version, shape.kubelet_document(node.kubelet), f"{path}.kubelet")
    return _Base(
        name=name,
        machine=shape.hardware.machine(),
        config=config,
        devices=devices_on(shape.devices),
        state=None,
        facts={},
    )


def _of_live(name: str, path: str, find_live: FindLive) -> _Base:
    subject = find_live(name)
    where = f"{path}.copy_of"
    if subject is None:
        raise WireError(where, f"there is no report of node {shown(name)}")
    if subject.kubelet is None or not subject.states:
        raise WireError(where, f"not enough is known about node {shown(name)} to copy it")
    return _Base(
        name=name,
        machine=subject.kubelet.machine,
        config=subject.kubelet.config,
        devices={resource: dict(each) for resource, each in subject.states[0].devices.devices.items()},
        state=subject.states[0],
        hidden=subject.node_class.hidden,
        around=subject.around,
        facts=subject.facts,
        runtime=subject.kubelet.runtime,
    )


def _of_report(node: HypotheticalNode, path: str) -> _Base:
    where = f"{path}.report"
    try:
        report = read_report(orjson.dumps(node.report))
    except WireError as error:
        raise error.below(where) from None
    except (orjson.JSONEncodeError, RecursionError):
        raise WireError(where, "nested too deeply") from None
    if report.kubelet is None or report.state is None:
        problem = next((p for p in report.problems if p.source == "extender"), None)
        reason = f"{problem.path}: {problem.reason}" if problem else "not enough is known about the node"
        raise WireError(where, reason)
    return _Base(
        name=report.facts.node_name,
        machine=report.kubelet.machine,
        config=report.kubelet.config,
        devices={resource: dict(each) for resource, each in report.state.devices.devices.items()},
        state=release_pods(report.state, sorted(report.not_counted)),
        hidden=report.hidden,
        facts={"pods": [{"uid": p.uid, "namespace": p.namespace, "name": p.name} for p in report.facts.pods or ()]},
        runtime=report.kubelet.runtime,
    )


def _known_fields(node: HypotheticalNode, path: str) -> None:
    for name in node.kubelet:
        if name not in CONFIG_FIELDS:
            raise WireError(
                f"{path}.kubelet.{name[:64]}", f"not a field that is replayed; these are: {', '.join(CONFIG_FIELDS)}"
            )


def changed_config(config: KubeletConfig, node: HypotheticalNode, path: str) -> KubeletConfig:
    """The configuration with the question's version and fields instead of its own. Other gates and rules stay."""
    _known_fields(node, path)
    check_switches(node.rules, f"{path}.rules")
    version = node.kubelet_version or config.kubelet_version
    said = kubelet_config_from_json(version, node.kubelet, f"{path}.kubelet")
    changes = {field: getattr(said, field) for name in node.kubelet for field in attributes_of(name)}
    if "feature_gates" in changes:
        changes["feature_gates"] = {**config.feature_gates, **said.feature_gates}
    if "reservedSystemCPUs" in node.kubelet and "reservation" not in node.kubelet and said.reserved_system_cpus:
        changes["reservation_cpu_milli"] = said.reserved_system_cpus.bit_count() * 1000  # as the kubelet counts it
    assert changes.keys() <= {each.name for each in fields(KubeletConfig)}
    rules = {**config.rule_overrides, **node.rules}
    return replace(config, kubelet_version=version, rule_overrides=rules, **changes)


def _check_gates(config: KubeletConfig, running: KubeletConfig | None, path: str) -> None:
    """Raises WireError if no kubelet of this version starts with a gate. *running*: see `faulty_gate`."""
    with suppress(UnknownVersionError):  # the start fails with that
        if (found := faulty_gate(running, config)) is not None:
            where = f"{path}.kubelet.featureGates.{found[0]}"
            raise WireError(where, f"no kubelet {config.kubelet_version} starts with this: {found[1]}")


def faulty_gate(running: KubeletConfig | None, config: KubeletConfig) -> tuple[str, str] | None:
    """The first feature gate with which the kubelet does not start, and why; None: there is none.

    A gate with which the kubelet runs now is no fault, whatever is known of its version. *running*: None if none runs.
    Raises UnknownVersionError.
    """
    minor, gates = parse_minor(config.kubelet_version), {} if running is None else running.feature_gates
    for gate in sorted(config.feature_gates):
        fault = start_fault(gate, minor, config.feature_gates)
        runs_with = None if running is None or gate not in gates else parse_minor(running.kubelet_version)
        if fault is not None and (runs_with is None or fault != start_fault(gate, runs_with, gates)):
            return gate, fault
    return None


def _gate_caveats(config: KubeletConfig, base: _Base, node: HypotheticalNode) -> Iterator[str]:
    """A sentence for each gate that is not known, and with which no kubelet is known to run."""
    running = frozenset() if node.machine is not None else base.config.feature_gates.keys()
    for gate, meant in islice(unknown_gates(config.feature_gates.keys() - running), MAX_UNKNOWN_GATES):
        instead = f", perhaps {meant} is meant" if meant else ""
        yield f"the feature gate {shown(gate)} is not known{instead}: a kubelet that does not know it does not start"


def _start(machine: Machine, config: KubeletConfig, path: str) -> Kubelet:
    try:
        return start(machine, config)
    except KubeletConfigError as error:
        where = error.field if error.field == "kubelet_version" else f"kubelet.{error.field}"
        raise WireError(f"{path}.{where}", f"no kubelet starts with this: {error.reason}") from None


def _carried(base: _Base, kubelet: Kubelet, empty: ManagerState, node: HypotheticalNode, path: str) -> ManagerState:
    """What the base's pods hold, under the changed kubelet."""
    assert base.state is not None
    devices = base.state.devices
    if node.devices is not None:
        devices = replace(devices, devices=devices_from_json(node.devices, f"{path}.devices"))
    state = ManagerState(
        cpu=base.state.cpu if kubelet.cpu_static else empty.cpu,
        memory=base.state.memory if kubelet.memory_static else empty.memory,
        devices=devices,
        runtime=base.state.runtime,
    )
    for provider, error in contradictions(kubelet, state)[0].items():
        if provider not in base.hidden:
            reason = f"the node's pods cannot keep their resources ({error.reason}): set `empty: true`"
            raise WireError(f"{path}.kubelet", reason)
    return state


def _uid(said: str, facts: Mapping[str, object], state: ManagerState, path: str) -> str:
    pods = facts.get("pods")
    for pod in pods if isinstance(pods, list) else ():
        if said in (pod["uid"], f"{pod['namespace']}/{pod['name']}") and pod["uid"]:
            return str(pod["uid"])
    if said in state.pod_uids:
        return said
    raise WireError(path, f"the node has no pod {shown(said)}")


def _with_pods(
    kubelet: Kubelet, state: ManagerState, requested: dict[str, int] | None, node: HypotheticalNode, path: str
) -> tuple[ManagerState, dict[str, int] | None]:
    """The state after the kubelet has admitted the added pods one after another, and the requests then."""
    taken = state.pod_uids
    numbers = (number for number in count() if f"added-{number}" not in taken)
    for i, document in enumerate(node.add_pods):
        where = f"{path}.add_pods[{i}]"
        workload = workload_from_json(document, where)
        pod = workload.copy(-1)
        request = resolve(replace(pod, uid=f"added-{next(numbers)}"), kubelet.rules)
        outcome = admit(kubelet, state, request)
        if isinstance(outcome.verdict, Rejected):
            raise WireError(where, f"the node refuses it: {outcome.verdict.reason}: {outcome.verdict.message}")
        state = start_pod(outcome.state, request)
        if requested is not None:
            requested = add(requested, pod_requests(pod, workload.rules.overhead_milli))
    return state, requested
