"""What a node with a kubelet's own program is made of, without the program; and what is said where it cannot run."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.live import binaries
from tests.live.__main__ import main
from tests.live.book import Entry
from tests.live.node import Given
from tests.live.whole import machine_trees, namespace
from tests.live.whole.comparing import OTHER, PLACEMENT, SAME, UNSAID, compared
from tests.live.whole.config import Own, kubelet_configuration
from tests.oracle.amounts import whole

OWN = Own(
    port=1, healthz_port=2, certificate=(Path("/c"), Path("/k")), authority=Path("/ca"),
    runtime_socket=Path("/r.sock"), cgroup="/own",
)  # fmt: skip
KUBELET = {
    "cpuManagerPolicy": "static",
    "reservedMemory": [{"numaNode": i, "limits": {"memory": "1Gi"}} for i in range(2)],
    "reservation": {"memory": "2Gi"},
}


def test_reserved_memory_is_to_the_byte_what_the_kubelet_adds_up() -> None:
    made = kubelet_configuration(KUBELET, OWN)
    reserved = sum(whole(each["limits"]["memory"]) for each in made["reservedMemory"])
    assert whole(made["systemReserved"]["memory"]) + whole(made["evictionHard"]["memory.available"]) == reserved
    assert "reservation" not in made


def test_a_kubelet_listens_on_loopback_only_and_changes_nothing_of_the_host() -> None:
    made = kubelet_configuration(KUBELET, OWN)
    assert made["address"] == made["healthzBindAddress"] == "127.0.0.1"
    assert made["protectKernelDefaults"] is True
    assert made["makeIPTablesUtilChains"] is False
    assert made["cgroupRoot"] == "/own"


def test_without_a_kubelet_the_scenes_are_skipped(tmp_path: Path) -> None:
    for name in binaries.NAMES:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": str(tmp_path), "KUBEBUILDER_ASSETS": ""}
    done = CliRunner().invoke(main, ["--kubelets", "real"], env=environ)
    assert done.exit_code == 0
    assert "skipped: kubelet not found on PATH" in " ".join(done.output.split())
    assert not binaries.find(environ).kubelets
    assert binaries.find(environ, kubelet=True, kubelets=[tmp_path / "1.34"]).kubelets == (tmp_path / "1.34",)


def test_without_the_recorded_machines_the_scenes_are_skipped(tmp_path: Path) -> None:
    for name in (*binaries.NAMES, "kubelet"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": str(tmp_path), "KUBEBUILDER_ASSETS": "", machine_trees.SETTING: str(tmp_path)}
    done = CliRunner().invoke(main, ["--kubelets", "real"], env=environ)
    assert done.exit_code == 0
    said = " ".join(done.output.split())
    assert "skipped: recorded machines 16amd64" in said
    assert f"are not in {tmp_path} (LIVE_MACHINES names another directory)" in said


def test_a_namespace_that_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    namespace.cannot.cache_clear()
    try:
        assert namespace.cannot().startswith("no mount namespace: ")
    finally:
        namespace.cannot.cache_clear()


@pytest.mark.skipif(bool(machine_trees.missing()), reason="the recorded machines are not part of a clone")
@pytest.mark.parametrize("number", range(len(machine_trees.SHAPES)))
def test_reservations_of_a_machine_fit_its_numa_nodes(number: int) -> None:
    found = machine_trees.scenario(number)
    kubelet, numas = found["kubelet"], {node["id"] for node in found["machine"]["numa"]}
    assert {each["numaNode"] for each in kubelet["reservedMemory"]} == numas
    assert whole(kubelet["reservation"]["memory"]) == len(numas) << 30
    assert all(set(device["numa"]) <= numas for listed in found["devices"].values() for device in listed)


def test_containers_are_compared_with_the_predictions_in_their_pods() -> None:
    said = (
        '{"certainty":"exact","containers":{'
        '"c0":{"cpus":"1-2","memory":[{"numa":[0],"type":"memory","size":1}]},'
        '"c1":{"cpus":"","memory":[]}}}'
    )
    entries = [
        Entry({"metadata": {"name": name, "uid": name, "annotations": annotations}}, 0.0)
        for name, annotations in (("a", {PLACEMENT: said}), ("b", {}), ("c", {PLACEMENT: said}))
    ]
    given = [
        Given("default", "a", "a", "c0", "1-2", "0"),
        Given("default", "a", "a", "c1", "0,3-9", ""),
        Given("default", "b", "b", "c0", "3", "1"),
        Given("default", "c", "c", "c0", "1-2", "0-1"),
        Given("default", "c", "c", "c1", "0,3-9", ""),
        Given("default", "c", "c", "c0", "1-2", "0"),
        Given("elsewhere", "d", "d", "c0", "1-2", "0"),
    ]
    counts, lines = compared(entries, given)
    assert counts == {SAME: 3, UNSAID: 1, OTHER: 1}
    assert lines == ["c/c0: predicted CPUs 1-2, memory of [0]; given CPUs 1-2, memory of 0-1"]
