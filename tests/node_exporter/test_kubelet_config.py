import json
from pathlib import Path
from typing import Any

import pytest

from node_exporter.kubelet_config import effective_config, load_documents, merge_patch
from node_exporter.kubelet_flags import find_command_line, overlay_flags, parse_flags
from node_exporter.report import ReportedKubeletConfig, ReportedReservedMemory
from tests.node_exporter.trees import write_command_line, write_text

GIBIBYTE = 1 << 30


def effective(document: dict[str, Any], *, running: bool = False, memory: int = 64 * GIBIBYTE) -> ReportedKubeletConfig:
    config, problems = effective_config(document, memory_capacity=memory, is_running_config=running)
    assert problems == ()
    return config


def test_defaults_are_the_kubelets() -> None:
    config = effective({})

    assert config == ReportedKubeletConfig(reservation={"memory": str(100 << 20)})


def test_empty_policies_mean_the_defaults() -> None:
    config = effective({"cpuManagerPolicy": "", "memoryManagerPolicy": "", "topologyManagerScope": ""})

    assert (config.cpuManagerPolicy, config.memoryManagerPolicy, config.topologyManagerScope) == (
        "none",
        "None",
        "container",
    )


@pytest.mark.parametrize(
    ("document", "running", "memory"),
    [
        ({}, False, 100 << 20),
        ({}, True, 0),
        ({"evictionHard": {}}, False, 0),
        ({"evictionHard": {"nodefs.available": "5%"}}, False, 0),
        ({"evictionHard": {"nodefs.available": "5%"}, "mergeDefaultEvictionSettings": True}, False, 100 << 20),
        ({"evictionHard": {"memory.available": "1Gi"}, "mergeDefaultEvictionSettings": True}, False, GIBIBYTE),
        ({"evictionHard": {"memory.available": "0%"}}, False, 0),
        ({"evictionHard": {"memory.available": "100%"}}, False, 0),
        ({"evictionHard": {"memory.available": "25%"}}, False, 16 * GIBIBYTE),
        ({"evictionHard": {"memory.available": "5%"}}, False, 3435973888),  # in single precision
    ],
)  # fmt: skip
def test_hard_eviction_threshold(document: dict[str, Any], running: bool, memory: int) -> None:  # noqa: FBT001
    assert int(effective(document, running=running).reservation.get("memory", 0)) == memory


def test_reservation_sums_system_kube_and_eviction() -> None:
    config = effective({
        "systemReserved": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"},
        "kubeReserved": {"cpu": "1", "memory": "1Gi"},
        "evictionHard": {"memory.available": "512Mi"},
    })  # fmt: skip

    assert config.reservation == {
        "cpu": "1500m", "ephemeral-storage": str(GIBIBYTE), "memory": str(2 * GIBIBYTE + (512 << 20)),
    }  # fmt: skip


def test_reserved_cpus_replace_the_reserved_quantities() -> None:
    config = effective({"reservedSystemCPUs": "0-1,8", "systemReserved": {"cpu": "7"}, "kubeReserved": {"cpu": "7"}})

    assert config.reservedSystemCPUs == "0-1,8"
    assert config.reservation["cpu"] == "3"


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"cpuManagerPolicy": ["static"]}, "cpuManagerPolicy"),
        ({"cpuManagerPolicyOptions": "x"}, "cpuManagerPolicyOptions"),
        ({"reservedMemory": {"numaNode": 0}}, "reservedMemory"),
        ({"reservedMemory": ["x"]}, "reservedMemory[0]"),
        ({"featureGates": {"A": "yes"}}, "featureGates.A"),
        ({"systemReserved": {"memory": "1 Gi"}}, "systemReserved.memory"),
        ({"evictionHard": {"memory.available": "x%"}}, "evictionHard"),
        ({"reservedSystemCPUs": "0-x"}, "reservedSystemCPUs"),
    ],
)
def test_malformed_setting_is_named(document: dict[str, Any], path: str) -> None:
    _, problems = effective_config(document, memory_capacity=0, is_running_config=True)

    assert [(problem.path, problem.severity) for problem in problems] == [(path, "error")]


