import json
import re
import tarfile
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.kubelet.admission import admit
from extender.kubelet.machine import UNNUMBERED_NUMA_NODE, CPUFacts, Machine
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.verdict import Reason, Rejected
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import kubelet_config_from_json, machine_from_json
from node_exporter.cpu_lists import parse_cpu_list
from node_exporter.report import ReportedMachine
from node_exporter.sysfs import format_page_size, read_machine, read_pcie_roots
from tests.node_exporter.trees import write_machine, write_text
from tests.reports import pod_of

MACHINES = Path(__file__).parents[3] / "shared/machines"
NEEDED = re.compile(r"proc/(cpuinfo|meminfo)|sys/devices/system/(cpu|node)/.*")
EXPECTED = sorted(MACHINES.glob("*.expected.json"))

TWO_NODES: dict[str, Any] = {
    "cpus": [
        [0, 0, 0, 0, 3], [1, 1, 0, 0, 3], [2, 0, 1, 8, None], [3, 1, 1, 8, None], [4, 0, 0, 0, 3], [5, 0, 1, 8, None],
    ],
    "numa": [
        {"id": 0, "memory": 4096, "hugepages": {"64Ki": 1, "2Mi": 512, "1Gi": 0}, "distances": [10, 20, 30]},
        {"id": 8, "memory": 8192, "hugepages": {}, "distances": [20, 10, 30]},
        {"id": 250, "memory": 16384, "hugepages": {}, "distances": None},
    ],
    "num_sockets": 2,
}  # fmt: skip


def as_json(machine: ReportedMachine) -> object:
    return json.loads(orjson.dumps(machine))


@pytest.mark.skipif(not EXPECTED, reason="the recorded machines are not part of a clone")
@pytest.mark.parametrize("expected", EXPECTED, ids=lambda path: path.name.removesuffix(".expected.json"))
def test_recorded_machine_is_what_the_kubelet_discovers(expected: Path, tmp_path: Path) -> None:
    name = expected.name.removesuffix(".expected.json")
    with tarfile.open(MACHINES / f"{name}.tar.xz") as archive:
        members = [member for member in archive if NEEDED.match(member.name)]
        archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)  # since 3.11.4
        archive.extractall(tmp_path, members)
    answer = json.loads(expected.read_text())
    counts, details = answer["kubelet"]["counts"], answer["kubelet"]["cpu_details"]
    rows = {row[0]: row for row in answer["machine"]["cpus"]}
    numa = sorted(answer["machine"]["numa"], key=lambda node: node["id"])
    is_repeated = len(rows) < len(answer["machine"]["cpus"])

    found, problems = read_machine(tmp_path)

    assert as_json(found) == answer["machine"] | {
        "cpus": [[*row[:3], details[str(row[0])][2], *row[4:]] for _, row in sorted(rows.items())],
        "numa": numa,
        "num_cpus": counts["cpus"] if is_repeated else None,
        "num_cores": counts["cores"] if is_repeated else None,
    }
    assert is_repeated or len(found.cpus) == counts["cpus"]
    assert is_repeated == any("several NUMA nodes" in problem.reason for problem in problems)
    machine = machine_from_json(as_json(found))
    assert counts == {
        "cpus": machine.num_cpus,
        "cores": machine.num_cores,
        "numa": len(machine.cpu_numa_ids),
        "sockets": machine.num_sockets,
        "uncore": machine.num_uncore,
    }
    assert details == {str(cpu.cpu): _details(machine, cpu) for cpu in machine.cpus}


def _details(machine: Machine, cpu: CPUFacts) -> list[int]:
    """Core, socket, NUMA node and uncore cache of a CPU, in the kubelet's numbers."""
    core = next(core for core, cpus in machine.core_cpus.items() if cpus >> cpu.cpu & 1)
    uncore = next(uncore for uncore, cpus in machine.uncore_cpus.items() if cpus >> cpu.cpu & 1)
    return [core, cpu.socket, -1 if cpu.numa == UNNUMBERED_NUMA_NODE else cpu.numa, uncore]


