"""State files of 1.37: what counts is `data`, for the exporter and for the extender."""

import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from extender.wire.errors import WireError
from node_exporter.checkpoints import (
    StateDocumentError,
    edited_by_hand,
    effective_document,
    fnv32a,
    parse_files,
    read_files,
    wrong_checksum,
)
from tests.checkpoints import cpu_state_from_json, memory_state_from_json

RECORDED = Path(__file__).parents[1] / "vectors" / "state-files" / "1.37.jsonl.xz"
READERS: dict[str, Callable[[Any], object]] = {
    "cpu_manager_state": cpu_state_from_json,
    "memory_manager_state": memory_state_from_json,
}


def recorded() -> list[dict[str, Any]]:
    with lzma.open(RECORDED, "rt") as lines:
        return [json.loads(line) for line in lines]


def written(inner: str | dict[str, Any], outer: dict[str, Any] | None = None) -> dict[str, Any]:
    """A document with *inner* as its `data`, and a checksum that fits."""
    data = inner if isinstance(inner, str) else json.dumps(inner)
    return {**(outer or {}), "data": data, "dataChecksum": fnv32a(b"(string)" + data.encode())}


def test_every_recorded_file_is_read_through_its_data() -> None:
    files = recorded()
    with_pod_entries = 0
    for file in files:
        document = json.loads(file["text"])
        assert wrong_checksum(document) is None  # the part for older kubelets
        inner = effective_document(document)
        assert not edited_by_hand(document)
        assert inner == json.loads(document["data"])
        read = READERS[file["file"]]
        assert read(document) == read(inner)
        with_pod_entries += bool(inner.get("podEntries"))
        older = {key: value for key, value in document.items() if key not in {"data", "dataChecksum"}}
        assert effective_document(older) is older
    assert (len(files), with_pod_entries) == (120, 40)


def test_the_exporter_passes_on_what_the_kubelet_restores(tmp_path: Path) -> None:
    for file in recorded():
        document = json.loads(file["text"])
        (tmp_path / file["file"]).write_text(file["text"])

        state, problems = parse_files(read_files(tmp_path))

        assert not [p for p in problems if p.path == file["file"]]
        assert getattr(state, file["file"]) == json.loads(document["data"])
        fixed = json.dumps({**document, "dataChecksum": document["dataChecksum"] ^ 1})
        (tmp_path / file["file"]).write_text(fixed)

        state, problems = parse_files(read_files(tmp_path))

        assert getattr(state, file["file"]) is None
        assert any("dataChecksum is" in p.reason for p in problems if p.path == file["file"])


def test_pod_entries_of_1_37_are_read() -> None:
    inner = {"policyName": "static", "defaultCpuSet": "0-3", "podEntries": {"u": {"cpuSet": "4-7"}}}
    document = written(inner, {"policyName": "static", "defaultCpuSet": "0-3", "checksum": 1})

    state = cpu_state_from_json(document)

    assert state is not None
    assert state.pod_entries == {"u": 0xF0}


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"data": "{}"}, "dataChecksum is 0"),
        ({"data": "{}", "dataChecksum": 7}, "dataChecksum is 7, data has "),
        ({"dataChecksum": 7}, "a dataChecksum, but no data"),
        ({"data": ["x"], "dataChecksum": 7}, "a dataChecksum, but no data"),
        (written("[1]"), "data is not a JSON object"),
        (written("{"), "data is not JSON"),
        (written("[" * 100_000), "data is not JSON"),
    ],
)
def test_a_file_that_no_kubelet_starts_with_says_why(document: dict[str, Any], reason: str) -> None:
    with pytest.raises(StateDocumentError, match=reason):
        effective_document(document)
    with pytest.raises(WireError, match=r"state\.cpu_manager_state: no kubelet starts with this file"):
        cpu_state_from_json({"policyName": "static", "defaultCpuSet": "0-3", **document})


def test_a_file_whose_parts_differ_was_edited() -> None:
    inner = {"policyName": "static", "defaultCpuSet": "0-3"}

    assert not edited_by_hand(written(inner, {**inner, "checksum": 1}))
    assert not edited_by_hand(written({**inner, "podEntries": {"u": {"cpuSet": "4"}}}, {**inner, "checksum": 1}))
    assert edited_by_hand(written(inner, {**inner, "defaultCpuSet": "0-2", "checksum": 1}))
    assert not edited_by_hand({**inner, "checksum": 1})
