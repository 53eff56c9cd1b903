"""Whatever lies under a node's directories, a look ends in a report that is valid JSON; never in a traceback."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_exporter.checkpoints import bad_checksum, torn_cpu, torn_memory
from node_exporter.kubelet_config import effective_config
from node_exporter.kubelet_flags import overlay_flags, parse_flags
from node_exporter.node import NodeReader, NodeSettings
from node_exporter.nri_policy import NriObserver
from node_exporter.quantity import parse_milli
from tests.node_exporter.nodes import SCENARIO, cpu_state, device_state, memory_state
from tests.node_exporter.nri_trees import GRANT, write_nri_machine, write_state_file
from tests.node_exporter.trees import KUBELET_DIR, write_scenario, write_state
from tests.replay.nri.vectors import snapshot

STATE = {
    "cpu_manager_state": cpu_state({"u1": {"c0": "1,5"}}, "0,2-4,6-7"),
    "memory_manager_state": memory_state({"u1": (0, 4096)}),
    "kubelet_internal_checkpoint": device_state({"gpu": ["g0"]}, [("u1", "gpu", {"0": ["g0"]})]),
}
KEYS = sorted({
    "policyName", "defaultCpuSet", "entries", "podEntries", "checksum", "machineState", "memoryMap", "cells", "memory",
    "numberOfAssignments", "reserved", "numaAffinity", "type", "size", "total", "Data", "PodDeviceEntries", "cpuSet",
    "RegisteredDevices", "DeviceIDs", "PodUID", "ResourceName", "0", "u1", "cpuManagerPolicy", "reservedMemory",
    "limits", "numaNode", "featureGates", "systemReserved", "kubeReserved", "evictionHard", "Static",
    "reservedSystemCPUs",
})  # fmt: skip
INTEGERS = st.integers(-(2**63), 2**64 - 1)  # what Go's types hold
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8)
TELLING = st.sampled_from(["static", "Static", "0-3", "1Gi", "5%", "x", "-1", "9" * 30, "1-0", "1e99"])
JSON = st.recursive(
    SCALARS | TELLING,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | TELLING, below, max_size=5),
    max_leaves=24,
)
DOCUMENTS = st.dictionaries(st.sampled_from(KEYS), JSON | TELLING, max_size=8)


@pytest.fixture(scope="module")
def pristine() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        root = write_scenario(Path(directory) / "node", SCENARIO, STATE)
        (root / "var/log/pods/default_a_u1").mkdir(parents=True)
        yield root


def look(root: Path) -> dict[str, Any]:
    report = NodeReader(NodeSettings(root=root, node_name="n")).look(is_tick=True)
    parsed: dict[str, Any] = orjson.loads(orjson.dumps(report))
    return parsed


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_missing_empty_and_garbled_files_are_survived(pristine: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "node"
        shutil.copytree(pristine, root, symlinks=True)
        files = sorted(path for path in root.rglob("*") if not path.is_dir() or path.is_symlink())
        for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=12, unique=True)):
            damage = data.draw(st.sampled_from(["remove", "empty", "garble", "directory", "loop"]))
            path.unlink()
            if damage == "empty":
                path.write_bytes(b"")
            elif damage == "garble":
                path.write_bytes(data.draw(st.binary(max_size=40)))
            elif damage == "directory":
                path.mkdir()
            elif damage == "loop":
                path.symlink_to(path.name)

        report = look(root)

    assert report["schema_version"] == 1
    assert all(problem["reason"] for problem in report["problems"])


@settings(max_examples=30, deadline=None)
@given(name=st.sampled_from(sorted(STATE)), document=DOCUMENTS)
def test_state_files_of_any_content_are_survived(pristine: Path, name: str, document: dict[str, Any]) -> None:
    write_state(pristine, STATE | {name: document})
    try:
        report = look(pristine)
    finally:
        write_state(pristine, STATE)

    found = report["state"][name]
    named = [problem["path"] for problem in report["problems"] if problem["severity"] == "error"]
    assert name == "kubelet_internal_checkpoint" or found == document or (found is None and name in named)


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
@pytest.mark.parametrize("name", sorted(STATE))
def test_numbers_that_json_does_not_have_cost_their_file_and_are_named(
    pristine: Path, name: str, number: float
) -> None:
    write_state(pristine, STATE | {name: {"policyName": "static", "0": number}})
    try:
        report = look(pristine)
    finally:
        write_state(pristine, STATE)

    assert report["state"][name] is None
    assert [
        problem["severity"]
        for problem in report["problems"]
        if problem["path"].endswith(name) and problem["reason"].startswith("not JSON: ")
    ] == ["error"]


@settings(max_examples=200, deadline=None)
@given(document=DOCUMENTS)
def test_checks_of_state_files_answer_for_any_content(document: dict[str, Any]) -> None:
    answers = (bad_checksum(document), torn_memory(document), torn_cpu(document, frozenset({0, 1})))

    assert all(answer is None or answer for answer in answers)


@settings(max_examples=200, deadline=None)
@given(document=DOCUMENTS, running=st.booleans(), capacity=st.integers(0, 1 << 45))
def test_configuration_of_any_content_is_read_or_named(document: dict[str, Any], running: bool, capacity: int) -> None:  # noqa: FBT001
    config, problems = effective_config(document, memory_capacity=capacity, is_running_config=running)

    assert orjson.dumps(config)
    assert all(problem.severity == "error" for problem in problems)


@given(
    arguments=st.lists(st.text(max_size=12) | st.sampled_from(["--reserved-memory", "--feature-gates=A", "--config"]))
)
def test_command_line_of_any_content_is_read_or_named(arguments: list[str]) -> None:
    flags = parse_flags(tuple(arguments))
    with contextlib.suppress(ValueError):
        assert isinstance(overlay_flags({}, flags), dict)


@given(text=st.text(max_size=12) | st.from_regex(r"[0-9.eEkKmMi+-]{1,12}", fullmatch=True))
def test_quantity_is_a_number_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse_milli(text), int)


@pytest.mark.parametrize("path", ["cpu0/topology/core_id", "cpu0/cache/index0/id", "online"])
@pytest.mark.parametrize("text", ["9" * 40, "-" + "9" * 40, "1e9", "0x10", "\u0661"])
def test_numbers_that_no_kernel_writes_are_survived(pristine: Path, path: str, text: str) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "node"
        shutil.copytree(pristine, root, symlinks=True)
        (root / "sys/devices/system/cpu" / path).write_text(text)
        (root / "sys/devices/system/node/node0/distance").write_text(text)
        (root / "sys/devices/system/node/node0/meminfo").write_text(f"Node 0 MemTotal: {text} kB")

        assert look(root)["machine"]["numa"][1]["id"] == 1


def test_pristine_tree_has_no_problem_but_the_missing_socket_and_version(pristine: Path) -> None:
    problems = {(problem["source"], problem["path"]) for problem in look(pristine)["problems"]}

    assert problems == {("kubelet", "version"), ("podresources", "kubelet.sock")}
    assert (pristine / KUBELET_DIR).is_dir()


@pytest.fixture(scope="module")
def nri_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "node"
        write_nri_machine(root, snapshot("s-1n4c"))
        write_state_file(root, {"c1": GRANT})
        yield root


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_damaged_files_of_the_nri_plugin_and_of_its_machine_are_survived(nri_tree: Path, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "node"
        shutil.copytree(nri_tree, root, symlinks=True)
        files = sorted(path for path in root.rglob("*") if not path.is_dir() or path.is_symlink())
        for path in data.draw(st.lists(st.sampled_from(files), min_size=1, max_size=3, unique=True)):
            path.unlink()
            content = data.draw(st.none() | st.binary(max_size=20) | st.sampled_from([b"0-8191", b"-1", b"9" * 30]))
            if content is not None:
                path.write_bytes(content)

        section, problems = NriObserver(root, None).look(is_tick=True)

        assert orjson.dumps((section, problems))
        assert section is None or section.machine is not None or problems


NRI_KEYS = st.sampled_from(
    ["Version", "PolicyName", "PolicyJSON", "allocations", "Pods", "Containers", "c1", "Ctr", "Pod"]
)


@settings(max_examples=60, deadline=None)
@given(
    document=st.dictionaries(NRI_KEYS, JSON, max_size=6),
    grant=st.dictionaries(st.sampled_from(sorted(GRANT)), JSON, max_size=4),
    pods=JSON,
)
def test_a_state_file_of_the_nri_plugin_of_any_content_is_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, document: dict[str, Any], grant: dict[str, Any], pods: object
) -> None:
    root = tmp_path_factory.mktemp("nri")
    write_state_file(root, {"c1": GRANT | grant}, **{"Pods": pods, "Containers": {"c1": pods}, **document})

    section, problems = NriObserver(root, None).look(is_tick=True)

    assert section is not None
    assert orjson.dumps(section)
    assert section.grants is not None or any(problem.path.endswith("cache") for problem in problems)
