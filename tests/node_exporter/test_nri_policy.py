"""Grants and configuration of the NRI policy: what is read, what is refused, and what of it reaches the report."""

import json
import math
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from node_exporter.__main__ import main
from node_exporter.bounded_http import Connection, CredentialFiles
from node_exporter.node import NodeReader, NodeSettings
from node_exporter.nri_plugin import STATE_FILE, read_state_file
from node_exporter.nri_policy import NriObserver, config_from_api, config_from_file
from node_exporter.report import ReportedNriPolicy
from tests.node_exporter.nodes import SCENARIO, cpu_state, memory_state
from tests.node_exporter.nri_trees import GRANT, state_file, write_nri_machine, write_state_file
from tests.node_exporter.trees import write_scenario, write_text
from tests.replay.nri.vectors import snapshot

SPEC = {"pinCPU": True, "pinMemory": True, "reservedResources": {"cpu": "750m"}}


def test_grants_are_what_the_plugin_last_wrote(tmp_path: Path) -> None:
    reserved = GRANT | {"PrettyName": "kube-system/dns/main", "CPUType": 1, "Exclusive": "", "Pool": "root"}
    write_state_file(tmp_path, {"c2": reserved, "c1": GRANT})

    state = read_state_file(tmp_path)

    assert state is not None
    grants = state.grants
    first, second = grants
    assert (first.container_id, first.namespace, first.pod, first.container) == ("c1", "team", "solver", "app")
    assert (first.pool, first.cpu_type, first.exclusive, first.millicpu) == ("NUMA node #1", "normal", "4-5", 500)
    assert (first.memory_nodes, first.memory_types, first.memory_bytes) == (2, 1, 1 << 30)
    assert (second.container_id, second.cpu_type) == ("c2", "reserved")


def test_a_grant_has_what_later_decisions_read_of_its_pod(tmp_path: Path) -> None:
    pod = {"Pod": {"id": "s1", "uid": "u1", "labels": {"app": "web"}}, "QOSClass": "Burstable"}
    requests = {"cpu": "500m", "memory": "1Gi"}
    containers = {
        "c1": {"Ctr": {"pod_sandbox_id": "s1", "labels": {"tier": "1"}}, "Requirements": {"requests": requests}},
        "c2": {"Ctr": {"pod_sandbox_id": "s1"}, "Requirements": {"requests": {"memory": "1Gi"}}},
        "c3": {
            "Ctr": {"pod_sandbox_id": "gone"}, "Requirements": {},
            "ResourceUpdates": {"requests": {"cpu": "0"}},
        },
    }  # fmt: skip
    containers["c5"] = containers["c1"] | {"ResourceUpdates": {}}  # a resize took the request away
    names = ("c1", "c2", "c3", "c4", "c5")
    write_state_file(tmp_path, dict.fromkeys(names, GRANT), Pods={"s1": pod}, Containers=containers)

    state = read_state_file(tmp_path)

    assert state is not None
    grants = state.grants
    assert [(g.pod_uid, g.qos, g.requests_cpu) for g in grants] == [
        ("u1", "Burstable", True), ("u1", "Burstable", False), ("", "", False), ("", "", False),
        ("u1", "Burstable", False),
    ]  # fmt: skip
    assert (grants[0].pod_labels, grants[0].labels) == ({"app": "web"}, {"tier": "1"})


@pytest.mark.parametrize(("written", "types"), [("DRAM", 1), ("DRAM,PMEM,HBM", 7), ("HBM", 4), ("", 8), (3, 3)])
def test_types_of_memory_are_written_by_name(written: object, types: int, tmp_path: Path) -> None:
    """`pod-preferences.go` MarshalJSON; memory that the policy leaves alone has no name. Seen red: only numbers were
    read, so that the grants of no real node were known."""
    write_state_file(tmp_path, {"c1": GRANT | {"MemType": written}})

    state = read_state_file(tmp_path)

    assert state is not None
    grants = state.grants
    assert grants[0].memory_types == types


@pytest.mark.parametrize("written", ["DDR", "DRAM,", "dram", None, 16, -1, True, ["DRAM"]])
def test_other_types_of_memory_are_refused(written: object, tmp_path: Path) -> None:
    write_state_file(tmp_path, {"c1": GRANT | {"MemType": written}})

    with pytest.raises(ValueError, match="grant 'c1': MemType"):
        read_state_file(tmp_path)