def test_cpu_of_several_numa_nodes_is_on_the_last_one_and_counts_for_each(tmp_path: Path) -> None:
    """The names of the directories are read in order of their text, so that node10 comes before node2."""
    rows = [[0, 0, 0, 2], [1, 0, 0, 2], [2, 1, 0, 10], [3, 1, 0, 10]]
    machine = {"cpus": [[*row, None] for row in rows], "numa": [_bare_node(2), _bare_node(10)], "num_sockets": 1}
    write_machine(tmp_path, machine)
    for cpu in (0, 1):
        (tmp_path / f"sys/devices/system/node/node10/cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")

    found, problems = read_machine(tmp_path)
    replayed = machine_from_json(as_json(found))

    assert found.cpus == tuple((*row, None) for row in rows)
    assert (found.num_cpus, found.num_cores) == (6, 3)
    assert [problem.path for problem in problems] == ["/sys/devices/system/node"]
    assert (replayed.cpus_per_core, replayed.cpus_per_socket, replayed.numa_cpus) == (2, 6, {2: 0b0011, 10: 0b1100})


def test_package_without_a_number_is_numa_node_minus_one(tmp_path: Path) -> None:
    """A kubelet of Topology Manager policy none places pods there; any other policy crashes on the first pod."""
    for cpu in (0, 1, 2):
        write_text(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/core_id", f"{cpu}")
        write_text(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", "-1")
    pod = pod_from_json(pod_of(1, "1Gi"))

    found, _ = read_machine(tmp_path)
    results = []
    for policy in ("none", "best-effort", "restricted", "single-numa-node"):
        settings = {"cpuManagerPolicy": "static", "topologyManagerPolicy": policy, "reservation": {"cpu": "1"}}
        kubelet = start(machine_from_json(as_json(found)), kubelet_config_from_json("v1.37.0", settings))
        verdict = admit(kubelet, initial_state(kubelet, {}), resolve(pod, kubelet.rules)).verdict
        results.append(verdict.reason if isinstance(verdict, Rejected) else verdict.placements["app"].cpus)

    assert [row[3] for row in found.cpus] == [-1, -1, -1]
    assert [node.id for node in found.numa] == [-1]
    assert results == [0b010, *[Reason.KUBELET_PANIC] * 3]


def _bare_node(numa: int) -> dict[str, Any]:
    return {"id": numa, "memory": 4096, "hugepages": {}, "distances": [10, 20]}


def test_written_machine_is_read_back(tmp_path: Path) -> None:
    write_machine(tmp_path, TWO_NODES)

    machine, problems = read_machine(tmp_path)

    assert as_json(machine) == TWO_NODES | {"num_cpus": None, "num_cores": None}
    assert problems == ()


def test_offline_cpu_is_left_out(tmp_path: Path) -> None:
    write_machine(tmp_path, TWO_NODES)
    write_text(tmp_path / "sys/devices/system/cpu/online", "0-2,4\n")

    machine, _ = read_machine(tmp_path)

    assert [cpu[0] for cpu in machine.cpus] == [0, 1, 2, 4]


def test_unreadable_online_list_counts_every_cpu_and_is_a_problem(tmp_path: Path) -> None:
    write_machine(tmp_path, TWO_NODES)
    write_text(tmp_path / "sys/devices/system/cpu/online", "0-x")

    machine, problems = read_machine(tmp_path)

    assert len(machine.cpus) == 6
    assert [problem.path for problem in problems] == ["/sys/devices/system/cpu/online"]


def test_cpu_without_topology_is_ignored_and_is_a_problem(tmp_path: Path) -> None:
    write_machine(tmp_path, TWO_NODES)
    (tmp_path / "sys/devices/system/cpu/cpu1/topology/core_id").unlink()

    machine, problems = read_machine(tmp_path)

    assert 1 not in {cpu[0] for cpu in machine.cpus}
    assert "cpu1" in problems[0].path


def test_level_3_cache_of_exactly_one_numa_node_is_no_uncore_cache(tmp_path: Path) -> None:
    write_machine(tmp_path, TWO_NODES)
    for cpu in (0, 1, 4):
        write_text(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cache/index3/shared_cpu_map", "1f\n")

    uncore = {cpu[0]: cpu[4] for cpu in read_machine(tmp_path)[0].cpus}

    assert uncore[0] == uncore[4] == 3, "5 sharing CPUs are not 2 cores of 2 threads"
    write_text(tmp_path / "sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_map", "0000000f\n")
    assert read_machine(tmp_path)[0].cpus[0][4] is None


def test_unreadable_cache_ends_the_scan_of_its_node_only(tmp_path: Path) -> None:
    machine = TWO_NODES | {"cpus": [[cpu, core, socket, numa, 7] for cpu, core, socket, numa, _ in TWO_NODES["cpus"]]}
    write_machine(tmp_path, machine)
    (tmp_path / "sys/devices/system/cpu/cpu1/cache/index3/id").unlink()

    uncore = {cpu[0]: cpu[4] for cpu in read_machine(tmp_path)[0].cpus}

    assert uncore == {0: 7, 4: 7, 1: None, 2: 7, 3: 7, 5: 7}


def test_without_node_directories_each_package_is_a_node(tmp_path: Path) -> None:
    for cpu, package in ((0, 0), (1, 3)):
        write_text(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/core_id", "0")
        write_text(tmp_path / f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", f"{package}")

    machine, _ = read_machine(tmp_path)

    assert machine.cpus == ((0, 0, 0, 0, None), (1, 0, 3, 3, None))
    assert [node.id for node in machine.numa] == [0, 3]
    assert machine.num_sockets == 2, "counted from /sys where /proc/cpuinfo has no physical ids"


def test_empty_root_is_an_empty_machine_with_an_error(tmp_path: Path) -> None:
    machine, problems = read_machine(tmp_path)

    assert machine == ReportedMachine(cpus=(), numa=(), num_sockets=0)
    assert "error" in {problem.severity for problem in problems}


@pytest.mark.parametrize(
    ("text", "cpus"), [("", set()), ("\n", set()), ("0", {0}), ("0-2,8", {0, 1, 2, 8}), ("5,3-4,4", {3, 4, 5})]
)
def test_cpu_list(text: str, cpus: set[int]) -> None:
    assert parse_cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["x", "1-", "-1", "3-1", "0-99999999", "1;2"])
def test_garbled_cpu_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_cpu_list(text)


@pytest.mark.parametrize(
    ("kilobytes", "name"),
    [(4, "4Ki"), (64, "64Ki"), (2048, "2Mi"), (1 << 20, "1Gi"), (16 << 20, "16Gi"), (1 << 30, "1Ti")],
)
def test_page_size_is_the_canonical_quantity(kilobytes: int, name: str) -> None:
    assert format_page_size(kilobytes) == name


def test_a_pcie_root_is_on_the_numa_node_of_its_devices(tmp_path: Path) -> None:
    """Without a NUMA node, with several, or with something else in place of a file it is left out."""
    devices = tmp_path / "sys/devices"
    for path, numa in {
        "pci0000:00/0000:00:01.0": "0",
        "pci0000:00/0000:00:1f.7": "0",
        "pci10000:e0/10000:e0:00.0": "1",
        "pci0000:3a/0000:3a:00.0": "-1",
        "pci0000:5d/0000:5d:00.0": "0",
        "pci0000:5d/0000:5d:02.0": "1",
        "pci0000:85/0000:85:00.0": "x" * 100_000,
        "pci0000:00/power": "1",
        "system/0000:00:01.0": "1",
    }.items():
        write_text(devices / path / "numa_node", f"{numa}\n")
    (devices / "pci0000:ae/0000:ae:00.0/numa_node").mkdir(parents=True)
    write_text(devices / "pci0000:d7", "no directory")

    assert read_pcie_roots(tmp_path) == {"pci0000:00": 0, "pci10000:e0": 1}
    assert read_pcie_roots(tmp_path / "nothing") == {}
