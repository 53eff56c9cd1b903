"""All sources of a node together: what wins, what is kept, what is read again."""

import math
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import orjson
import pytest
import trustme

from node_exporter.agent import describe_changes
from node_exporter.bounded_http import Connection
from node_exporter.build import MAX_PROBLEMS
from node_exporter.node import SETTLING_LOOK_SECONDS, TORN_LOOK_SECONDS, NodeReader, NodeSettings
from tests.node_exporter.fake_kubelet import FakeKubelet, FakeKubeletApi
from tests.node_exporter.nodes import KUBELET, MACHINE, SCENARIO, cpu_state, memory_state
from tests.node_exporter.trees import (
    KUBELET_DIR,
    write_command_line,
    write_kubelet_config,
    write_scenario,
    write_state,
)

EMPTY = {"cpu_manager_state": cpu_state(), "memory_manager_state": memory_state()}


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="n") as short:
        yield write_scenario(Path(short), SCENARIO, EMPTY)


@pytest.fixture
def kubelet(root: Path) -> Iterator[FakeKubelet]:
    fake = FakeKubelet(root / KUBELET_DIR / "pod-resources/kubelet.sock").start()
    yield fake
    fake.stop()


def node_of(root: Path, api: Connection | None = None, **more: Any) -> NodeReader:
    return NodeReader(NodeSettings(root=root, node_name="n", kubelet_api=api, **more))


def running(policy: str) -> bytes:
    return orjson.dumps({"kubeletconfig": {"topologyManagerPolicy": policy, "cpuManagerPolicy": "static"}})


def test_running_configuration_wins_over_files(root: Path, api: Connection, server: FakeKubeletApi) -> None:
    server.configz = running("restricted")

    report = node_of(root, api).look(is_tick=True)

    assert report.kubelet is not None
    assert report.kubelet.topologyManagerPolicy == "restricted"
    assert report.kubelet_version == "v1.36.2"


def test_running_configuration_is_kept_while_the_kubelet_does_not_answer(
    root: Path, kubelet: FakeKubelet, api: Connection, server: FakeKubeletApi
) -> None:
    server.configz = running("restricted")
    node = node_of(root, api)
    node.look(is_tick=True)

    asked = len(server.requests)
    node.look(is_tick=True)
    assert len(server.requests) == asked, "nothing is asked twice while the same kubelet runs"

    kubelet.stop()
    server.token = "other"
    kubelet.start()
    after = node.look(is_tick=False)
    assert after.kubelet is not None
    assert after.kubelet.topologyManagerPolicy == "single-numa-node", "another kubelet: what the old one said is void"
    assert "the token is not accepted" in " ".join(problem.reason for problem in after.problems)

    server.token, server.configz = "good", running("best-effort")
    recovered = node.look(is_tick=True)
    assert recovered.kubelet is not None
    assert recovered.kubelet.topologyManagerPolicy == "best-effort"


def test_missing_kubelet_api_falls_back_to_files(root: Path, api: Connection, server: FakeKubeletApi) -> None:
    server.close()

    report = node_of(root, api).look(is_tick=True)

    assert report.kubelet is not None
    assert report.kubelet.topologyManagerPolicy == KUBELET["topologyManagerPolicy"]
    assert {problem.source for problem in report.problems} >= {"kubelet api"}


def test_machine_and_files_are_read_again_after_a_restart_of_the_kubelet(root: Path, kubelet: FakeKubelet) -> None:
    node = node_of(root)
    node.look(is_tick=True)
    write_kubelet_config(root, KUBELET | {"topologyManagerPolicy": "restricted"})

    before = node.look(is_tick=True)
    kubelet.stop()
    kubelet.start()
    after = node.look(is_tick=False)

    assert before.kubelet is not None
    assert after.kubelet is not None
    assert before.kubelet.topologyManagerPolicy == "single-numa-node", "the running kubelet still has the old one"
    assert after.kubelet.topologyManagerPolicy == "restricted"
    assert "kubelet" in describe_changes(before, after)


def test_sick_device_is_remembered_until_the_kubelet_restarts(root: Path, kubelet: FakeKubelet) -> None:
    node = node_of(root)
    kubelet.devices = {"gpu": {"g0": [0], "g1": [1]}}
    node.look(is_tick=True)
    kubelet.devices = {"gpu": {"g0": [0]}}

    sick = (node.look(is_tick=False).devices or {})["gpu"]
    kubelet.stop()
    kubelet.start()
    forgotten = (node.look(is_tick=False).devices or {})["gpu"]

    assert [(device.id, device.numa, device.healthy) for device in sick] == [("g0", (0,), True), ("g1", (1,), False)]
    assert [device.id for device in forgotten] == ["g0"]


