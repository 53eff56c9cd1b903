"""The section `nri` of a report: what is taken, what is refused, and what costs only itself."""

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from extender.nri.config import PolicyConfig
from extender.wire.errors import WireError
from extender.wire.nri_reports import NriFacts, UnknownPolicyError, nri_policy, nri_state, read_nri
from extender.wire.reports import ReadReport, read_report
from node_exporter.report import KubeletState, NodeReport, ReportedMachine, ReportedNriPolicy

Section = dict[str, Any]


def section() -> Section:
    """A machine of one package, two NUMA nodes with one CPU each, and one grant."""
    cpus = [[0, 0, 0, 0, 0, "0", 0, "", [0]], [1, 0, 0, 0, 1, "1", 0, "", [0]]]
    nodes = [
        {
            "id": i, "cpus": str(i), "memory": 1 << 30, "has_memory": True, "has_normal_memory": True,
            "is_online": True, "distances": [10, 20] if i == 0 else [20, 10],
        }
        for i in range(2)
    ]  # fmt: skip
    machine = {
        "cpus": cpus, "caches": [[1, 0, "0-1"]], "nodes": nodes, "present": "0-1", "isolated": "",
        "performance": None, "efficient": None, "memory_total": 2 << 30,
    }  # fmt: skip
    grant = {
        "container_id": "c1", "namespace": "team", "pod": "solver", "container": "app", "pool": "NUMA node #1",
        "cpu_type": "normal", "exclusive": "1", "millicpu": 0, "memory_nodes": 2, "memory_types": 1,
        "memory_bytes": 4096,
    }  # fmt: skip
    config = {"pinCPU": True, "reservedResources": {"cpu": "750m"}}
    return {
        "version": 1, "machine": machine, "config": config, "config_source": "default", "config_status": "Success",
        "release": "v0.14.0",
        "grants": [grant],
    }  # fmt: skip


def read(nri: object) -> ReadReport:
    report = NodeReport(
        node_name="n1", boot_id="b", sequence=1, observed_at=1.0, kubelet_version=None,
        machine=ReportedMachine(cpus=(), numa=(), num_sockets=0), kubelet=None, devices=None,
        state=KubeletState(), pods=None,
    )  # fmt: skip
    return read_report(orjson.dumps(asdict(report) | {"nri": nri}))


def problems(report: ReadReport) -> dict[str, str]:
    return {problem.path: problem.reason for problem in report.problems if problem.path.startswith("nri")}


def test_a_section_is_read_whole() -> None:
    report = read(section())

    assert report.nri is not None
    assert report.nri.machine is not None
    assert [cpu.node for cpu in report.nri.machine.cpus] == [0, 1]
    assert report.nri.config == PolicyConfig(pin_cpu=True, reserved_cpus="750m", reserved_millicpu=750)
    assert report.nri.grants is not None
    assert report.nri.grants[0].pool == "NUMA node #1"
    assert problems(report) == {}


def test_a_report_without_the_section_is_as_before() -> None:
    assert read(None).nri is None


def test_a_section_of_an_unknown_version_costs_only_itself() -> None:
    report = read({"version": 2, "machine": "of another form"})

    assert report.nri is None
    assert problems(report) == {"nri": "left out: version 2 is not known; this extender reads version 1"}


def test_a_large_section_costs_only_itself() -> None:
    large = section()
    large["grants"] = [large["grants"][0] | {"container_id": f"c{i}"} for i in range(10_001)]

    report = read(large)

    assert report.nri is None
    assert any("too large" in reason for reason in problems(report).values())


