"""NodeResourceTopology: what consumers read, what is carried, and who may write the object."""

import base64
import gzip
import lzma
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from node_exporter.bounded_http import Connection, CredentialFiles
from node_exporter.node import NodeReader, NodeSettings
from node_exporter.report import NodeReport, ReportedContainer, ReportedMemoryBlock, ReportedPod
from node_exporter.sinks import Delivery
from node_exporter.sinks.nrt import (
    LEFT_OUT,
    MAX_ANSWER_BYTES,
    REPORT,
    SPARED,
    NrtSink,
    exclusive_pods,
    fingerprint,
    to_nrt,
)
from tests.fakes.apiserver import FakeApiServer
from tests.node_exporter.nodes import SCENARIO, cpu_state, device_state, memory_state
from tests.node_exporter.trees import write_scenario

STATE = {
    "cpu_manager_state": cpu_state({"u1": {"c0": "1,5"}}, "0,2-4,6-7"),
    "memory_manager_state": memory_state({"u1": (0, 1 << 30)}),
    "kubelet_internal_checkpoint": device_state(
        {"x.example/gpu": ["g0", "g1"]}, [("u1", "x.example/gpu", {"1": ["g0"]})]
    ),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> NodeReport:
    root = write_scenario(tmp_path_factory.mktemp("n"), SCENARIO, STATE)
    look = NodeReader(NodeSettings(root=root, node_name="n1", kubelet_version="v1.36.2")).look(is_tick=True)
    listed = ReportedPod(
        namespace="d", name="a", uid="u1", counted=True, containers=(ReportedContainer(name="c0", cpus=(1, 5)),)
    )
    return replace(look, sequence=7, observed_at=1.0, pods=(listed,))


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as fake:
        yield fake


def sink_for(server: FakeApiServer, *, refresh: float = 600.0, token: Path | None = None) -> NrtSink:
    api = Connection(
        server.url, timeout_seconds=5, credentials=CredentialFiles(token_file=token), max_answer_bytes=MAX_ANSWER_BYTES
    )
    return NrtSink(api, "n1", refresh_seconds=refresh)


def attributes(content: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in content["attributes"]}


def test_fingerprints_are_those_that_consumers_compute() -> None:
    assert fingerprint([]) == "pfp0v001ef46db3751d8e999"
    assert fingerprint([("default", "a")]) == "pfp0v00173ac1f6debaedf3d"
    assert fingerprint([("x", "b"), ("default", "a")]) == fingerprint([("default", "a"), ("x", "b")])
    assert fingerprint([("x", "b"), ("x", "b")]) != fingerprint([("x", "b")])


def test_pods_without_anything_exclusive_are_no_part_of_the_fingerprint(report: NodeReport) -> None:
    def pod(name: str, **held: Any) -> ReportedPod:
        return ReportedPod(
            namespace="d", name=name, uid=None, counted=None, containers=(ReportedContainer(name="c", **held),)
        )

    pods = (
        pod("cpus", cpus=(1,)),
        pod("memory", memory=(ReportedMemoryBlock(type="memory", size=1, numa=(0,)),)),
        pod("device", devices={"x.example/gpu": ["g0"]}),
        pod("device nobody knows the place of", devices={"x.example/gpu": ["g1"]}),
        pod("shared"),
        replace(pod("gone", cpus=(2,)), counted=False),
        ReportedPod(namespace="", name="", uid="u9", counted=None),
    )

    assert exclusive_pods(replace(report, pods=pods)) == [("d", "cpus"), ("d", "memory"), ("d", "device")]
    assert exclusive_pods(replace(report, pods=None)) is None


def test_consumers_find_zones_policies_and_fingerprint(report: NodeReport) -> None:
    content: dict[str, Any] = to_nrt(report, node_uid="node-uid")

    assert content["metadata"]["name"] == "n1"
    assert content["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid"}
    ]
    assert attributes(content) == {
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "nodeTopologyPodsFingerprint": fingerprint([("d", "a")]),
        "nodeTopologyPodsFingerprintMethod": "with-exclusive-resources",
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "container",
    }
    assert [zone["name"] for zone in content["zones"]] == ["node-0", "node-1"]
    first = content["zones"][0]
    assert first["type"] == "Node"
    assert first["costs"] == [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 21}]
    assert first["resources"][0] == {"name": "cpu", "capacity": "4", "allocatable": "2", "available": "0"}
    assert [resource["name"] for resource in first["resources"]] == ["cpu", "hugepages-2Mi", "memory"]
    assert content == to_nrt(report, node_uid="node-uid")


