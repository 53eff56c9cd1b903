"""A plugin that is gone leaves its state file, its status and a socket of the runtime behind."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from node_exporter.nri_plugin import DOUBTED_SECONDS, SETTLED_SECONDS, STATE_FILE, PluginWatch
from node_exporter.nri_policy import NriObserver
from tests.node_exporter.nri_trees import GRANT, write_nri_machine, write_state_file
from tests.node_exporter.trees import write_text
from tests.replay.nri.vectors import snapshot

LONG = 2 * SETTLED_SECONDS
KUBELET = "/usr/bin/kubelet\0--config=/etc/kubelet\0"
PLUGIN = "/bin/nri-resource-policy-topology-aware\0--host-root\0/host\0"


def age(path: Path, seconds: float) -> None:
    """Let *path* have been written *seconds* ago."""
    then = time.time() - seconds
    os.utime(path, (then, then))


@contextmanager
def runtime(root: Path, seconds: float) -> Iterator[None]:
    """A runtime that has started *seconds* ago: it listens on its NRI socket."""
    path = root / "run/nri/nri.sock"
    path.parent.mkdir(parents=True)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen()
    age(path, seconds)
    age(path.parent, seconds)
    try:
        yield
    finally:
        listening.close()


def create_container(root: Path, pod: str, seconds: float) -> None:
    """What the kubelet leaves when it has created a container of a pod."""
    (root / "var/log/pods" / pod / "app").mkdir(parents=True)
    age(root / "var/log/pods" / pod, seconds)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node with a state file that was written some time ago. Nothing else is known of it."""
    write_state_file(tmp_path, {"c1": GRANT})
    write_nri_machine(tmp_path, snapshot("s-n4c16"))
    age(tmp_path / STATE_FILE, LONG)
    return tmp_path


def absence(root: Path) -> str:
    return PluginWatch(root).absence()


def test_nothing_is_concluded_from_what_cannot_be_seen(node: Path) -> None:
    assert absence(node) == ""


def test_a_runtime_that_started_before_the_last_write_says_nothing(node: Path) -> None:
    with runtime(node, 2 * LONG):
        assert absence(node) == ""


def test_a_runtime_that_has_started_since_would_have_made_the_plugin_write(node: Path) -> None:
    age(node / STATE_FILE, 3 * LONG)
    with runtime(node, LONG):
        assert absence(node) == "the runtime has started since the plugin last wrote its state file"


def test_a_runtime_that_has_just_started_is_given_time(node: Path) -> None:
    with runtime(node, 1):
        assert absence(node) == ""


def test_a_runtime_without_nri_has_no_plugin(node: Path) -> None:
    with runtime(node, LONG):
        pass
    (node / "run/nri/nri.sock").unlink()

    assert absence(node) == ""
    age(node / "run/nri", LONG)
    assert absence(node) == "the runtime has no NRI socket in /run/nri"


def test_a_node_that_has_booted_since_would_have_a_new_state_file(node: Path) -> None:
    age(node / STATE_FILE, 86_400)
    write_text(node / "proc/uptime", f"{LONG:.2f} 100.00\n")
    assert absence(node) == "the node has started since the plugin last wrote its state file"

    write_text(node / "proc/uptime", "60.00 100.00\n")
    assert absence(node) == ""


def test_two_pods_with_newer_containers_show_that_nobody_writes(node: Path) -> None:
    age(node / STATE_FILE, 3 * LONG)
    create_container(node, "team_old_1", 4 * LONG)
    create_container(node, "team_a_2", LONG)
    assert absence(node) == ""

    (node / "var/log/pods/team_without-sandbox_3").mkdir()
    age(node / "var/log/pods/team_without-sandbox_3", LONG)
    create_container(node, "team_new_4", 1)
    assert absence(node) == ""

    create_container(node, "team_b_5", LONG)
    assert absence(node) == "containers have been created since the plugin last wrote its state file"


def test_a_missing_process_counts_after_some_time_and_where_processes_can_be_seen(node: Path) -> None:
    now = [time.time()]
    watch = PluginWatch(node, lambda: now[0])
    write_text(node / "proc/7/cmdline", "/bin/sh\0")
    assert watch.absence() == ""
    pass_time(now)
    assert watch.absence() == ""  # these are the exporter's own processes

    write_text(node / "proc/9/cmdline", KUBELET)
    assert watch.absence() == ""
    pass_time(now)
    assert watch.absence() == "no process of the plugin runs"

    write_text(node / "proc/11/cmdline", PLUGIN)
    assert watch.absence() == ""
    (node / "proc/11/cmdline").unlink()
    assert watch.absence() == ""  # an update of the plugin


def pass_time(now: list[float]) -> None:
    now[0] += LONG


def test_the_report_of_a_node_whose_plugin_is_gone_has_no_section(node: Path) -> None:
    """Seen red: the section stayed for ever."""
    observer = NriObserver(node, None)
    before, _ = observer.look(is_tick=True)
    age(node / STATE_FILE, 3 * LONG)
    with runtime(node, LONG):
        after, problems = observer.look(is_tick=True)
        between, _ = observer.look(is_tick=False)
        write_state_file(node, {"c1": GRANT})
        again, _ = observer.look(is_tick=True)

    assert before is not None
    assert (after, between) == (None, None)
    (problem,) = problems
    assert problem.path == f"/{STATE_FILE}"
    assert problem.reason.endswith(
        "last wrote its state file: the plugin is gone, and what it left behind does not count"
    )
    assert again is not None


def test_a_sign_that_the_plugin_has_stopped_is_a_doubt_before_it_counts(node: Path) -> None:
    """Seen red: the node stayed `exact` for 5 minutes after the plugin had stopped."""
    (node / "run/nri").mkdir(parents=True)
    doubts = []
    for seconds in (1, 60, LONG):
        age(node / "run/nri", seconds)
        policy, _ = NriObserver(node, None).look(is_tick=True)
        doubts.append(None if policy is None else policy.doubts)

    assert doubts == [(), ("the runtime has no NRI socket in /run/nri: the plugin may be gone",), None]


def test_a_missing_process_is_a_doubt_soon(node: Path) -> None:
    now = [time.time()]
    watch = PluginWatch(node, lambda: now[0])
    write_text(node / "proc/9/cmdline", KUBELET)
    write_text(node / "proc/11/cmdline", PLUGIN)
    assert watch.absence(DOUBTED_SECONDS) == ""
    (node / "proc/11/cmdline").unlink()
    now[0] += 30
    assert watch.absence(DOUBTED_SECONDS) == "no process of the plugin runs"
    assert watch.absence() == ""
