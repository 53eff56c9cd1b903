import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from node_exporter.checkpoints import bad_checksum, parse_files, read_files, torn_cpu, torn_memory
from tests.node_exporter.nodes import cpu_state, device_state, memory_state
from tests.node_exporter.trees import write_state

VECTORS = sorted((Path(__file__).parents[1] / "vectors").glob("kubelet-*.jsonl.xz"))
ALL = frozenset(range(8))


def write(root: Path, **state: Any) -> Path:
    write_state(root, state)
    return root / "var/lib/kubelet"


def test_documents_are_passed_on_without_device_plugin_answers(tmp_path: Path) -> None:
    cpu, memory = cpu_state({"p": {"c0": "1,5"}}, "0,2-4,6-7"), memory_state({"p": (0, 1 << 30)})
    devices = device_state({"gpu": ["g0"]}, [("p", "gpu", {"0": ["g0"]})])
    directory = write(tmp_path, cpu_manager_state=cpu, memory_manager_state=memory, kubelet_internal_checkpoint=devices)

    state, problems = parse_files(read_files(directory))

    assert problems == ()
    assert (state.cpu_manager_state, state.memory_manager_state) == (cpu, memory)
    (entry,) = state.kubelet_internal_checkpoint["Data"]["PodDeviceEntries"]  # type: ignore[index]
    assert entry == {"PodUID": "p", "ContainerName": "c0", "ResourceName": "gpu", "DeviceIDs": {"0": ["g0"]}}


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\0\0", '"x"', "{}" * 9])
def test_garbled_file_is_none_and_a_problem(tmp_path: Path, content: str) -> None:
    (tmp_path / "cpu_manager_state").write_text(content)

    state, problems = parse_files(read_files(tmp_path))

    assert state.cpu_manager_state is None
    assert {problem.path for problem in problems if problem.severity == "error"} >= {"cpu_manager_state"}


def test_cpus_in_no_set_are_a_half_done_allocation() -> None:
    assert torn_cpu(cpu_state({"p": {"c0": "1,5"}}, "0,2-4,6-7"), ALL) is None
    assert "[1, 5]" in str(torn_cpu(cpu_state(None, "0,2-4,6-7"), ALL))
    assert "both" in str(torn_cpu(cpu_state({"p": {"c0": "1"}}, "0-7"), ALL))
    assert torn_cpu({"policyName": "none", "defaultCpuSet": ""}, ALL) is None
    assert "not a CPU list" in str(torn_cpu({"policyName": "static", "defaultCpuSet": "x"}, ALL))


def test_state_without_the_reserved_cpus_is_whole_where_that_is_expected() -> None:
    without_reserved = {"policyName": "static", "defaultCpuSet": "1-3,5-7"}

    assert torn_cpu(without_reserved, ALL) is not None
    assert torn_cpu(without_reserved, ALL, ALL - {0, 4}) is None


def test_missing_device_checkpoint_means_no_devices_only_where_the_kubelet_is(tmp_path: Path) -> None:
    assert read_files(tmp_path).never_had_devices
    assert not read_files(tmp_path / "missing").never_had_devices
    (tmp_path / "device-plugins/kubelet_internal_checkpoint").mkdir(parents=True)
    assert not read_files(tmp_path).never_had_devices, "unreadable is not missing"


def test_pod_entries_and_flat_entries_count_as_assigned() -> None:
    with_pods = {"policyName": "static", "defaultCpuSet": "0-5", "podEntries": {"p": {"cpuSet": "6-7"}}}
    flat = {"policyName": "static", "defaultCpuSet": "0-5", "entries": {"container": "6-7"}}

    assert torn_cpu(with_pods, ALL) is None
    assert torn_cpu(flat, ALL) is None


def test_machine_state_that_does_not_add_up_is_a_half_done_allocation() -> None:
    whole = memory_state({"p": (0, 1 << 30)})
    assert torn_memory(whole) is None

    assert "assignments" in str(torn_memory(whole | {"entries": {}}))
    assert "not a memory manager state" in str(torn_memory({"policyName": "Static", "machineState": {"0": []}}))


def test_changed_content_betrays_itself_by_the_checksum() -> None:
    for document in (cpu_state({"p": {"c0": "1,5"}}, "0,2-4,6-7"), memory_state({"p": (1, 4096)})):
        assert bad_checksum(document) is None
        assert "checksum" in str(bad_checksum(document | {"policyName": "other"}))
        assert bad_checksum(document | {"checksum": 0}) is None, "the kubelet accepts it too"
    assert "not a state file" in str(bad_checksum({"checksum": 5}))


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.name)
def test_every_recorded_state_file_agrees_with_itself(path: Path) -> None:
    checked = 0
    with lzma.open(path, "rt") as lines:
        for line in lines:
            if '"state_before"' not in line:
                continue
            scenario = json.loads(line)
            states = [step["state_before"] for step in scenario["steps"] if "state_before" in step]
            for document in (document for state in states for document in state.values() if document):
                assert bad_checksum(document) is None, scenario["id"]
                assert torn_memory(document) is None, scenario["id"]
                checked += 1
    assert checked > 100
