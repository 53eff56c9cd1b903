"""A machine's files, through exporter, JSON and wire, are the machine of the recordings."""

import json
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import TypeAdapter

from extender.nri.machine import DRAM, HBM, PMEM
from extender.wire.nri_reports import nri_facts, nri_machine
from node_exporter.cpu_lists import format_ids
from node_exporter.nri_machine import DiscoveryError, read_nri_machine
from node_exporter.report import ReportedNriMachine, ReportedNriPolicy
from tests.node_exporter.nri_trees import SYSTEM, write_nri_machine
from tests.replay.nri.vectors import machine, machine_names, snapshot

SHARED = Path(__file__).parents[3] / "shared"
STARTS = SHARED / "vectors/nri/machine-start.jsonl"
NEEDED = re.compile(r"proc/meminfo|sys/devices/system/(cpu|node)/.*|sys/devices/cpu_(core|atom)/cpus")
REPORTED = TypeAdapter(ReportedNriMachine)


def through_json(root: Path) -> ReportedNriMachine:
    """What a reader of the report gets."""
    return REPORTED.validate_json(orjson.dumps(read_nri_machine(root)), strict=True)


SHARED_ID = "g-08-s-hybrid"
"""Two of its caches have one id, which no sysfs tree that the plugin reads can show: it takes them for one."""
SMALL = [name for name in machine_names() if len(snapshot(name)["cpus"]) <= 32 and name != SHARED_ID]
"""A tree of more CPUs takes seconds to write."""


@pytest.mark.parametrize("name", SMALL)
def test_written_machine_is_the_one_of_the_recordings(name: str, tmp_path: Path) -> None:
    document = dict(snapshot(name))
    if name == "s-nonuma":
        document["source"] = "no NUMA directory"
    write_nri_machine(tmp_path, document)

    found = nri_machine(through_json(tmp_path))

    assert found == replace(machine(name), devices=())


def recorded() -> list[dict[str, Any]]:
    """The raw recordings on which the plugin starts, and some on which it does not; none in a clone without them."""
    lines = [json.loads(line) for line in STARTS.read_text().splitlines()] if STARTS.exists() else []
    there = [line for line in lines if (SHARED / f"machines/{line['machine']}.tar.xz").exists()]
    failing = [line for line in there if line["start"] != "ok"]
    return [line for line in there if line["start"] == "ok"] + failing[::6]


@pytest.mark.skipif(not recorded(), reason="the recorded machines are not part of a clone")
def test_recorded_trees_start_where_the_plugin_does_and_are_its_machines(tmp_path: Path) -> None:
    wrong, compared = [], 0
    for line in recorded():
        name, root = line["machine"], tmp_path / line["machine"]
        with tarfile.open(SHARED / f"machines/{name}.tar.xz") as archive:
            archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)  # since 3.11.4
            archive.extractall(root, [m for m in archive if NEEDED.match(m.name)])
        try:
            facts = nri_facts(ReportedNriPolicy(machine=through_json(root), config=None))
        except DiscoveryError:
            found = None
        else:
            found = facts.machine
        if (found is not None) != (line["start"] == "ok"):
            wrong.append((name, line["start"]))
        if found is not None and name in machine_names():
            # The recordings took the sum of the NUMA nodes for MemTotal of /proc/meminfo.
            total = found.memory_total_bytes
            assert found == replace(machine(name), devices=(), memory_total_bytes=total), name
            compared += 1

    assert wrong == []
    assert compared == 4