def test_root_directory_of_the_command_line_and_of_the_setting(root: Path) -> None:
    (root / KUBELET_DIR).rename(root / "var/lib/k3s")
    write_command_line(root, ["kubelet", "--config=/var/lib/k3s/config.yaml", "--root-dir=/var/lib/k3s"])

    assert node_of(root).look(is_tick=True).state.cpu_manager_state == EMPTY["cpu_manager_state"]
    assert node_of(root, kubelet_dir="/nowhere").look(is_tick=True).state.cpu_manager_state is None


@pytest.mark.parametrize(("shared", "is_whole"), [("1-3,5-7", True), ("0-7", True), ("2-3,5-7", False)])
def test_strict_reservation_keeps_reserved_cpus_out_of_the_shared_pool(root: Path, shared: str, is_whole: bool) -> None:  # noqa: FBT001
    write_kubelet_config(root, KUBELET | {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}})
    write_state(root, {"cpu_manager_state": cpu_state(None, shared)})

    reasons = [problem.reason for problem in node_of(root).look(is_tick=True).problems]

    assert any("are in no set" in reason for reason in reasons) is not is_whole


def test_zones_leave_cpus_out_while_the_reserved_ones_are_not_known(root: Path, kubelet: FakeKubelet) -> None:
    write_kubelet_config(root, KUBELET | {"reservedSystemCPUs": "", "reservation": {"cpu": "2", "memory": "1Gi"}})
    kubelet.stop()
    unknown = node_of(root).look(is_tick=True)
    kubelet.cpus = range(1, 8)
    kubelet.start()
    known = node_of(root).look(is_tick=True)

    assert "cpu" not in unknown.zones[0].resources
    assert "the reserved CPUs are unknown" in " ".join(problem.reason for problem in unknown.problems)
    assert known.zones[0].resources["cpu"].allocatable == 3


def test_changes_are_told_in_a_few_words(root: Path) -> None:
    node = node_of(root)
    empty = node.look(is_tick=True)
    entries = {f"u{number}": {"c0": str(number)} for number in range(1, 8) if number != 4}
    write_state(root, {"cpu_manager_state": cpu_state({"u1": {"c0": "1,5"}}, "0,2-4,6-7")})
    one = node.look(is_tick=True)
    write_state(root, {"cpu_manager_state": cpu_state(entries, "0,4")})
    many = node.look(is_tick=True)
    write_state(root, {"memory_manager_state": memory_state({"u1": (0, 4096)})})

    assert describe_changes(None, empty) == "first"
    assert describe_changes(empty, one) == "cpu +u1/c0:1,5"
    assert describe_changes(one, empty) == "cpu -u1/c0:1,5"
    assert describe_changes(one, many).startswith("cpu +u2/c0:2, cpu +u3/c0:3")
    assert describe_changes(many, node.look(is_tick=True)) == "memory +u1/c0"
    assert len(MACHINE["cpus"]) == 8


def test_start_and_stop_of_the_kubelet_are_in_the_report(root: Path, kubelet: FakeKubelet) -> None:
    node = node_of(root)
    first, again = node.look(is_tick=True).podresources, node.look(is_tick=False).podresources
    kubelet.stop()
    kubelet.socket.touch()  # a killed kubelet leaves its socket behind
    stopped, still = node.look(is_tick=False).podresources, node.look(is_tick=True).podresources
    kubelet.start()
    started = node.look(is_tick=False).podresources

    assert first is not None
    assert started is not None
    assert stopped is not None
    assert (first.available, stopped.available, started.available) == (True, False, True)
    assert (again, still) == (first, stopped), "the same fact is the same value, else every look would be news"
    assert first.since <= stopped.since <= started.since + 0.01
    assert started.since == pytest.approx(kubelet.socket.stat().st_ctime, abs=0.002)


def test_a_kubelet_that_refuses_is_not_taken_for_a_stopped_one(root: Path, kubelet: FakeKubelet) -> None:
    node = node_of(root)
    before = node.look(is_tick=True).podresources
    kubelet.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
    refused = node.look(is_tick=True)

    assert refused.pods is None
    assert refused.podresources == before


