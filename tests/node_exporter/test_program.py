"""The program as an operator runs it: real processes, real signals."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_exporter.__main__ import run as run_command
from tests.node_exporter.fake_extender import Answer, FakeExtender
from tests.node_exporter.fake_kubelet import FakeKubelet
from tests.node_exporter.nodes import KUBELET, MACHINE, SCENARIO, cpu_state, memory_state
from tests.node_exporter.trees import KUBELET_DIR, write_machine, write_scenario
from tests.waiting import PATIENCE_SECONDS, until

PROGRAM = [sys.executable, "-m", "node_exporter"]
SHAPE_UID = 65534
STATE = {"cpu_manager_state": cpu_state({"u1": {"c0": "1,5"}}, "0,2-4,6-7"), "memory_manager_state": memory_state()}


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="n") as directory:
        yield write_scenario(Path(directory), SCENARIO, STATE)


@pytest.fixture
def extender() -> Iterator[FakeExtender]:
    fake = FakeExtender()
    yield fake
    fake.close()


def call(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [*PROGRAM, *(str(argument) for argument in arguments)]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env={**os.environ, **environment},
    )


def test_report_tells_the_node_as_it_was_written(root: Path) -> None:
    done = call("report", "--root", root, "--node-name", "n1", "--kubelet-version", "v1.36.2")

    report = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert report["node_name"] == "n1"
    assert report["machine"] == MACHINE | {"num_cpus": None, "num_cores": None}
    assert report["state"] == {**STATE, "kubelet_internal_checkpoint": None}
    for key, value in KUBELET.items():
        if key != "reservation":
            assert report["kubelet"][key] == value
    assert report["kubelet"]["reservation"] == {"cpu": "2", "memory": str(1 << 30)}


def test_back_ported_rules_are_reported_by_name(root: Path) -> None:
    flags = call("report", "--root", root, "--rule", "sidecars=false", "--rule", "device_numa_narrowing=true")
    environment = call("report", "--root", root, NUMA_RULES="sidecars=false device_numa_narrowing=true")

    for done in (flags, environment):
        assert json.loads(done.stdout)["rules"] == {"device_numa_narrowing": True, "sidecars": False}


@pytest.mark.parametrize("rule", ["sidecars", "sidecars=yes", "=true", "a b=true"])
def test_a_rule_that_is_no_switch_is_refused_at_once(root: Path, rule: str) -> None:
    done = call("report", "--root", root, "--rule", rule)

    assert done.returncode == 2
    assert "is neither NAME=true nor NAME=false" in done.stderr


def test_node_without_a_kubelet_is_reported_with_problems(tmp_path: Path) -> None:
    write_machine(tmp_path, MACHINE)

    report = json.loads(call("report", "--root", tmp_path).stdout)

    assert report["machine"] == MACHINE | {"num_cpus": None, "num_cores": None}
    assert report["kubelet"] is None
    assert {
        "source": "kubelet state",
        "path": "/var/lib/kubelet",
        "reason": "no such directory",
        "severity": "error",
    } in (report["problems"])


def report_as_somebody_else(root: Path) -> dict[str, Any]:
    """What an exporter without root's rights reports."""
    root.chmod(0o755)
    program = (  # loaded as root, who may read the interpreter
        "import os, yaml, grpc; from node_exporter._podresources import podresources_pb2;"
        "from node_exporter.__main__ import main;"
        f"os.setgroups([]); os.setgid({SHAPE_UID}); os.setuid({SHAPE_UID}); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "report", "--root", str(root)], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change to another user")