def test_command_line_wins_over_the_file() -> None:
    document: dict[str, object] = {
        "cpuManagerPolicy": "none",
        "cpuManagerPolicyOptions": {"align-by-socket": "true"},
        "featureGates": {"A": True, "B": True},
        "evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%"},
    }
    flags = parse_flags((
        "--cpu-manager-policy=static", "--cpu_manager_policy_options", "full-pcpus-only=true", "--v",
        "--feature-gates=B=false",
        "--feature-gates", "C=true", "--reserved-cpus=0,8", "--eviction-hard=memory.available<2Gi,nodefs.available<5%",
        "--reserved-memory=0:memory=1Gi,hugepages-2Mi=64Mi", "--reserved-memory=1:memory=1Gi", "--kube-reserved=cpu=1",
    ))  # fmt: skip

    config = effective(overlay_flags(document, flags))

    assert config.cpuManagerPolicy == "static"
    assert config.cpuManagerPolicyOptions == {"full-pcpus-only": "true"}
    assert config.featureGates == {"A": True, "B": False, "C": True}
    assert config.reservation == {"cpu": "2", "memory": str(2 * GIBIBYTE)}
    assert config.reservedMemory == (
        ReportedReservedMemory(numaNode=0, limits={"memory": "1Gi", "hugepages-2Mi": "64Mi"}),
        ReportedReservedMemory(numaNode=1, limits={"memory": "1Gi"}),
    )


def test_drop_ins_are_merged_in_name_order_below_the_flags(tmp_path: Path) -> None:
    write_text(
        tmp_path / "etc/kubelet.yaml",
        "cpuManagerPolicy: none\nfeatureGates: {A: true, B: true}\nreservedSystemCPUs: '0'",
    )
    write_text(tmp_path / "etc/drop/20-b.conf", "cpuManagerPolicy: static\nreservedSystemCPUs: null")
    write_text(tmp_path / "etc/drop/10-a.conf", "cpuManagerPolicy: wrong\nfeatureGates: {B: false}")
    write_text(tmp_path / "etc/drop/30-c.yaml", "cpuManagerPolicy: not a .conf file")
    flags = parse_flags(
        ("--config=/etc/kubelet.yaml", "--config-dir=/etc/drop", "--topology-manager-policy=restricted")
    )

    document, problems = load_documents(tmp_path, flags)

    assert problems == ()
    assert document == {
        "cpuManagerPolicy": "static", "featureGates": {"A": True, "B": False}, "topologyManagerPolicy": "restricted",
    }  # fmt: skip


@pytest.mark.parametrize("content", ["[" * 200_000, "[", "- a", "", "\0", "a: &a [*a, *a", "x" * (5 << 20)])
def test_garbled_configuration_file_is_an_error(tmp_path: Path, content: str) -> None:
    write_text(tmp_path / "var/lib/kubelet/config.yaml", content)

    document, problems = load_documents(tmp_path, None)

    assert document is None
    assert {problem.severity for problem in problems} == {"error"}


def test_garbled_flag_is_named_and_leaves_the_file_in_force(tmp_path: Path) -> None:
    write_text(tmp_path / "var/lib/kubelet/config.yaml", json.dumps({"cpuManagerPolicy": "static"}))

    document, problems = load_documents(
        tmp_path, parse_flags(("--config=/var/lib/kubelet/config.yaml", "--reserved-memory=memory=1Gi"))
    )

    assert document == {"cpuManagerPolicy": "static"}
    assert "--reserved-memory" in problems[0].reason


def test_kubelet_without_a_configuration_file_runs_with_flags_and_defaults(tmp_path: Path) -> None:
    write_text(tmp_path / "var/lib/kubelet/config.yaml", "cpuManagerPolicy: static # of another time")

    assert load_documents(tmp_path, parse_flags(("--reserved-cpus=0",))) == ({"reservedSystemCPUs": "0"}, ())
    assert load_documents(tmp_path, {}) == ({}, ())


def test_unseen_kubelet_is_a_problem_and_its_usual_file_is_read(tmp_path: Path) -> None:
    write_text(tmp_path / "var/lib/kubelet/config.yaml", "cpuManagerPolicy: static")

    document, problems = load_documents(tmp_path, None)

    assert document == {"cpuManagerPolicy": "static"}
    assert [problem.path for problem in problems] == ["command line"]


def test_kubelet_process_is_found_by_its_program(tmp_path: Path) -> None:
    write_command_line(tmp_path, ["/usr/bin/containerd", "--kubelet"], pid=7)
    write_command_line(tmp_path, ["/hyperkube", "kubelet", "--v=2"], pid=9)
    write_command_line(tmp_path, ["/opt/bin/kubelet", "--later"], pid=12)

    assert find_command_line(tmp_path) == ("--v=2",)
    assert find_command_line(tmp_path / "nowhere") is None


def test_merge_patch_does_not_change_its_arguments() -> None:
    below: dict[str, object] = {"a": {"b": 1}, "c": 2}

    assert merge_patch(below, {"a": {"d": 3}, "c": None}) == {"a": {"b": 1, "d": 3}}
    assert below == {"a": {"b": 1}, "c": 2}
