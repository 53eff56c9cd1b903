"""What a report means: gaps are told and never guessed at, gone pods are released."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.store import NodeStore
from extender.intake import observation_of
from extender.kubelet.verdict import Provider
from extender.samples.nodes import SampleNode, Workload
from extender.wire.errors import WireError
from extender.wire.reports import ReadReport, read_heartbeat, read_report
from extender.wire.state_files import memory_state
from tests.nri_samples import nri_report, placed_pod
from tests.reports import report_of, sample

GPU = "vendor.example/gpu"
NODE = sample(
    workloads=[Workload(name="w", copies=2, resources={"cpu": 2, "memory": "1Gi", GPU: 1})],
    devices={GPU: [0, 0, 1]},
)
UIDS = [pod["metadata"]["uid"] for pod in NODE.pods]

Document = dict[str, Any]


def _read(document: Document) -> ReadReport:
    return read_report(orjson.dumps(document))


def _problems(report: ReadReport) -> dict[str, str]:
    return {problem.path: problem.reason for problem in report.problems}


def _holdings(node: ReadReport | SampleNode) -> object:
    """Who holds what. What the pod admitted last could reuse is in no state file, and matters to no other pod."""
    state = node.state
    assert state is not None
    return state.key, state.cpu.entries, state.memory.entries, state.devices.entries


def test_a_whole_report_is_the_node() -> None:
    report = _read(report_of(NODE, sequence=7))

    assert (report.facts.node_name, report.facts.boot_id, report.facts.sequence) == ("node-a", "boot-1", 7)
    assert report.kubelet is not None
    assert report.kubelet.identity == NODE.kubelet.identity
    assert _holdings(report) == _holdings(NODE)
    assert report.hidden == frozenset()
    assert report.problems == []


def test_unknown_fields_of_a_newer_exporter_are_passed_over() -> None:
    document = report_of(NODE)
    document["new"] = {"a": 1}
    document["machine"]["new"] = 1
    document["state"]["cpu_manager_state"]["new"] = 1

    assert _holdings(_read(document)) == _holdings(NODE)


def test_back_ported_rules_switch_the_replay() -> None:
    document = report_of(sample(version="v1.35.4"))

    assert (kubelet := _read(document).kubelet) is not None
    assert not kubelet.rules.device_numa_narrowing
    assert (kubelet := _read(document | {"rules": {"device_numa_narrowing": True}}).kubelet) is not None
    assert kubelet.rules.device_numa_narrowing


def test_a_rule_that_nobody_knows_is_refused_with_those_known() -> None:
    with pytest.raises(WireError, match=r"rules.device_narrowing: unknown rule; known .*.*device_numa_narrowing"):
        _read(report_of(NODE) | {"rules": {"device_narrowing": True}})


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda d: d.update(kubelet=None), "kubelet"),
        (lambda d: d.update(kubelet_version=None), "kubelet_version"),
        (lambda d: d["machine"].update(cpus=[], numa=[]), "machine"),
    ],
)
def test_without_machine_configuration_or_version_there_is_no_verdict(
    change: Callable[[Document], None], path: str
) -> None:
    document = report_of(NODE)
    change(document)

    report = _read(document)

    assert report.kubelet is None
    assert report.state is None
    assert "no verdict is possible" in _problems(report)[path]


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("topologyManagerPolicy", "tightest", "kubelet.topologyManagerPolicy"),
        ("cpuManagerPolicyOptions", {"no-such": "true"}, "kubelet.cpuManagerPolicyOptions"),
        ("reservedMemory", [], "kubelet.reservedMemory"),
    ],
)
def test_a_configuration_with_which_no_kubelet_starts_is_told(field: str, value: object, path: str) -> None:
    document = report_of(NODE)
    document["kubelet"][field] = value

    report = _read(document)

    assert report.kubelet is None
    assert "no kubelet starts with this" in _problems(report)[path]


def test_a_kubelet_too_old_to_be_known_is_told() -> None:
    report = _read({**report_of(NODE), "kubelet_version": "v1.19.0"})

    assert report.kubelet is None
    assert any("1.27" in reason for reason in _problems(report).values())


@pytest.mark.parametrize(
    ("part", "manager"),
    [
        ("cpu_manager_state", Provider.CPU),
        ("memory_manager_state", Provider.MEMORY),
        ("kubelet_internal_checkpoint", Provider.DEVICE),
    ],
)
def test_a_missing_state_file_hides_its_manager_only(part: str, manager: Provider) -> None:
    document = report_of(NODE)
    document["state"][part] = None

    report = _read(document)

    assert report.kubelet is not None
    assert report.hidden == {manager}
    assert "missing" in _problems(report)[f"state.{part}"]


@pytest.mark.parametrize(
    ("part", "policy", "manager"),
    [("cpu_manager_state", "none", Provider.CPU), ("memory_manager_state", "None", Provider.MEMORY)],
)
def test_a_state_file_of_another_policy_hides_its_manager(part: str, policy: str, manager: Provider) -> None:
    document = report_of(NODE)
    document["state"][part] = {"policyName": policy, "defaultCpuSet": "", "checksum": 1}

    report = _read(document)

    assert report.hidden == {manager}
    assert f"written under policy '{policy}'" in _problems(report)[f"state.{part}"]


def test_a_state_file_that_no_kubelet_filled_yet_is_the_empty_state() -> None:
    empty = sample()
    document = report_of(empty)
    document["state"]["cpu_manager_state"] = {"policyName": "static", "defaultCpuSet": "", "checksum": 1}
    document["state"]["memory_manager_state"] = {"policyName": "Static", "machineState": {}, "checksum": 1}

    report = _read(document)

    assert report.hidden == frozenset()
    assert _holdings(report) == _holdings(empty)


def test_managers_of_policy_none_need_no_state_file() -> None:
    node = sample(cpuManagerPolicy="none", memoryManagerPolicy="None")
    document = report_of(node)
    document["state"] = {}

    report = _read(document)

    assert report.kubelet is not None
    assert report.hidden == frozenset()


def test_without_devices_only_pods_that_want_some_are_unknown() -> None:
    assert _read({**report_of(NODE), "devices": None}).hidden == {Provider.DEVICE}


def test_what_pods_hold_that_the_kubelet_does_not_count_is_kept_and_named() -> None:
    """Whether they are gone is decided where the pod watch is known."""
    document = report_of(NODE)
    document["pods"][0]["counted"] = False
    document["pods"][1]["counted"] = None

    report = _read(document)

    assert report.state is not None
    assert report.state.pod_uids == frozenset(UIDS)
    assert report.not_counted == {UIDS[0]}


@pytest.mark.parametrize(("seconds", "believed"), [(0.0, False), (9.5, False), (10.5, True)])
def test_a_starting_kubelet_lists_no_pods_yet_and_none_is_gone(seconds: float, believed: bool) -> None:  # noqa: FBT001
    document = report_of(NODE)
    for pod in document["pods"]:
        pod["counted"] = False
    document["podresources"] = {"available": True, "since": document["observed_at"] - seconds}

    report = _read(document)
    observation = observation_of(report, b"")

    assert report.not_counted == observation.left == (frozenset(UIDS) if believed else frozenset())
    assert observation.unlisted == frozenset()


def test_devices_in_the_form_before_1_20_and_with_several_numa_nodes() -> None:
    document = report_of(NODE)
    entries = document["state"]["kubelet_internal_checkpoint"]["Data"]["PodDeviceEntries"]
    entries[0]["DeviceIDs"] = ["gpu-0"]
    entries[1]["DeviceIDs"] = {"0": ["gpu-1"], "-1": [], "1": ["gpu-1"]}

    assert _holdings(_read(document)) == _holdings(NODE)


def test_a_heartbeat_is_read() -> None:
    body = orjson.dumps({"boot_id": "b", "sequence": 3, "digest": "d", "observed_at": 4.0, "more": 1})

    assert read_heartbeat(body).sequence == 3


def test_a_version_that_the_report_lacks_is_that_of_the_node_object() -> None:
    report = read_report(orjson.dumps(report_of(NODE) | {"kubelet_version": None}), {"node-a": "v1.34.1"}.__getitem__)

    assert report.kubelet is not None
    assert report.kubelet.rules.minor == 34
    assert report.version_from_node == report.facts.kubelet_version == "v1.34.1"
    assert _problems(report) == {"kubelet_version": "v1.34.1 is from the Node object"}


def test_a_version_that_the_report_tells_wins_over_the_node_object() -> None:
    report = read_report(orjson.dumps(report_of(NODE)), lambda _name: "v1.30.0")

    assert report.facts.kubelet_version == "v1.36.2"
    assert report.version_from_node is None


def test_a_version_that_nobody_tells_is_a_problem() -> None:
    report = _read(report_of(NODE) | {"kubelet_version": None})

    assert (report.kubelet, report.version_from_node) == (None, "")
    assert _problems(report) == {"kubelet_version": "unknown: no verdict is possible"}


def test_whether_the_kubelet_listens_reaches_the_observation() -> None:
    document = report_of(NODE)
    body = orjson.dumps(document | {"podresources": {"available": True, "since": document["observed_at"] - 2.5}})
    old = orjson.dumps(document)

    known, unknown = observation_of(read_report(body), body), observation_of(read_report(old), old)

    assert (known.kubelet_listens, known.kubelet_seconds) == (True, 2.5)
    assert (unknown.kubelet_listens, unknown.kubelet_seconds) == (None, None), "a report of an older exporter is taken"


@pytest.mark.parametrize("since", [-1, 2**53, "now", None])
def test_a_time_that_is_none_is_refused_by_its_name(since: object) -> None:
    with pytest.raises(WireError, match=r"podresources\.since"):
        _read(report_of(NODE) | {"podresources": {"available": False, "since": since}})


def _other_version(document: Document) -> None:
    document["kubelet_version"] = "v1.31.2"


def _memory(document: Document) -> None:
    document["machine"]["numa"][0]["memory"] += 4096


def _policy(document: Document) -> None:
    document["kubelet"]["topologyManagerPolicy"] = "best-effort"


def _no_kubelet_starts(document: Document) -> None:
    document["kubelet"]["topologyManagerPolicy"] = "strictest"


def _no_configuration(document: Document) -> None:
    document["kubelet"] = None


def _no_version(document: Document) -> None:
    document["kubelet_version"] = ""


def _a_device_less(document: Document) -> None:
    document["devices"][GPU].pop()


def _released(document: Document) -> None:
    document["pods"][0]["counted"] = False


def _deep(document: Document) -> None:
    """More levels than can be written, in a field that nobody knows; see `_body`."""
    document["deep"] = True


_CHANGES = (
    _other_version,
    _memory,
    _policy,
    _no_kubelet_starts,
    _no_configuration,
    _no_version,
    _a_device_less,
    _released,
    _deep,
)


def _or_error(read: Callable[[], ReadReport]) -> object:
    try:
        report = read()
    except WireError as error:
        return str(error)
    kubelet = report.kubelet and (report.kubelet.identity, report.kubelet.rules, report.kubelet.policy)
    return kubelet, report.state, report.hidden, report.problems, report.kubelet_digest


def _body(changes: set[Callable[[Document], None]]) -> bytes:
    document = orjson.loads(orjson.dumps(report_of(NODE)))
    for change in _CHANGES:  # in this order: one that takes the configuration away comes after those that change it
        if change in changes:
            change(document)
    body = orjson.dumps(document)
    if _deep in changes:
        body = body.replace(b'"machine":{', b'"machine":{"new":' + b"[" * 300 + b"]" * 300 + b",")
    return body


@given(before=st.sets(st.sampled_from(_CHANGES)), after=st.sets(st.sampled_from(_CHANGES)))
def test_an_earlier_report_of_the_node_changes_nothing_about_how_the_next_is_read(
    before: set[Callable[[Document], None]], after: set[Callable[[Document], None]]
) -> None:
    bodies = [_body(before), _body(after)]
    try:
        first = read_report(bodies[0])
        known = {first.kubelet_digest: first.kubelet}
    except WireError:
        known = {}

    assert _or_error(lambda: read_report(bodies[1], known=known.get)) == _or_error(lambda: read_report(bodies[1]))


def test_a_kubelet_that_has_not_changed_is_not_read_again() -> None:
    first, second = (orjson.dumps(report_of(NODE, sequence=n)) for n in (1, 2))
    before = read_report(first)

    assert before.kubelet is not None
    known = {before.kubelet_digest: before.kubelet}
    assert read_report(second, known=known.get).kubelet is before.kubelet


def test_nodes_with_equal_kubelets_share_one_and_read_it_once() -> None:
    store = NodeStore(stale_after_seconds=120, max_nodes=10)
    for name in ("a", "b"):
        body = orjson.dumps({**report_of(NODE), "node_name": name})
        store.observe(observation_of(read_report(body), body), 0.0)
    first, second = (store.observation(name) for name in ("a", "b"))

    assert first is not None
    assert second is not None
    assert first.kubelet is second.kubelet is store.kubelet_with(first.kubelet_digest)
    assert first.listed is first.pod_uids


_JUNK: tuple[Any, ...] = (
    None, True, 0, -1, 3, 1.0, 1.5, 1e300, 2**63, 2**64, 2**80, "", "3", "1Gi", "\u00e9", [], [1], [[]], {}, {"a": 1},
)  # fmt: skip
_BLOCK = {"type": "memory", "size": 5, "numa": [0]}
_CONTAINER = {"name": "c", "cpus": [1], "memory": [_BLOCK], "devices": {GPU: ["g0"]}}
_PODS = [{"namespace": "d", "name": "p", "uid": None, "counted": None, "containers": [_CONTAINER]}]
_ZONES = [{"name": "node-0", "type": "Node", "numa": [0], "costs": {"node-0": 10}, "resources": {
    "cpu": {"capacity": 1, "allocatable": 1, "free": 1}}}]  # fmt: skip


def _places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, child in children for place in _places(child, (*path, key)))]


_FULL = {
    **report_of(NODE), **nri_report(pods=[placed_pod("a", "2")]), "pods": _PODS, "zones": _ZONES,
    "problems": [{"source": "s", "path": "p", "reason": "r", "severity": "info"}],
    "podresources": {"available": True, "since": 5}, "rules": {"x": True}, "pcie_roots": {"pci0000:3a": 0},
    "claimed_cpus": {"0c8f4c1e": "2-5"},
}  # fmt: skip
_EVERYWHERE = _places(_FULL)[1:]


def _damaged(whole: object, changes: list[tuple[Any, Any]]) -> Any:  # noqa: ANN401
    document = orjson.loads(orjson.dumps(whole))
    for (*path, last), junk in changes:
        with suppress(KeyError, IndexError, TypeError):
            parent = document
            for key in path:
                parent = parent[key]
            if junk == "remove":
                del parent[last]
            else:
                parent[last] = junk
    return document


def _field_of_error(read: Callable[[], object]) -> str | None:
    try:
        read()
    except WireError as error:
        return error.field
    return None


@given(changes=st.lists(st.tuples(st.sampled_from(_EVERYWHERE), st.sampled_from(("remove", *_JUNK))), max_size=2))
def test_a_damaged_report_is_read_or_refused_with_the_part_that_is_damaged(changes: list[tuple[Any, Any]]) -> None:
    body = json.dumps(_damaged(_FULL | {"rules": {}}, changes)).encode()
    field = _field_of_error(lambda: read_report(body))

    assert field is None or re.split(r"[.\[]", field)[0] in {path[0] for path, _ in changes}


_MEMORY_FILE = {
    "policyName": "Static",
    "machineState": {"0": {"numberOfAssignments": 1, "memoryMap": {"memory": {
        "total": 9, "systemReserved": 1, "allocatable": 8, "reserved": 5, "free": 3}}, "cells": [0]}},
    "entries": {"u": {"c": [{"numaAffinity": [0], "type": "memory", "size": 5}], "d": []}},
    "podEntries": {},
    "checksum": 1,
}  # fmt: skip
_MEMORY_JUNK = (*_JUNK, 64, {"memoryBlocks": [{"numaAffinity": [1], "type": "m", "size": 2}]})


@pytest.mark.parametrize("place", _places(_MEMORY_FILE), ids=str)
def test_a_damaged_memory_state_is_read_or_refused_by_its_name(place: tuple[str | int, ...]) -> None:
    for junk in ("remove", *_MEMORY_JUNK):
        document = _damaged(_MEMORY_FILE, [(place, junk)] if place else [])
        field = _field_of_error(partial(memory_state, document))
        assert field is None or field.startswith("state.memory_manager_state")


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, 2**64])
def test_amounts_of_a_memory_state_are_those_of_64_bits(size: int) -> None:
    of_table = _damaged(_MEMORY_FILE, [(("machineState", "0", "memoryMap", "memory", "total"), size)])
    of_block = _damaged(_MEMORY_FILE, [(("entries", "u", "c", 0, "size"), size)])
    for document in (of_table, of_block):
        if size < 2**64:
            assert memory_state(document) is not None
        else:
            with pytest.raises(WireError, match=r"2\*\*64"):
                memory_state(document)