@pytest.mark.parametrize(("state", "is_known"), [(0, True), (1, False), (2, False), (3, False), (4, True)])
def test_a_plugin_that_has_just_started_has_not_placed_what_runs(
    state: int,
    is_known: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    """It writes the file without its grants first. Seen red: the node looked empty until the grants came."""
    containers = {"c1": {"Ctr": {"id": "c1", "state": state}}}
    write_state_file(tmp_path, {}, PolicyJSON={}, Containers=containers)

    if is_known:
        assert read_state_file(tmp_path) == ((), ())
    else:
        with pytest.raises(ValueError, match="has not yet placed the containers that run"):
            read_state_file(tmp_path)


def test_a_pod_with_countless_labels_is_refused(tmp_path: Path) -> None:
    labels = {f"l{i}": "" for i in range(300)}
    containers = {"c1": {"Ctr": {"labels": labels}}}
    write_state_file(tmp_path, {"c1": GRANT}, Containers=containers)

    with pytest.raises(ValueError, match="300 labels"):
        read_state_file(tmp_path)


def test_no_state_file_is_no_policy_and_one_without_decisions_grants_nothing(tmp_path: Path) -> None:
    assert read_state_file(tmp_path) is None

    write_state_file(tmp_path, {}, PolicyJSON={})

    assert read_state_file(tmp_path) == ((), ())


@pytest.mark.parametrize(
    ("grant", "changes", "words"),
    [
        ({}, {"Version": "2"}, "version '2' is not known"),
        ({}, {"PolicyName": "balloons"}, "written by policy 'balloons'"),
        ({}, {"PolicyJSON": {"allocations": 3}}, "allocations"),
        ({}, {"PolicyJSON": {"allocations": "{"}}, "not JSON"),
        ({}, {"PolicyJSON": {"allocations": "[]"}}, "an object of up to"),
        ({"PrettyName": "solver"}, {}, "PrettyName"),
        ({"Part": "500"}, {}, "Part is not a number"),
        ({"Part": True}, {}, "Part is not a number"),
        ({"CPUType": 3}, {}, "CPUType is not a number from 0 to 2"),
        ({"MemoryPool": 1 << 64}, {}, "MemoryPool"),
        ({"Exclusive": "9-1"}, {}, "not a range"),
        ({"Pool": None}, {}, "Pool is not a text"),
    ],
)
def test_a_state_file_of_another_form_is_refused(
    grant: dict[str, object], changes: dict[str, object], words: str, tmp_path: Path
) -> None:
    write_state_file(tmp_path, {"c1": GRANT | grant}, **changes)

    with pytest.raises(ValueError, match=words):
        read_state_file(tmp_path)


def test_a_huge_state_file_costs_its_own_part_only(tmp_path: Path) -> None:
    write_text(tmp_path / STATE_FILE, " " * (9 << 20))

    policy, problems = NriObserver(tmp_path, None).look(is_tick=True)

    assert policy is not None
    assert policy.grants is None
    assert f"/{STATE_FILE}" in {problem.path for problem in problems}


def test_a_node_without_the_policy_has_no_section(tmp_path: Path) -> None:
    assert NriObserver(tmp_path, None).look(is_tick=True) == (None, ())


class FakeApi:
    """Answers GET with the objects by path; 404 for the rest. `status`: for every answer, if it is set."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.status: int | None = None
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                body = orjson.dumps(outer.objects.get(self.path, {}))
                self.send_response(outer.status or (200 if self.path in outer.objects else 404))
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def api() -> Iterator[FakeApi]:
    fake = FakeApi()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def policy(name: str, **spec: object) -> tuple[str, dict[str, Any]]:
    path = f"/apis/config.nri/v1alpha1/namespaces/kube-system/topologyawarepolicies/{name}"
    status = {"nodes": {"n1": {"status": "Success"}}}
    return path, {"kind": "TopologyAwarePolicy", "metadata": {"name": name}, "spec": spec, "status": status}


def connection(api: FakeApi) -> Connection:
    return Connection(api.url, timeout_seconds=5, credentials=CredentialFiles())


def test_the_most_specific_configuration_applies(api: FakeApi) -> None:
    read = config_from_api(connection(api), "n1", "kube-system")
    api.objects["/api/v1/nodes/n1"] = {"metadata": {"labels": {"config.nri/group": "fast"}}}
    found = [read()]
    for name in ("default", "group.fast", "node.n1"):
        path, document = policy(name, pinCPU=True)
        api.objects[path] = document
        found.append(read())

    assert found[0] is None
    assert [config.source for config in found[1:] if config] == ["default", "group.fast", "node.n1"]
    assert found[3] is not None
    assert (found[3].spec, found[3].status) == ({"pinCPU": True}, "Success")


def test_an_api_server_that_refuses_costs_the_configuration_only(api: FakeApi, tmp_path: Path) -> None:
    api.status = 403
    write_state_file(tmp_path, {"c1": GRANT})
    write_nri_machine(tmp_path, snapshot("s-n4c16"))

    policy, problems = NriObserver(tmp_path, config_from_api(connection(api), "n1", "kube-system")).look(is_tick=True)

    assert policy is not None
    assert policy.config is None
    assert policy.grants is not None
    assert policy.machine is not None
    assert ["403" in problem.reason for problem in problems] == [True]


def test_the_api_server_is_not_asked_at_every_look(api: FakeApi, tmp_path: Path) -> None:
    observer = NriObserver(tmp_path, config_from_api(connection(api), "n1", "kube-system"))
    for _ in range(5):
        observer.look(is_tick=True)

    assert len(api.asked) == 3  # the node, node.n1 and default


def test_a_configuration_that_the_plugin_has_not_confirmed_is_a_problem(api: FakeApi, tmp_path: Path) -> None:
    """The plugin may look for its group in another label, or run in another namespace."""
    write_state_file(tmp_path, {"c1": GRANT})
    path, document = policy("default", **SPEC)
    found = []
    for status in ({"nodes": {"n1": {"status": "Success"}}}, {"nodes": {"n2": {"status": "Success"}}}):
        api.objects[path] = document | {"status": status}
        observer = NriObserver(tmp_path, config_from_api(connection(api), "n1", "kube-system"))
        found.append([p.reason for p in observer.look(is_tick=True)[1] if p.path == "config"])

    assert found == [[], ["the plugin has not confirmed default for this node"]]


def test_a_default_configuration_alone_does_not_make_a_node_one_of_the_policy(api: FakeApi, tmp_path: Path) -> None:
    """The plugin runs on some nodes only, and the object applies to all of them."""
    path, document = policy("default", **SPEC)
    sections = []
    for status in ({"nodes": {"n2": {"status": "Success"}}}, {"nodes": {"n1": {"status": "Success"}}}):
        api.objects[path] = document | {"status": status}
        observer = NriObserver(tmp_path, config_from_api(connection(api), "n1", "kube-system"))
        sections.append(observer.look(is_tick=True))

    assert sections[0] == (None, ())
    assert sections[1][0] is not None


def _object(at: int, status: dict[str, object], *, pin: bool) -> tuple[str, dict[str, Any]]:
    path, document = policy("default", pinCPU=pin)
    document["metadata"]["generation"] = at
    return path, document | {"status": {"nodes": {"n1": status}}}


@pytest.mark.parametrize(
    ("status", "doubts", "notes"),
    [
        ({"status": "Success", "generation": 1}, ["generation 1 of default for this node, and not yet 2"], []),
        ({"status": "Failure", "generation": 2}, [], ["refused generation 2 of default, and goes on with default"]),
    ],
)
def test_the_plugin_goes_on_with_the_configuration_that_it_confirmed(
    status: dict[str, object], doubts: list[str], notes: list[str], api: FakeApi
) -> None:
    read = config_from_api(connection(api), "n1", "kube-system")
    path, api.objects[path] = _object(1, {"status": "Success", "generation": 1}, pin=True)
    before = read()

    path, api.objects[path] = _object(2, status, pin=False)
    now = read()

    assert before is not None
    assert now is not None
    assert (before.spec, before.doubts) == ({"pinCPU": True}, ())
    assert (now.spec, now.status) == ({"pinCPU": True}, "Success")
    assert [wanted in found for wanted, found in zip(doubts, now.doubts, strict=True)] == [True] * len(doubts)
    assert [wanted in found for wanted, found in zip(notes, now.notes, strict=True)] == [True] * len(notes)


def test_a_configuration_that_is_not_confirmed_yet_is_asked_for_at_each_regular_look(
    api: FakeApi, tmp_path: Path
) -> None:
    write_state_file(tmp_path, {"c1": GRANT})
    observer = NriObserver(tmp_path, config_from_api(connection(api), "n1", "kube-system"))
    path, api.objects[path] = _object(2, {"status": "Success", "generation": 1}, pin=False)
    first, _ = observer.look(is_tick=True)
    path, api.objects[path] = _object(2, {"status": "Success", "generation": 2}, pin=False)

    second, _ = observer.look(is_tick=True)

    assert first is not None
    assert second is not None
    assert (len(first.doubts), second.doubts) == (1, ())


def test_an_edit_is_seen_when_the_plugin_writes_its_state_file(
    api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen red: the old configuration stayed, and was trusted, for 60 s."""
    now = 1000.0
    monkeypatch.setattr("node_exporter.nri_policy.time.monotonic", lambda: now)
    write_state_file(tmp_path, {"c1": GRANT})
    path, api.objects[path] = _object(1, {"status": "Success", "generation": 1}, pin=True)
    observer = NriObserver(tmp_path, config_from_api(connection(api), "n1", "kube-system"))
    observer.look(is_tick=True)
    assert observer.seconds_to_next_look == math.inf
    calls = len(api.asked)

    path, api.objects[path] = _object(2, {"status": "Success", "generation": 1}, pin=False)
    now += 0.5
    write_state_file(tmp_path, {"c2": GRANT})
    observer.look(is_tick=False)
    assert len(api.asked) == calls, "not at each of many writes"
    assert observer.seconds_to_next_look == 1.5

    now += 1.5
    unconfirmed, _ = observer.look(is_tick=False)
    path, api.objects[path] = _object(2, {"status": "Success", "generation": 2}, pin=False)
    assert observer.seconds_to_next_look == 2.0
    now += 2.0
    confirmed, _ = observer.look(is_tick=False)

    assert unconfirmed is not None
    assert confirmed is not None
    assert (unconfirmed.config, len(unconfirmed.doubts)) == ({"pinCPU": True}, 1)
    assert (confirmed.config, confirmed.doubts) == ({"pinCPU": False}, ())
    assert observer.seconds_to_next_look == math.inf


@pytest.mark.parametrize("fault", ["the API server does not answer", "another policy", "never confirmed"])
def test_a_configuration_that_cannot_settle_is_not_asked_for_without_end(
    fault: str, api: FakeApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("node_exporter.nri_policy.time.monotonic", lambda: now)
    write_state_file(tmp_path, {"c1": GRANT})
    path, api.objects[path] = _object(1, {"status": "Success", "generation": 1}, pin=True)
    observer = NriObserver(tmp_path, config_from_api(connection(api), "n1", "kube-system"))
    observer.look(is_tick=True)
    if fault == "the API server does not answer":
        api.status = 503
    path, api.objects[path] = _object(2, {"status": "Success", "generation": 1}, pin=False)
    write_state_file(tmp_path, {"c2": GRANT}, PolicyName="balloons" if fault == "another policy" else "topology-aware")

    looks = 0
    while now < 1100 and math.isfinite(wait := observer.seconds_to_next_look if looks else 3.0):
        now += wait
        looks += 1
        observer.look(is_tick=False)

    assert looks < 40
    assert observer.seconds_to_next_look == math.inf


@pytest.mark.parametrize(
    ("names", "release"),
    [
        (["ghcr.io/x/nri-resource-policy-topology-aware:v0.13.1"], "v0.13.1"),
        (["r/nri-resource-policy-topology-aware:v0.13.1@sha256:12", "r/other:v9"], "v0.13.1"),
        (["r/nri-resource-policy-topology-aware:v0.13.1", "r/nri-resource-policy-topology-aware:v0.14.0"], ""),
        (["r/nri-resource-policy-topology-aware@sha256:12"], ""),
        ([7, None], ""),
    ],
)
def test_the_release_is_the_tag_of_the_only_image_of_the_plugin(
    names: list[object], release: str, api: FakeApi, tmp_path: Path
) -> None:
    write_state_file(tmp_path, {"c1": GRANT})
    path, api.objects[path] = policy("default", **SPEC)
    api.objects["/api/v1/nodes/n1"] = {"status": {"images": [{"names": [name]} for name in names]}}

    by_image, _ = NriObserver(tmp_path, config_from_api(connection(api), "n1", "kube-system")).look(is_tick=True)
    by_option, _ = NriObserver(tmp_path, None, "v0.12.0").look(is_tick=True)

    assert by_image is not None
    assert by_option is not None
    assert (by_image.release, by_option.release) == (release, "v0.12.0")
    assert "MemSize" in by_image.grant_fields


def test_of_another_policy_only_the_name_is_reported(tmp_path: Path) -> None:
    write_state_file(tmp_path, {}, PolicyName="balloons")

    section, problems = NriObserver(tmp_path, None).look(is_tick=True)

    assert section == ReportedNriPolicy(machine=None, config=None, policy="balloons")
    assert "runs the NRI policy balloons" in problems[0].reason


@pytest.mark.parametrize("document", [SPEC, {"kind": "TopologyAwarePolicy", "spec": SPEC}])
def test_a_file_holds_the_policy_or_its_spec(document: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(document))

    config = config_from_file(path)()

    assert config is not None
    assert (config.spec, config.source) == (SPEC, str(path))


def test_a_file_may_be_yaml_and_has_no_defaults_of_the_api_server(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("kind: TopologyAwarePolicy\nspec:\n  pinCPU: true\n  reservedResources:\n    cpu: 750m\n")

    policy, problems = NriObserver(tmp_path, config_from_file(path)).look(is_tick=True)

    assert policy is not None
    assert policy.config == {"pinCPU": True, "reservedResources": {"cpu": "750m"}}
    assert [p.reason for p in problems if p.path == "config"] == [
        "pinMemory, preferIsolatedCPUs not set: off for a file, and on for an object of the API server"
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("spec: {pinCPU: !!binary aGk=}", "not JSON"),
        ("spec: {1: true}", "not JSON"),
        ("spec: &a {x: *a}", "alias"),
        ("spec: [1, 2", "expected"),
        ("spec: " + "[" * 5000, "nested deeper"),
        ("- spec", "is expected"),
    ],
)
def test_a_hostile_configuration_file_costs_its_own_part_only(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    write_state_file(tmp_path, {"c1": GRANT})

    policy, problems = NriObserver(tmp_path, config_from_file(path)).look(is_tick=True)

    assert policy is not None
    assert policy.config is None
    assert policy.grants is not None
    assert [words in p.reason for p in problems if p.path == "config"] == [True]


def test_a_state_file_that_is_not_whole_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_text(tmp_path / STATE_FILE, state_file({"c1": GRANT})[:300])
    monkeypatch.setattr("node_exporter.nri_policy.time.sleep", lambda _: write_state_file(tmp_path, {"c1": GRANT}))

    policy, problems = NriObserver(tmp_path, None).look(is_tick=True)

    assert policy is not None
    assert policy.grants is not None
    assert [grant.container_id for grant in policy.grants] == ["c1"]
    assert f"/{STATE_FILE}" not in {problem.path for problem in problems}


def test_another_kind_of_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"kind": "BalloonsPolicy", "spec": SPEC}))

    with pytest.raises(ValueError, match="TopologyAwarePolicy"):
        config_from_file(path)()


