"""The commands as people run them."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from io import StringIO

import httpx
import pytest
from click.testing import CliRunner
from rich.console import Console

from extender.__main__ import main
from extender.demo import run
from extender.samples.nodes import sample_cluster
from tests.plain_http import HTTP
from tests.ports import reserve_port
from tests.waiting import PATIENCE_SECONDS, until

COMMAND = (sys.executable, "-m", "extender")


def test_demo_ends_by_itself_if_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """On three of its nodes, so that few exporters start."""
    names = {"epyc-nps4-b", "gpu-a", "xeon-a"}
    nodes = [node for node in sample_cluster() if node.name in names]
    monkeypatch.setattr(run, "sample_cluster", lambda: nodes)
    printed = StringIO()
    before = signal.getsignal(signal.SIGTERM)
    try:
        run.run_demo(Console(file=printed, width=200), host="127.0.0.1", port=0, once=True)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert "With numa-extender it goes to xeon-a." in printed.getvalue()
    assert "Ctrl-C" not in printed.getvalue()


def test_demo_tells_the_story_serves_on_and_says_where_the_commands_are() -> None:
    with subprocess.Popen([*COMMAND, "demo", "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            lines = []
            for line in process.stdout:
                lines.append(line.strip())
                if "Ctrl-C" in line:
                    break
            told = "\n".join(lines)
            by_totals = re.search(r"Without the extender it goes to (\S+)", told)
            choice = re.search(r"With numa-extender it goes to (\S+)\.", told)
            assert "★ rank 1" in told
            assert re.search(r"epyc-nps4-b.*TopologyAffinityError.*refused", told)
            assert re.search(r"xeon-a.*admitted +aligned", told)
            assert "With numa-extender it goes to xeon-a." in told
            assert by_totals is not None
            assert choice is not None
            assert f"/#/nodes/{by_totals[1]} " in told
            assert f"/#/nodes/{choice[1]} " in told
            (nodes,) = [line for line in lines if " nodes --server" in line]
            program, *words = shlex.split(nodes)
            assert shutil.which(program)
            listed = CliRunner().invoke(main, words[words.index("nodes") :], catch_exceptions=False).stdout
            assert len(re.findall(r"v1\.\d+", listed)) == 11
        finally:
            process.send_signal(signal.SIGTERM)  # a process in the background may ignore SIGINT
        assert process.wait(PATIENCE_SECONDS) == 0  # thousands of small files are removed


def test_serve_answers_and_ends_when_told() -> None:
    port = reserve_port()
    with subprocess.Popen([*COMMAND, "serve", "--port", str(port)]) as process:
        try:
            until(lambda: _ready(port) is not None, "an answer")
            assert _ready(port) == {"nodes": 0, "classes": 0, "late_watches": [], "unreadable_objects": {}}
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) in (0, -signal.SIGTERM)


def test_a_bad_setting_is_named() -> None:
    done = _run("serve", env={"NUMA_EXTENDER_STRATEGY": "best"})

    assert done.returncode == 1
    assert "NUMA_EXTENDER_STRATEGY: unknown strategy; use one of balanced, " in done.stderr


def test_help_lists_every_command() -> None:
    done = _run("--help")

    assert {"demo", "serve", "replay"} <= set(re.findall(r"^  (\w+) ", done.stdout, re.MULTILINE))


def _ready(port: int) -> object:
    """What /readyz says; None: the port is not open yet."""
    try:
        return HTTP.get(f"http://127.0.0.1:{port}/readyz").json()
    except httpx.TransportError:
        return None


def _run(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        check=False, capture_output=True, text=True, timeout=PATIENCE_SECONDS, env={**os.environ, **(env or {})},
    )  # fmt: skip