def change(*path: str | int, to: object) -> Callable[[Section], None]:
    def apply(document: Section) -> None:
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return apply


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (change("machine", "cpus", 0, 4, to=2), "nri.machine.cpus[0]"),
        (change("machine", "cpus", 0, 8, to=[1]), "nri.machine.cpus[0]"),
        (change("machine", "cpus", 1, 0, to=0), "nri.machine.cpus[1]"),
        (change("machine", "cpus", 0, 5, to="1"), "nri.machine.cpus[0]"),
        (change("machine", "cpus", 0, 5, to="0,9"), "nri.machine.cpus"),
        (change("machine", "cpus", to=[]), "nri.machine.cpus"),
        (change("machine", "caches", 0, 2, to="1-0"), "nri.machine.caches[0]"),
        (change("machine", "nodes", 1, "memory", to=-1), "nri.machine.nodes"),
        (change("machine", "memory_total", to=0), "nri.machine.memory_total"),
        (change("grants", 0, "exclusive", to="x"), "nri.grants[0].exclusive"),
        (change("grants", 0, "memory_nodes", to=-1), "nri.grants[0].memory_nodes"),
        (change("grants", 0, "cpu_type", to="other"), "nri.grants[0].cpu_type"),
        (change("machine", "cpus", 0, 0, to="0"), "nri.machine.cpus[0][0]"),
    ],
)
def test_a_section_that_contradicts_itself_is_refused_with_its_field(
    edit: Callable[[Section], None], field: str
) -> None:
    document = json.loads(json.dumps(section()))
    edit(document)

    with pytest.raises(WireError) as caught:
        read(document)

    assert caught.value.field == field


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (change("machine", "nodes", 1, "id", to=4), "gaps"),
        (change("machine", "nodes", 1, "distances", to=[0, 10]), "as close as itself"),
        (change("machine", "nodes", 1, "cpus", to=""), "no DRAM"),
        (change("machine", "efficient", to="0"), "both core kinds"),
    ],
)
def test_where_the_plugin_does_not_start_there_is_no_machine_and_the_reason_is_told(
    edit: Callable[[Section], None], words: str
) -> None:
    document = json.loads(json.dumps(section()))
    edit(document)
    if words == "no DRAM":
        document["machine"]["nodes"][0]["memory"] = 0

    report = read(document)

    assert report.nri is not None
    assert report.nri.machine is None
    assert words in problems(report)["nri.machine"]


def test_a_configuration_that_is_not_understood_is_not_known() -> None:
    document = section() | {"config": {"pinCPU": "yes"}}

    report = read(document)

    assert report.nri is not None
    assert report.nri.config is None
    assert "nri.config.pinCPU" in problems(report)


def test_a_configuration_that_the_plugin_refused_is_not_what_it_runs_with() -> None:
    report = read(section() | {"config_status": "Failure"})

    assert report.nri is not None
    assert report.nri.config is None
    assert "refused this configuration" in problems(report)["nri.config"]


def test_distances_that_differ_by_direction_are_averaged() -> None:
    document = section()
    document["machine"]["nodes"][0]["distances"] = [10, 31]

    report = read(document)

    assert report.nri is not None
    assert report.nri.machine is not None
    assert [node.distances for node in report.nri.machine.nodes] == [(10, 25), (25, 10)]


def test_a_machine_with_absurdly_many_pools_has_no_verdicts() -> None:
    """600 packages with an L3 cache each: every container would be compared at each of 600 pools."""
    found = section()
    ids = range(600)
    found["machine"]["cpus"] = [[i, i, 0, 0, i % 2, str(i), 0, "", []] for i in ids]
    for node in (0, 1):
        found["machine"]["nodes"][node]["cpus"] = ",".join(str(i) for i in ids if i % 2 == node)
    facts, _ = read_nri(TypeAdapter(ReportedNriPolicy).validate_python(found | {"grants": []}))
    assert facts is not None

    with pytest.raises(UnknownPolicyError, match="601 pools, more than 512"):
        nri_policy(facts)


VALUES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=6)
    | st.sampled_from(["0-8191", "0-99999", "9" * 30, "-1", "cpuset:0", "cpuset:x", [], {}, [[]], [0] * 70])
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_section_with_any_other_value_somewhere_is_read_or_refused_with_a_field(data: st.DataObject) -> None:
    found: Any = section()
    places = [(found, key) for key in found]
    for _ in range(5):
        places += [
            (inner, key)
            for owner, at in list(places)
            if isinstance(inner := owner[at], dict | list)
            for key in (inner if isinstance(inner, dict) else range(len(inner)))
        ]
    owner, key = data.draw(st.sampled_from(places))
    owner[key] = data.draw(VALUES)

    with suppress(ValidationError, WireError, UnknownPolicyError):
        facts, _ = read_nri(TypeAdapter(ReportedNriPolicy).validate_python(found))
        if facts is not None:
            nri_state(nri_policy(facts), facts.grants)