def test_options_have_the_names_that_consumers_look_for(report: NodeReport) -> None:
    assert report.kubelet is not None
    kubelet = replace(
        report.kubelet,
        topologyManagerPolicyOptions={"max-allowable-numa-nodes": "12", "prefer-closest-numa-nodes": "true"},
        cpuManagerPolicyOptions={"full-pcpus-only": "true"},
    )

    found = attributes(to_nrt(replace(report, kubelet=kubelet)))

    assert found["topologyManagerMaxNUMANodes"] == "12"
    assert found["topologyManagerOptionPreferClosestNumaNodes"] == "true"
    assert found["cpuManagerPolicyOptionFullPcpusOnly"] == "true"


def test_the_report_is_carried_as_far_as_it_fits(report: NodeReport) -> None:
    def carried(most: int) -> tuple[dict[str, Any] | None, str | None]:
        annotations: dict[str, str] = to_nrt(report, max_carried_chars=most)["metadata"]["annotations"]  # type: ignore[index]
        packed = annotations.get(REPORT)
        if packed is None:
            return None, annotations.get(LEFT_OUT)
        raw = base64.b64decode(packed)
        content = orjson.loads(gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else lzma.decompress(raw))
        return content, annotations.get(LEFT_OUT)

    whole, left_out = carried(1 << 18)
    assert (whole, left_out) == (orjson.loads(orjson.dumps(report)), None)
    size = len(to_nrt(report)["metadata"]["annotations"][REPORT])  # type: ignore[index]
    smaller, left_out = carried(size - 1)
    assert smaller is not None
    assert (smaller["zones"], smaller["pods"][0]["containers"], left_out) == ([], [], SPARED)
    assert smaller["state"]["kubelet_internal_checkpoint"]["Data"]["RegisteredDevices"] == {}
    for name in ("cpu_manager_state", "memory_manager_state"):
        assert smaller["state"][name] == whole["state"][name]  # type: ignore[index]
    assert carried(100) == (None, "all")


def test_the_object_is_written_once_for_each_change(report: NodeReport, server: FakeApiServer) -> None:
    server.nodes.create({"metadata": {"name": "n1"}})
    sink = sink_for(server)

    assert sink.post_heartbeat(b"").outcome is Delivery.WANTS_REPORT
    assert sink.put_report(report, b"").outcome is Delivery.ACCEPTED
    first = server.topologies.get("n1")
    assert sink.post_heartbeat(b"").outcome is Delivery.ACCEPTED
    assert server.topologies.get("n1") == first
    assert sink.put_report(replace(report, sequence=8, kubelet_version="v1.36.3"), b"").outcome is Delivery.ACCEPTED
    sink.close()

    second = server.topologies.get("n1")
    node = server.nodes.get("n1")
    assert first is not None
    assert second is not None
    assert node is not None
    assert second["metadata"]["resourceVersion"] != first["metadata"]["resourceVersion"]
    assert first["metadata"]["ownerReferences"][0]["uid"] == node["metadata"]["uid"]
    assert [entry["manager"] for entry in first["metadata"]["managedFields"]] == ["numa-node-exporter"]


def test_a_silent_node_is_confirmed_when_it_is_due(report: NodeReport, server: FakeApiServer) -> None:
    sink = sink_for(server, refresh=0.0)
    sink.put_report(report, b"")
    server.topologies.delete("n1")

    assert sink.post_heartbeat(b"").outcome is Delivery.ACCEPTED
    sink.close()
    restored = server.topologies.get("n1")
    assert restored is not None
    assert restored["metadata"]["annotations"]["numa-extender/refresh-seconds"] == "0"


def test_an_object_of_somebody_else_is_left_alone(report: NodeReport, server: FakeApiServer) -> None:
    sink = sink_for(server)
    theirs = {"metadata": {"name": "n1", "managedFields": [{"manager": "nfd-topology-updater"}]}, "zones": []}
    before = server.topologies.create(theirs)

    reply = sink.put_report(report, b"")

    assert reply.outcome is Delivery.REFUSED
    assert "nfd-topology-updater" in reply.detail
    assert server.topologies.get("n1") == before
    server.topologies.delete("n1")
    assert sink.put_report(report, b"").outcome is Delivery.ACCEPTED, "the other publisher was removed"
    sink.close()