def test_nothing_is_said_of_a_kubelet_without_a_socket_until_it_had_one(root: Path, kubelet: FakeKubelet) -> None:
    """As with a path that is not mounted, where Kubernetes makes a directory, or a kubelet without podresources."""
    kubelet.stop()
    kubelet.socket.unlink(missing_ok=True)
    node = node_of(root)
    assert node.look(is_tick=True).podresources is None
    kubelet.socket.mkdir()
    assert node.look(is_tick=True).podresources is None
    kubelet.socket.rmdir()
    kubelet.start()
    assert node.look(is_tick=True).podresources is not None
    kubelet.stop()
    kubelet.socket.unlink(missing_ok=True)
    gone = node.look(is_tick=True).podresources
    assert gone is not None
    assert (gone.available, gone.certain) == (False, True)


def test_an_exporter_that_starts_says_what_it_sees(root: Path, kubelet: FakeKubelet) -> None:
    served = node_of(root).look(is_tick=True).podresources
    kubelet.stop()
    kubelet.socket.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(kubelet.socket))  # its file stays
    before = time.time() - 0.01
    stopped = node_of(root).look(is_tick=True).podresources

    assert served is not None
    assert stopped is not None
    assert (served.available, served.certain, stopped.available, stopped.certain) == (True, True, False, True)
    assert stopped.since >= before


def test_an_exporter_that_cannot_reach_the_api_of_its_kubelet_does_not_take_it_for_stopped(
    root: Path, kubelet: FakeKubelet, api: Connection, server: FakeKubeletApi, tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    report = node_of(root, api).look(is_tick=True)
    assert any("CERTIFICATE_VERIFY_FAILED" in problem.reason for problem in report.problems)
    assert server.requests == []
    assert kubelet.asked
    assert report.podresources is not None
    assert report.podresources.available


def test_a_node_is_looked_at_often_only_after_a_start_or_stop_of_its_kubelet(
    root: Path, kubelet: FakeKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_of(root)
    assert node.seconds_to_next_look == math.inf
    node.look(is_tick=True)
    assert node.seconds_to_next_look == SETTLING_LOOK_SECONDS
    kubelet.stop()
    node.look(is_tick=True)
    assert node.seconds_to_next_look == SETTLING_LOOK_SECONDS, "it may only have been slow to answer"
    monkeypatch.setattr("time.time", lambda: 0.0)
    assert node.seconds_to_next_look == math.inf, "the clock was set back: that was not for long after the start"
    monkeypatch.undo()
    monkeypatch.setattr("node_exporter.node.SETTLING_SECONDS", 0.0)
    assert node.seconds_to_next_look == math.inf


def test_a_state_between_two_writes_is_held_back_and_one_that_stays_is_published_as_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = node_of(root)
    whole = node.look(is_tick=True)
    write_state(root, {"cpu_manager_state": cpu_state(None, "2-7")})

    between = node.look(is_tick=False)
    assert between.state == whole.state, "what is known stays"
    assert between.problems == whole.problems
    assert node.seconds_to_next_look == TORN_LOOK_SECONDS

    monkeypatch.setattr("node_exporter.node.TORN_SECONDS", 0.0)
    lasting = node.look(is_tick=False)
    assert {problem.severity for problem in lasting.problems if "CPUs [0, 1] are in no set" in problem.reason} == {
        "error"
    }
    assert lasting.state.cpu_manager_state == cpu_state(None, "2-7")

    monkeypatch.undo()
    write_state(root, EMPTY)
    assert node.look(is_tick=False) == whole
    assert node.seconds_to_next_look == math.inf


def test_a_report_that_is_held_back_says_that_the_kubelet_has_stopped(root: Path, kubelet: FakeKubelet) -> None:
    node = node_of(root)
    whole = node.look(is_tick=True)
    write_state(root, {"cpu_manager_state": cpu_state(None, "2-7")})
    kubelet.stop()

    between = node.look(is_tick=False)

    assert between.state == whole.state
    assert between.podresources is not None
    assert not between.podresources.available


def test_many_problems_are_counted_and_not_listed(root: Path) -> None:
    for cpu in range(1000):
        (root / f"sys/devices/system/node/node0/cpu{cpu + 100}").mkdir()
    (root / "sys/devices/system/cpu/online").write_text("0-2000")

    problems = node_of(root).look(is_tick=True).problems

    assert len(problems) == MAX_PROBLEMS + 1
    assert "more problems are not listed" in problems[-1].reason
