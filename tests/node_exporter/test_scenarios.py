"""From a recorded scenario to files, and from the files to the report: nothing may be lost or bent on the way."""

import json
import lzma
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from node_exporter.checkpoints import effective_document
from node_exporter.kubelet_config import effective_config
from node_exporter.node import NodeReader, NodeSettings
from tests.node_exporter.fake_kubelet import FakeKubelet
from tests.node_exporter.scenario_devices import device_checkpoint, plugin_devices
from tests.node_exporter.trees import KUBELET_DIR, write_scenario

VECTORS = sorted((Path(__file__).parents[1] / "vectors").glob("kubelet-*.jsonl.xz"))
STATE_FILES = {"cpu_manager_state", "memory_manager_state"}
SAMPLES = 3


def sample(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """A few scenarios of a file that have a `state_before`, with the number of its step; of each file others."""
    with lzma.open(path, "rt") as lines:
        recorded = [line for line in lines if '"state_before"' in line]
    for line in recorded[7 * VECTORS.index(path) :: len(recorded) // SAMPLES]:
        scenario = json.loads(line)
        yield scenario, next(i for i, step in enumerate(scenario["steps"]) if "state_before" in step)


def expected_kubelet(scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario's own configuration, with its reservation in whole units."""
    reservation = scenario["kubelet"]["reservation"]
    document = {"systemReserved": reservation, "reservedSystemCPUs": scenario["kubelet"]["reservedSystemCPUs"]}
    config, _ = effective_config(document, memory_capacity=0, is_running_config=True)
    return {**scenario["kubelet"], "reservation": config.reservation}


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.name)
def test_report_of_a_recorded_node_is_what_was_recorded(path: Path) -> None:
    for scenario, before in sample(path):
        state = scenario["steps"][before]["state_before"]
        checkpoint = device_checkpoint(scenario, before)
        with tempfile.TemporaryDirectory(prefix="n") as directory:
            root = write_scenario(Path(directory), scenario, {**state, "kubelet_internal_checkpoint": checkpoint})
            kubelet = FakeKubelet(root / KUBELET_DIR / "pod-resources/kubelet.sock")
            kubelet.devices = plugin_devices(scenario)
            kubelet.start()
            node = NodeReader(NodeSettings(root=root, node_name="n", kubelet_version=scenario["kubelet_version"]))
            report = orjson.loads(orjson.dumps(node.look(is_tick=True)))
            kubelet.stop()

        counts: dict[str, Any] = {"num_cpus": None, "num_cores": None}  # no CPU is in several NUMA nodes
        machine = counts | {"num_sockets": len({cpu[2] for cpu in scenario["machine"]["cpus"]}), **scenario["machine"]}
        machine["cpus"], machine["numa"] = sorted(machine["cpus"]), sorted(machine["numa"], key=lambda node: node["id"])
        assert report["machine"] == machine
        assert report["kubelet"] == expected_kubelet(scenario)
        for name, document in state.items():
            assert report["state"][name] == (effective_document(document) if name in STATE_FILES else document)
        healthy = {
            resource: {device["id"]: device["numa"] for device in devices if device["healthy"]}
            for resource, devices in report["devices"].items()
        }
        assert {resource: devices for resource, devices in healthy.items() if devices} == {
            resource: devices for resource, devices in plugin_devices(scenario).items() if devices
        }
        wrong = [item for item in report["problems"] if item["source"] == "kubelet state" and checkpoint]
        assert wrong == []