@pytest.mark.parametrize("caches", [[0] * 2, list(range(33)), [0] * 2000])
def test_a_cpu_names_a_cache_once_and_as_many_as_it_can_have(caches: list[int]) -> None:
    """Seen red: 16 CPUs with one cache 2,000 times took 1.3 s, 9,000 times 8 s: the work grew with the square."""
    nri = section()
    nri["machine"]["caches"] = [[1, i, "0-1"] for i in range(40)]
    nri["machine"]["cpus"][1][8] = caches

    with pytest.raises(WireError) as refused:
        read(nri)

    assert refused.value.field == "nri.machine.cpus[1]"
    assert f"{len(caches)} caches" in refused.value.reason


def lines_run(work: Callable[[], object]) -> int:
    """How many lines Python runs."""
    count = 0

    def trace(_frame: object, event: str, _arg: object) -> Any:  # noqa: ANN401 - as `sys.settrace` has it
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return count


def test_the_policy_of_a_machine_takes_work_that_grows_with_its_caches() -> None:
    """Counted lines. Seen red: 2.9 times the lines for twice the caches."""

    def facts(caches: int) -> NriFacts:
        nri = section()
        nri["machine"]["caches"] = [[1 + i, i, "0-1"] for i in range(caches)]
        for cpu in nri["machine"]["cpus"]:
            cpu[8] = list(range(caches))
        found = read(nri).nri
        assert found is not None
        return found

    few, many = facts(16), facts(32)

    assert lines_run(lambda: nri_policy(many)) < 2.2 * lines_run(lambda: nri_policy(few))


def test_a_configuration_that_no_node_has_is_too_large() -> None:
    nri = section()
    nri["config"]["cpuClasses"] = [{"name": f"{i:0100}"} for i in range(700)]

    report = read(nri)

    assert "more than 65536" in problems(report)["nri.config"]
    assert report.nri is None


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        ({}, ""),
        ({"release": "0.14.3"}, ""),
        ({"release": "", "grant_fields": ["CPUClass", "Pool"]}, ""),
        ({"release": "v0.14.0", "grant_fields": ["Pool"]}, "older than v0.14"),
        ({"release": ""}, "not known whether the plugin is v0.14"),
        ({"release": "unstable"}, "not known whether the plugin is v0.14"),
        ({"release": "v0.11.0"}, "the plugin is 'v0.11.0'"),
        ({"release": "v0.15.0", "grant_fields": ["CPUClass"]}, "the plugin is 'v0.15.0'"),
        ({"config": {"pinCPU": True, "reservedResources": {"cpu": 1}, "spreadPods": True}}, "'spreadPods'"),
        (
            {"config": {"reservedResources": {"cpu": "1"}, "cpuClasses": [{"name": "a", "newKey": 1}]}},
            "'cpuClasses[0].newKey'",
        ),
        ({"doubts": ["the plugin has not confirmed default"]}, "not confirmed default"),
    ],
)
def test_what_the_plugin_may_decide_otherwise_is_a_doubt_and_a_problem(changes: dict[str, Any], doubt: str) -> None:
    """Nothing is certain on a node with a doubt; see `create_containers`."""
    report = read(section() | changes)

    assert report.nri is not None
    assert [doubt in each for each in report.nri.doubts] == ([True] if doubt else [])
    assert ("nri" in problems(report)) is bool(doubt)


def test_another_policy_is_named() -> None:
    report = read({"version": 1, "machine": None, "config": None, "policy": "balloons"})

    assert report.nri is not None
    assert (report.nri.policy, report.nri.doubts) == ("balloons", ())