def test_a_kubelet_that_the_exporter_may_not_reach_is_not_taken_for_a_stopped_one(root: Path) -> None:
    kubelet = FakeKubelet(root / KUBELET_DIR / "pod-resources/kubelet.sock").start()
    try:
        kubelet.socket.chmod(0o600)
        no_right = report_as_somebody_else(root)
        kubelet.socket.parent.chmod(0o700)
        hidden = report_as_somebody_else(root)
    finally:
        kubelet.stop()

    assert (no_right["podresources"], hidden["podresources"]) == (None, None)
    assert "UNAVAILABLE" in {item["source"]: item["reason"] for item in no_right["problems"]}["podresources"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change to another user")
def test_without_rights_the_readable_part_is_reported(root: Path) -> None:
    (root / KUBELET_DIR).chmod(0o700)

    report = report_as_somebody_else(root)

    assert report["machine"] == MACHINE | {"num_cpus": None, "num_cores": None}
    assert report["state"]["cpu_manager_state"] is None
    assert report["devices"] is None, "not known, which is not none"
    assert {item["path"]: item["reason"] for item in report["problems"]}["cpu_manager_state"] == "Permission denied"


def test_once_sends_one_report_and_tells_by_exit_code(root: Path, extender: FakeExtender) -> None:
    assert call("run", "--root", root, "--once", NODE_NAME="n2", NUMA_PUSH_URL=extender.url).returncode == 0
    extender.answer = lambda _message: Answer(status=422, body=b'{"title": "Unprocessable", "detail": "cpus[0]"}')
    refused = call("run", "--root", root, "--once", "--node-name", "n2", "--push", extender.url)

    assert refused.returncode == 1
    assert "Unprocessable: cpus[0]" in refused.stderr
    assert [message.path for message in extender.messages] == ["/v1/nodes/n2/report"] * 2
    assert extender.reports[1]["sequence"] > extender.reports[0]["sequence"], "a restarted exporter does not start over"


def test_a_variable_that_is_no_option_is_warned_about_with_the_nearest_one(root: Path) -> None:
    done = call("run", "--root", root, "--once", "--dry-run", NUMA_PUSH_ULR="http://x", NUMA_EXTENDER_SERVICE_HOST="x")
    warned = [line for line in done.stderr.splitlines() if "unknown option" in line]

    assert done.returncode == 0
    assert len(warned) == 1
    assert warned[0].endswith("unknown option: NUMA_PUSH_ULR has no effect; did you mean NUMA_PUSH_URL?")


@pytest.mark.parametrize(
    ("arguments", "environment", "listen"),
    [
        ([], {}, "127.0.0.1:9473"),
        ([], {"NUMA_LISTEN": ""}, ""),
        ([], {"NUMA_LISTEN": "127.0.0.1:1"}, "127.0.0.1:1"),
        (["--listen", "127.0.0.1:2"], {"NUMA_LISTEN": ""}, "127.0.0.1:2"),
        (["--listen", ""], {"NUMA_LISTEN": "127.0.0.1:1"}, ""),
    ],
)
def test_an_empty_listen_turns_the_listener_off(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], environment: dict[str, str], listen: str
) -> None:
    monkeypatch.delenv("NUMA_LISTEN", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    assert run_command.make_context("run", ["--dry-run", *arguments]).params["listen"] == listen


def test_dry_run_prints_instead_of_sending(root: Path) -> None:
    done = call("run", "--root", root, "--once", "--dry-run", "--node-name", "n3")

    assert json.loads(done.stdout)["node_name"] == "n3"
    assert "published node=n3" in done.stderr


def test_missing_target_and_wrong_addresses_are_usage_errors(root: Path) -> None:
    for arguments in (
        ("run", "--root", root),
        ("run", "--root", root, "--dry-run", "--listen", "nowhere"),
        ("run", "--root", root, "--dry-run", "--kubelet-url", "http://127.0.0.1:10255"),
        ("run", "--root", root, "--dry-run", "--kubelet-url", "https://127.0.0.1:10250"),
        ("report", "--root", root / "missing"),
    ):
        done = call(*arguments)

        assert done.returncode == 2, arguments
        assert "Traceback" not in done.stderr


def test_running_program_serves_probes_and_metrics_and_ends_on_sigterm(root: Path, extender: FakeExtender) -> None:
    command = [*PROGRAM, "run", "--root", root, "--node-name", "n4", "--push", extender.url, "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*map(str, command), "--interval", "0.2"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        port = next(match[1] for line in process.stderr if (match := re.search(r"port=(\d+)", line)))
        extender.wait_for(lambda told: told.heartbeats)
        answers = {path: _get(port, path) for path in ("/livez", "/metrics", "/nowhere")}
        until(lambda: _get(port, "/readyz")[0] == 200, "readiness")
        extender.answer = lambda _message: Answer(status=503)
        until(lambda: _get(port, "/readyz")[0] != 200, "the end of readiness")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 0
        assert "stopped node=n4" in process.stderr.read()

    assert answers["/livez"] == (200, "ok\n")
    assert answers["/nowhere"][0] == 404
    metrics = answers["/metrics"][1]
    assert re.search(r'numa_exporter_messages_total\{kind="report",outcome="accepted"\} 1', metrics)
    assert re.search(r'numa_exporter_problems\{severity="error",source="podresources"\} 1', metrics)
    assert "process_resident_memory_bytes" in metrics


def _get(port: str, path: str) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_the_log_can_be_json_and_begins_with_version_mode_and_node(root: Path, extender: FakeExtender) -> None:
    command = [*PROGRAM, "run", "--root", str(root), "--node-name", "n1", "--push", extender.url]
    environment = {**os.environ, "NUMA_LISTEN": "", "NUMA_LOG_FORMAT": "json", "NUMA_INTERVALL": "3"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr
        lines = []
        for text in process.stderr:
            lines.append(json.loads(text))
            if lines[-1]["message"].startswith("started "):
                process.send_signal(signal.SIGTERM)
        process.wait(timeout=PATIENCE_SECONDS)

    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in lines)
    warning = next(line for line in lines if line["level"] == "warning")
    assert "did you mean NUMA_INTERVAL?" in warning["message"]
    started = next(line for line in lines if line["message"].startswith("started "))
    assert re.search(rf"version=\d\S* mode=push node=n1 to={re.escape(extender.url)} ", started["message"])
