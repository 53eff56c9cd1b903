"""Nodes that have just come: judged as empty copies of the newest node of their kind, until they report."""

import json
from pathlib import Path
from typing import Any

import pytest

from extender.app import make_service
from extender.config.settings import Settings
from extender.features.profiles import ProfileError
from extender.features.siblings.siblings import PROFILE_CAVEAT
from extender.samples.nodes import SampleNode, Workload
from tests.contract.live import Client, cluster
from tests.fakes.apiserver import FakeApiServer
from tests.reports import pod_of, report_of, sample
from tests.waiting import until

Json = dict[str, Any]
LABEL = "node.kubernetes.io/instance-type"
BUSY = [Workload(name="w", copies=2, resources={"cpu": 14, "memory": "1Gi"})]
CAVEAT = "the node has not reported yet: it is judged as an empty copy of a node of its kind"
ON: Json = {"sibling_labels": LABEL, "unknown_nodes": "refuse"}
UNKNOWN = "the node's NUMA state is not known"


def _add(server: FakeApiServer, name: str, *, version: str = "v1.36.2", cpus: str = "30", kind: str = "large") -> None:
    created = f"2026-01-01T00:00:{len(name):02d}Z"
    server.nodes.create({"metadata": {"name": name, "labels": {LABEL: kind}, "creationTimestamp": created}})
    status = {"nodeInfo": {"kubeletVersion": version}, "allocatable": {"cpu": cpus, "memory": "62Gi", "pods": "110"}}
    server.nodes.patch(name, {"status": status}, "")


def _why(client: Client, pod: Json, name: str) -> str:
    """The reason of the refusal, empty if the node is offered."""
    return str(client.filter(pod, name)["FailedAndUnresolvableNodes"].get(name, ""))


def test_a_new_node_takes_the_pods_that_it_can_take_from_its_first_second(tmp_path: Path) -> None:
    with cluster(tmp_path, **ON) as (server, service, client):
        _add(server, "old")
        client.report(report_of(sample("old", workloads=BUSY)))
        until(lambda: service.known.nodes.get("old") is not None)

        _add(server, "fresh")
        until(lambda: service.known.nodes.get("fresh") is not None)

        assert _why(client, pod_of(16), "old"), "it is full"
        assert _why(client, pod_of(16), "fresh") == ""
        assert "can never" in _why(client, pod_of(17), "fresh"), "no NUMA node has so many CPUs"
        (answer,) = client.call("POST", "/v1/what-if", {"pod": pod_of(16), "nodes": ["fresh"]})[1]["nodes"]
        assert (answer["outcome"], answer["certainty"]) == ("fits", "assumed")
        assert CAVEAT in answer["notes"]
        assert client.call("GET", "/v1/nodes/fresh")[0] == 200
        assert client.call("GET", "/v1/nodes")[0] == 200
        assert client.call("GET", "/v1/map")[0] == 200

        pod = server.pods.create(pod_of(16, name="first"))
        client.filter(pod, "fresh")
        assert client.bind(pod, "fresh") == ""
        assert _why(client, pod_of(16), "fresh"), "the pod that was bound holds its room"
        assert _why(client, pod_of(14), "fresh") == ""

        client.report(report_of(sample("fresh", workloads=BUSY)))
        (answer,) = client.call("POST", "/v1/what-if", {"pod": pod_of(2), "nodes": ["fresh"]})[1]["nodes"]
        assert CAVEAT not in answer["notes"], "its own report replaces everything"
        assert answer["certainty"] != "assumed"


@pytest.mark.parametrize(
    "other", [{"version": "v1.35.0"}, {"cpus": "62"}, {"kind": "small"}], ids=["version", "cpus", "label"]
)
def test_a_node_of_another_kind_stays_unknown(tmp_path: Path, other: dict[str, str]) -> None:
    with cluster(tmp_path, **ON) as (server, service, client):
        _add(server, "old")
        client.report(report_of(sample("old")))
        _add(server, "fresh", **other)
        until(lambda: service.surroundings("fresh").allocatable_milli is not None)

        assert _why(client, pod_of(2), "fresh") == UNKNOWN


def test_nothing_is_assumed_where_nodes_of_the_kind_differ(tmp_path: Path) -> None:
    with cluster(tmp_path, **ON) as (server, service, client):
        nodes: list[SampleNode] = [sample("a"), sample("bb", topologyManagerPolicy="best-effort")]
        for node in nodes:
            _add(server, node.name)
            client.report(report_of(node))
        until(lambda: service.surroundings("bb").allocatable_milli is not None)
        _add(server, "fresh")
        until(lambda: service.surroundings("fresh").allocatable_milli is not None)

        assert _why(client, pod_of(2), "fresh") == UNKNOWN


