"""What dra-driver-cpu has given to claims, by its CDI files: as 0.1.0 and 0.2.0 write them, and broken ones."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from node_exporter.dra_cpus import (
    DIRECTORY,
    MAX_BYTES,
    MAX_CHARACTERS,
    MAX_CLAIMS,
    MAX_PROBLEMS,
    SETTLED_SECONDS,
    ClaimedCpus,
    read_claimed_cpus,
)
from node_exporter.files import under
from node_exporter.node import NodeReader, NodeSettings
from node_exporter.report import NodeReport
from tests.node_exporter.nodes import SCENARIO
from tests.node_exporter.trees import write_scenario, write_text

FIRST, SECOND = "0c8f4c1e-6f0a-4a56-9a53-0d5f3b6a1c11", "7d9a2b40-1d1e-4c55-8f0c-6f9f2f1a2b22"
BOTH = {FIRST: "2-5", SECOND: "8,40"}


def device(uid: str, cpus: str) -> dict[str, object]:
    """As the driver names it, with the variable that its NRI plugin reads."""
    return {"name": f"claim-{uid}", "containerEdits": {"env": [f"DRA_CPUSET_{uid}={cpus}"]}}


def document(*devices: object, kind: str = "dra.k8s.io/cpu") -> dict[str, object]:
    """The fields in the order of the CDI library, which 0.1.0 uses as well."""
    return {"cdiVersion": "0.8.0", "kind": kind, "devices": list(devices), "containerEdits": {}}


def file_of(uid: str) -> str:
    return f"dra.k8s.io-cpu_claim-{uid}.json"


def write_new(directory: Path, uid: str, cpus: str) -> None:
    """As from 0.2.0 on: one line, put in place by renaming."""
    write_text(directory / "spec.1.tmp", orjson.dumps(document(device(uid, cpus))).decode())
    (directory / "spec.1.tmp").rename(directory / file_of(uid))


def write_old(directory: Path, claims: dict[str, str]) -> None:
    """As 0.1.0: all claims, indented."""
    text = orjson.dumps(document(*(device(*each) for each in claims.items())), option=orjson.OPT_INDENT_2)
    write_text(directory / "dra.cpu.json", text.decode())


def test_files_of_each_version_name_the_cpus_of_each_claim(tmp_path: Path) -> None:
    """Files of other drivers and files that are being written are not opened."""
    for uid, cpus in BOTH.items():
        write_new(tmp_path / "new", uid, cpus)
    write_old(tmp_path / "old", BOTH)
    for name in ("nvidia.yaml", "dra.cpu4294967295", "spec.2.tmp", "dra.k8s.io-gpu_claim-x.json"):
        write_text(tmp_path / "new" / name, "{")

    assert read_claimed_cpus(tmp_path / "new") == (BOTH, ())
    assert read_claimed_cpus(tmp_path / "old") == (BOTH, ())


def test_a_driver_that_has_written_no_claim_yet_has_none(tmp_path: Path) -> None:
    """0.1.0 begins with a file without devices. It takes an empty one for the same."""
    write_old(tmp_path / "old", {})
    write_text(tmp_path / "empty" / "dra.cpu.json", "")
    write_text(tmp_path / "null" / "dra.cpu.json", '{"cdiVersion":"0.8.0","kind":"dra.k8s.io/cpu","devices":null}')

    assert [read_claimed_cpus(tmp_path / each) for each in ("old", "empty", "null")] == [({}, ())] * 3


HOSTILE: dict[str, Callable[[Path], object]] = {
    "not JSON": lambda path: write_text(path, "{"),
    "depth limit": lambda path: write_text(path, "[" * 10_000 + "]" * 10_000),
    "kind is not": lambda path: write_text(path, orjson.dumps(document(kind="x.io/cpu")).decode()),
    "0 sets of CPUs": lambda path: write_text(path, orjson.dumps(document({"name": f"claim-{FIRST}"})).decode()),
    "not named after its claim": lambda path: write_text(path, orjson.dumps(document(device(SECOND, "1"))).decode()),
    "invalid literal": lambda path: write_text(path, orjson.dumps(document(device(FIRST, "1,x"))).decode()),
    "not a range of CPU ids": lambda path: write_text(
        path, orjson.dumps(document(device(FIRST, "0-9999999"))).decode()
    ),
    "names more than": lambda path: write_text(path, orjson.dumps(document(device(FIRST, "0-16383," * 9))).decode()),
    "larger than": lambda path: write_text(path, " " * (MAX_BYTES + 1)),
    "a FIFO": os.mkfifo,
    "a directory": lambda path: path.mkdir(),
    "not a regular file": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("reason", HOSTILE)
def test_a_broken_file_costs_its_own_claim_and_is_named(tmp_path: Path, reason: str) -> None:
    write_new(tmp_path, SECOND, "8,40")
    HOSTILE[reason](tmp_path / file_of(FIRST))

    found, problems = read_claimed_cpus(tmp_path)

    assert found == {SECOND: "8,40"}
    (problem,) = problems
    assert (problem.source, problem.path) == ("dra-driver-cpu", f"{DIRECTORY}/{file_of(FIRST)}")
    assert reason in problem.reason or reason == "not a regular file"


def test_two_files_that_disagree_about_a_claim_say_nothing_about_it(tmp_path: Path) -> None:
    """As after an update of the driver that left its old file behind."""
    write_old(tmp_path, {FIRST: "2-5", SECOND: "8,40"})
    write_new(tmp_path, FIRST, "6-9")

    found, (problem,) = read_claimed_cpus(tmp_path)

    assert found == {SECOND: "8,40"}
    assert "has other CPUs in another file" in problem.reason


def test_many_files_have_limits(tmp_path: Path) -> None:
    """Of claims, of characters, and of problems, the last of which counts."""
    for i in range(MAX_CLAIMS + 20):
        write_new(tmp_path / "many", f"{i:08x}-0000-4000-8000-000000000000", "1")
        write_text(tmp_path / "wrong" / file_of(f"{i:08x}"), "{")
    for i in range(20):
        write_new(tmp_path / "long", f"{i:08x}-0000", ",".join(map(str, range(0, 8000, 2))))

    found, problems = read_claimed_cpus(tmp_path / "many")
    assert len(found) == MAX_CLAIMS
    assert problems[-1].reason == "skipped: 20 files are skipped"
    found, problems = read_claimed_cpus(tmp_path / "wrong")
    assert (found, len(problems), problems[-1].reason) == ({}, MAX_PROBLEMS, "skipped: 1020 files are skipped")
    found, _ = read_claimed_cpus(tmp_path / "long")
    assert 0 < sum(map(len, found.values())) <= MAX_CHARACTERS


def test_a_node_without_the_driver_reports_nothing_of_it(tmp_path: Path) -> None:
    report = _report(tmp_path)
    assert report.claimed_cpus == {}
    assert not [each for each in report.problems if each.source == "dra-driver-cpu"]


def test_claims_that_come_and_go_are_reported(tmp_path: Path) -> None:
    """Also after the directory is read only when it changes."""
    directory = under(tmp_path, DIRECTORY)
    directory.mkdir(parents=True)
    plain, look = _report(tmp_path), ClaimedCpus(tmp_path)

    assert look.added_to(plain) == plain
    write_new(directory, FIRST, "2-5")
    assert look.added_to(plain).claimed_cpus == {FIRST: "2-5"}
    time.sleep(SETTLED_SECONDS + 0.1)
    assert look.added_to(plain) == look.added_to(plain) == replace(plain, claimed_cpus={FIRST: "2-5"})
    write_new(directory, SECOND, "8,40")
    assert look.added_to(plain).claimed_cpus == BOTH
    (directory / file_of(FIRST)).unlink()
    assert look.added_to(plain).claimed_cpus == {SECOND: "8,40"}
    (directory / file_of(SECOND)).unlink()
    directory.rmdir()
    assert look.added_to(plain) == plain


def test_the_report_of_a_node_has_them(tmp_path: Path) -> None:
    write_new(under(tmp_path, DIRECTORY), FIRST, "2-5")
    write_text(under(tmp_path, DIRECTORY) / file_of(SECOND), "{")

    report = _report(tmp_path)

    assert report.claimed_cpus == {FIRST: "2-5"}
    assert [each.path for each in report.problems if each.source == "dra-driver-cpu"] == [
        f"{DIRECTORY}/{file_of(SECOND)}"
    ]


def _report(root: Path) -> NodeReport:
    write_scenario(root, SCENARIO)
    return NodeReader(NodeSettings(root=root, node_name="node-a")).look(is_tick=True)