def test_the_report_of_such_a_node_has_the_section_and_others_have_none(tmp_path: Path) -> None:
    root = write_scenario(
        tmp_path / "node", SCENARIO, {"cpu_manager_state": cpu_state(), "memory_manager_state": memory_state()}
    )
    reader = NodeReader(NodeSettings(root=root, node_name="n1", kubelet_version="v1.36.2"))
    before = reader.look(is_tick=True)
    write_state_file(root, {"c1": GRANT})
    after = reader.look(is_tick=True)

    assert before.nri is None
    assert after.nri is not None
    assert after.nri.grants is not None
    assert [grant.pool for grant in after.nri.grants] == ["NUMA node #1"]
    # The tree is one for cadvisor: the plugin needs files that it lacks.
    assert after.nri.machine is None
    assert {(p.source, p.path, p.severity) for p in after.problems if p.source == "nri"} == {
        ("nri", "machine", "error"),
        ("nri", "config", "warning"),
    }


def test_the_program_takes_the_configuration_from_a_file(tmp_path: Path) -> None:
    write_nri_machine(tmp_path / "node", snapshot("s-n4c16"))
    write_state_file(tmp_path / "node", {"c1": GRANT})
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(SPEC))

    result = CliRunner().invoke(main, ["report", "--root", str(tmp_path / "node"), "--nri-config", str(path)])

    section = json.loads(result.stdout)["nri"]
    assert section["config"] == SPEC
    assert section["config_source"] == str(path)
    assert len(section["machine"]["cpus"]) == 16


@pytest.mark.parametrize("is_there", [True, False])
def test_a_node_with_speed_select_says_that_cpu_priorities_may_come_from_it(
    is_there: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    write_nri_machine(tmp_path, snapshot("s-1n4c"))
    write_state_file(tmp_path, {"c1": GRANT})
    if is_there:
        write_text(tmp_path / "sys/class/misc/isst_interface", "")

    policy, problems = NriObserver(tmp_path, None).look(is_tick=True)

    assert policy is not None
    assert policy.machine is not None
    assert any("Intel Speed Select" in problem.reason for problem in problems) is is_there