def two_nodes(root: Path) -> Path:
    write_nri_machine(root, snapshot("s-n4c16"))
    return root / SYSTEM


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("cpu/cpu0/cache/index0/id", None, "cache/index0/id"),
        ("cpu/cpu3/topology/physical_package_id", "x", "physical_package_id: not a number"),
        ("cpu/cpu3/topology/core_cpus_list", "0-", "not a list of ids"),
        ("cpu/cpu3/cache/index0/type", "Other", "type or size is malformed"),
        ("node/node1/cpulist", None, "node1/cpulist"),
        ("node/has_normal_memory", None, "has_normal_memory"),
        ("node/node1/distance", "10 many", "not a list of distances"),
        ("node/node1/distance", "10 " + "9" * 19, "not a list of distances"),
        ("node/node1/meminfo", "nothing", "no MemTotal"),
    ],
)
def test_the_plugins_discovery_ends_where_a_file_is_missing_or_garbled(
    path: str, text: str | None, words: str, tmp_path: Path
) -> None:
    file = two_nodes(tmp_path) / path
    file.unlink() if text is None else file.write_text(text)

    with pytest.raises(DiscoveryError, match=re.escape(words)):
        read_nri_machine(tmp_path)


def test_a_cpu_that_is_not_linked_to_exactly_one_numa_node_is_on_node_0_as_for_the_plugin(tmp_path: Path) -> None:
    system = two_nodes(tmp_path)
    (system / "cpu/cpu6/node1").unlink()
    (system / "cpu/cpu9/node3").symlink_to("../../node/node3")

    nodes = {row[0]: row[4] for row in read_nri_machine(tmp_path).cpus}

    assert [nodes[cpu] for cpu in (5, 6, 8, 9)] == [1, 0, 2, 0]


def test_a_cpu_on_a_numa_node_that_is_not_there_ends_discovery(tmp_path: Path) -> None:
    system = two_nodes(tmp_path)
    (system / "cpu/cpu6/node1").rename(system / "cpu/cpu6/node7")

    with pytest.raises(DiscoveryError, match="cpu6: its NUMA node 7 is not there"):
        read_nri_machine(tmp_path)


def test_old_kernels_name_threads_in_another_file(tmp_path: Path) -> None:
    system = two_nodes(tmp_path)
    for cpu in range(16):
        topology = system / f"cpu/cpu{cpu}/topology"
        (topology / "core_cpus_list").rename(topology / "thread_siblings_list")

    assert nri_machine(read_nri_machine(tmp_path)) == replace(machine("s-n4c16"), devices=())


def test_an_endless_file_is_an_error_and_no_endless_read(tmp_path: Path) -> None:
    file = two_nodes(tmp_path) / "cpu/cpu2/topology/die_id"
    file.unlink()
    file.symlink_to("/dev/zero")
    package = tmp_path / SYSTEM / "cpu/cpu2/topology/physical_package_id"

    assert read_nri_machine(tmp_path).cpus[2][2] == 0

    package.unlink()
    package.symlink_to("/dev/zero")
    with pytest.raises(DiscoveryError, match="a device"):
        read_nri_machine(tmp_path)


def test_memory_without_cpus_is_told_apart_by_its_size(tmp_path: Path) -> None:
    document = json.loads(json.dumps(snapshot("s-n4c16")))
    for id_, size in ((4, 1 << 30), (5, 4 << 30)):
        document["nodes"].append({"id": id_, "cpus": "", "mem": size, "normal": True, "dist": []})
    for node in document["nodes"]:
        node["dist"] = [10 if node["id"] == other else 20 + abs(node["id"] - other) for other in range(6)]
    write_nri_machine(tmp_path, document)

    assert [node.type for node in nri_machine(read_nri_machine(tmp_path)).nodes] == [DRAM] * 4 + [HBM, PMEM]


def test_lists_are_written_in_their_shortest_form() -> None:
    assert format_ids(frozenset()) == ""
    assert format_ids(frozenset({3})) == "3"
    assert format_ids(frozenset({0, 1, 2, 5, 7, 8})) == "0-2,5,7-8"


def test_a_kernel_without_isolated_list_has_no_isolated_cpus(tmp_path: Path) -> None:
    system = two_nodes(tmp_path)
    (system / "cpu/isolated").unlink()

    assert nri_machine(read_nri_machine(tmp_path)).isolated == 0