def test_a_sibling_that_reports_later_decides_then_and_a_node_that_goes_is_forgotten(tmp_path: Path) -> None:
    with cluster(tmp_path, **ON) as (server, service, client):
        _add(server, "old")
        _add(server, "fresh")
        until(lambda: service.surroundings("fresh").allocatable_milli is not None)
        assert _why(client, pod_of(2), "fresh") == UNKNOWN

        client.report(report_of(sample("old")))
        until(lambda: service.known.nodes.get("fresh") is not None)
        assert _why(client, pod_of(2), "fresh") == ""

        server.nodes.delete("fresh", "")
        until(lambda: service.known.nodes.get("fresh") is None)


def test_names_that_only_a_filter_call_has_leave_no_trace(tmp_path: Path) -> None:
    """cluster-autoscaler asks about a node that does not exist, to find out whether one more would help."""
    template = "template-node-for-group-a-42"
    with cluster(tmp_path, **ON) as (server, service, client):
        _add(server, "old")
        client.report(report_of(sample("old")))
        for _ in range(3):
            client.filter(pod_of(2), "old", template)

        assert [record.name for record in service.known.nodes] == ["old"]
        assert client.call("GET", f"/v1/nodes/{template}")[0] == 404


def _profile(directory: Path, **document: Any) -> Path:
    """A directory of profiles with one file."""
    profiles = directory / "profiles"
    profiles.mkdir()
    whole = {"labels": {LABEL: "large"}, "report": report_of(sample("recorded", workloads=BUSY)), **document}
    (profiles / "large.json").write_text(json.dumps(whole))
    return profiles


def test_the_first_node_of_a_kind_is_judged_by_its_profile_until_a_node_of_the_kind_reports(tmp_path: Path) -> None:
    with cluster(tmp_path, node_profiles=_profile(tmp_path), **ON) as (server, service, client):
        _add(server, "fresh", version="v1.34.1")
        _add(server, "other", kind="small")
        until(lambda: service.known.nodes.get("fresh") is not None)

        assert _why(client, pod_of(16), "fresh") == "", "the pods of the recorded node are not its own"
        assert "can never" in _why(client, pod_of(17), "fresh")
        assert _why(client, pod_of(2), "other") == UNKNOWN
        (answer,) = client.call("POST", "/v1/what-if", {"pod": pod_of(16), "nodes": ["fresh"]})[1]["nodes"]
        assert (answer["outcome"], answer["certainty"]) == ("fits", "assumed")
        assert PROFILE_CAVEAT in answer["notes"]
        assert client.call("GET", "/v1/nodes/fresh")[1]["kubelet_version"] == "v1.34.1"

        client.report(report_of(sample("fresh", workloads=BUSY)))
        assert _why(client, pod_of(16), "fresh"), "its own report replaces everything"


def test_a_sibling_is_better_than_a_profile(tmp_path: Path) -> None:
    split = report_of(sample("recorded", topologyManagerPolicy="none"))
    with cluster(tmp_path, node_profiles=_profile(tmp_path, report=split), **ON) as (server, service, client):
        _add(server, "old")
        client.report(report_of(sample("old")))
        _add(server, "fresh")
        until(lambda: service.known.nodes.get("fresh") is not None)

        assert "can never" in _why(client, pod_of(17), "fresh"), "the profile's kubelet would admit it"


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"labels": {}}, "labels: a profile without labels would stand for every node"),
        ({"labels": {LABEL: 3}}, f"labels.{LABEL}"),
        ({"labels": None}, "labels"),
        ({"report": {"nodeName": "x"}}, "report.schema_version: missing"),
        ({"report": []}, "report"),
        ({"report": report_of(sample()) | {"sequence": "x"}}, "report.sequence: "),
        (
            {"report": report_of(sample()) | {"kubelet_version": None}},
            "report: it is not enough for a verdict: kubelet_version: unknown",
        ),
    ],
)
def test_a_profile_that_cannot_be_used_is_an_error_at_start(tmp_path: Path, document: Json, fault: str) -> None:
    profiles = _profile(tmp_path, **document)

    with pytest.raises(ProfileError, match=r"large\.json") as caught:
        make_service(Settings(node_profiles=profiles))
    assert fault in str(caught.value)


def test_a_directory_that_does_not_exist_is_an_error_at_start(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="No such file"):
        make_service(Settings(node_profiles=tmp_path / "none"))


def test_without_the_setting_nothing_is_assumed(tmp_path: Path) -> None:
    with cluster(tmp_path, unknown_nodes="refuse") as (server, service, client):
        for name in ("old", "fresh"):
            _add(server, name)
        client.report(report_of(sample("old")))
        until(lambda: service.surroundings("fresh").allocatable_milli is not None)

        assert _why(client, pod_of(2), "fresh") == UNKNOWN