def test_another_writer_is_noticed_at_the_next_write(report: NodeReport, server: FakeApiServer) -> None:
    sink = sink_for(server)
    sink.put_report(report, b"")
    server.topologies.patch("n1", {"metadata": {"managedFields": [{"manager": "rte"}]}})
    intruder = sink_for(server)

    assert "rte" in intruder.put_report(report, b"").detail
    for each in (sink, intruder):
        each.close()


def test_labels_and_annotations_of_others_are_no_reason(report: NodeReport, server: FakeApiServer) -> None:
    fields: dict[str, Any] = {"f:metadata": {"f:labels": {"f:team": {}}}}
    theirs = {"metadata": {"name": "n1", "managedFields": [{"manager": "kubectl", "fieldsV1": fields}]}, "zones": []}
    server.topologies.create(theirs)
    sink = sink_for(server)

    assert sink.put_report(report, b"").outcome is Delivery.ACCEPTED
    sink.close()


def test_the_owner_is_in_the_token(report: NodeReport, server: FakeApiServer, tmp_path: Path) -> None:
    claims = {"kubernetes.io": {"node": {"name": "n1", "uid": "from-token"}}}
    payload = base64.urlsafe_b64encode(orjson.dumps(claims)).decode().rstrip("=")
    token = tmp_path / "token"
    token.write_text(f"e30.{payload}.c2ln")
    server.nodes.create({"metadata": {"name": "n1", "uid": "from-node"}})
    sink = sink_for(server, token=token)

    assert sink.put_report(report, b"").outcome is Delivery.ACCEPTED
    sink.close()
    stored = server.topologies.get("n1")
    assert stored is not None
    assert stored["metadata"]["ownerReferences"][0]["uid"] == "from-token"


def test_three_rights_are_enough(report: NodeReport, server: FakeApiServer, tmp_path: Path) -> None:
    claims = {"kubernetes.io": {"node": {"name": "n1", "uid": "u"}}}
    text = f"e30.{base64.urlsafe_b64encode(orjson.dumps(claims)).decode()}.c2ln"
    (tmp_path / "token").write_text(text)
    topologies = "topology.node.k8s.io/noderesourcetopologies"
    server.access.tokens = {text: "exporter"}
    server.access.grants = {"exporter": {("get", topologies), ("patch", topologies)}}
    sink = sink_for(server, token=tmp_path / "token", refresh=0.0)

    assert sink.put_report(report, b"").outcome is Delivery.ACCEPTED
    assert sink.post_heartbeat(b"").outcome is Delivery.ACCEPTED
    server.access.grants = {"exporter": set()}
    refused = sink.put_report(report, b"")
    sink.close()

    assert refused.outcome is Delivery.REFUSED
    assert "cannot patch" in refused.detail


def test_an_object_without_owner_is_better_than_none(report: NodeReport, server: FakeApiServer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("opaque")
    topologies = "topology.node.k8s.io/noderesourcetopologies"
    server.access.tokens = {"opaque": "exporter"}
    server.access.grants = {"exporter": {("get", topologies), ("patch", topologies)}}
    sink = sink_for(server, token=tmp_path / "token")

    assert sink.put_report(report, b"").outcome is Delivery.ACCEPTED
    sink.close()
    stored = server.topologies.get("n1")
    assert stored is not None
    assert "ownerReferences" not in stored["metadata"]


def test_the_program_publishes_where_it_is_told(server: FakeApiServer, tmp_path: Path) -> None:
    root = write_scenario(tmp_path / "node", SCENARIO, STATE)
    (tmp_path / "token").write_text("opaque")
    command = [sys.executable, "-m", "node_exporter", "run", "--once", "--listen", "", "--node-name", "n1"]
    command += ["--root", str(root), "--nrt", "--api-url", server.url, "--api-token-file", str(tmp_path / "token")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    stored = server.topologies.get("n1")
    assert stored is not None
    assert stored["metadata"]["annotations"][REPORT]


@pytest.mark.parametrize(
    ("more", "fault"), [(["--push", "http://x"], "either --push URL or --nrt"), ([], "Not in a pod")]
)
def test_where_to_publish_must_be_clear(more: list[str], fault: str) -> None:
    command = [sys.executable, "-m", "node_exporter", "run", "--nrt", *more]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("KUBERNETES_")}

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)

    assert done.returncode == 2
    assert fault in done.stderr


def test_an_api_server_in_trouble_is_a_reply(report: NodeReport) -> None:
    gone = NrtSink(Connection("http://127.0.0.1:1", timeout_seconds=5, credentials=CredentialFiles()), "n1")

    reply = gone.put_report(report, b"")

    assert reply.outcome is Delivery.UNAVAILABLE
    assert "Connect" in reply.detail
