"""Whatever a node, a pod or a file says, a terminal gets text: every command, against a hostile service.

The real extender answers. A real server in between changes every text of its answers that is not one of a closed set.
"""

import importlib
import json
import logging
import os
import pty
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import orjson
import pytest
from click.testing import CliRunner

from extender.__main__ import COMMANDS, main
from extender.observability.logs import JSONFormatter, TextFormatter
from node_exporter.__main__ import main as exporter
from node_exporter.visible import ExporterLogFormatter, ExporterTextFormatter, visible, visible_output
from tests.plain_http import HTTP
from tests.reports import args_of, pod_of, report_of, sample

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066\u200b\x00\r\x08\x7f\ufeff\U000e0041\u2028[red]x[/red]\tz"
FORM = re.compile(r"[^\n]")


def is_text(printed: str) -> bool:
    """Whether a terminal shows every character."""
    return all(each.isprintable() for each in FORM.findall(printed))


def _closed_set(url: str) -> frozenset[str]:
    """The texts with a meaning for the commands: those that the API's description lists."""
    found: set[str] = set()

    def walk(part: Any) -> None:  # noqa: ANN401 - JSON
        if isinstance(part, dict):
            found.update(each for each in part.get("enum", ()) if isinstance(each, str))
            found.update([part["const"]] if isinstance(part.get("const"), str) else [])
        for each in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
            walk(each)

    walk(HTTP.get(f"{url}/openapi.json").json())
    return frozenset(found)


def _poisoned(part: Any, kept: frozenset[str]) -> Any:  # noqa: ANN401 - JSON
    if isinstance(part, str):
        return part if part in kept or re.fullmatch(r"[0-9,-]+", part) else f"{part}{HOSTILE}"
    if isinstance(part, list):
        return [_poisoned(each, kept) for each in part]
    return {key: _poisoned(each, kept) for key, each in part.items()} if isinstance(part, dict) else part


@contextmanager
def _served(answer: Callable[[str, str, dict[str, str], bytes], tuple[int, str, bytes]]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, kind, reply = answer(self.command, self.path, dict(self.headers), body)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        do_GET = do_POST = _any  # noqa: N815 - http.server's names

        def log_message(self, *_args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def hostile(server: str) -> Iterator[str]:
    """The URL of an extender whose answers are hostile."""
    kept = _closed_set(server)
    HTTP.post(f"{server}/scheduler/filter", json=args_of(pod_of(4, name="told"), "node-a", "node-b"))

    def answer(method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, str, bytes]:
        passed = {name: text for name, text in headers.items() if name.lower() in ("accept", "content-type")}
        reply = HTTP.request(method, server + path, content=body, headers=passed)
        lines = [orjson.dumps(_poisoned(orjson.loads(each), kept)) for each in reply.content.splitlines() if each]
        return reply.status_code, reply.headers["content-type"], b"\n".join(lines)

    with _served(answer) as url:
        yield url


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    """The URL of a server that refuses everything with a hostile problem."""
    problem = orjson.dumps({"title": HOSTILE, "detail": HOSTILE, "status": 422})
    with _served(lambda *_: (422, "application/problem+json", problem)) as url:
        yield url


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory with hostile files."""
    pod = pod_of(4, name="p")
    pod["metadata"]["annotations"] = {f"numa-extender.io/{HOSTILE}": HOSTILE, "numa-extender.io/alignment": HOSTILE}
    pod["spec"]["containers"][0]["name"] = HOSTILE
    (tmp_path / "pod.json").write_bytes(orjson.dumps(pod))
    (tmp_path / "good.json").write_bytes(orjson.dumps(pod_of(4, name="p")))
    (tmp_path / "scenario.jsonl").write_bytes(orjson.dumps({"name": HOSTILE, HOSTILE: HOSTILE}))
    (tmp_path / "report.json").write_bytes(orjson.dumps(report_of(sample("node-a")) | {"boot_id": HOSTILE}))
    return tmp_path


def _runs(command: str, files: Path) -> list[list[str]]:
    """How to run a command so that it asks, reads or fails."""
    good, bad = ["-f", str(files / "good.json")], ["-f", str(files / "pod.json")]
    name = HOSTILE.replace("\0", "")
    ways: dict[str, list[list[str]]] = {
        "audit": [[]],
        "capacity": [good, bad],
        "decisions": [[], ["--pod", HOSTILE]],
        "defragment": [good, [*good, "--as", "evictions"], bad],
        "demo": [["--port", HOSTILE]],
        "doctor": [["--report", str(files / "report.json")], ["--report", f"/nowhere/{name}"]],
        "groups": [[], ["--name", HOSTILE]],
        "lint": [[str(files / "pod.json")], [str(files / "pod.json"), "-o", "json"], [f"/nowhere/{name}"]],
        "machines": [[]],
        "make-room": [good, [*good, "--as", "evictions"], [*good, "--as", "script"], bad],
        "map": [["node-a"], [HOSTILE]],
        "nodes": [[], ["--report", str(files / "report.json")]],
        "plan": [good, bad],
        "replay": [[str(files / "scenario.jsonl")], ["--check", f"/nowhere/{name}"]],
        "resize-check": [["default/told", "--cpu", "6"], [f"default/{HOSTILE}", "--cpu", HOSTILE]],
        "restart-check": [["node-a"], ["--all"], ["node-a", "--set", f"{HOSTILE}={HOSTILE}"]],
        "rightsize": [[]],
        "serve": [["--host", name], ["--log-level", HOSTILE]],
        "tune": [["--configurations", "2"], ["--configurations", "2", "--patches"]],
        "what-if": [good, [*good, "--explain"], [*good, "--copy", "node-a"], bad],
        "why": [["default/told"], ["default/told", "--node", "node-a"], [f"default/{name}", *good], ["told", *bad]],
    }
    return ways[command]


def _command(name: str) -> click.Command:
    with click.Context(main) as context:
        assert isinstance(main, click.Group)
        command = main.get_command(context, name)
    assert command is not None
    return command


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_prints_what_a_terminal_obeys(name: str, files: Path, hostile: str, refusing: str) -> None:
    """A new command fails here until `_runs` knows it."""
    options = {each.name for each in _command(name).params}
    forms = (
        [["-o", form] for form in ("table", "json", "yaml", "name")] if "output" in options and name != "lint" else [[]]
    )
    servers = [["--server", url] for url in (hostile, refusing)] if "server" in options else [[]]
    said = 0
    for args in ([*run, *form, *server] for run in _runs(name, files) for form in forms for server in servers):
        result = CliRunner().invoke(main, [name, *args])
        assert is_text(result.stdout), (args, result.stdout)
        assert is_text(result.stderr), (args, result.stderr)
        assert result.exception is None or isinstance(result.exception, SystemExit), (args, result.exception)
        said += re.search(r"\\(u001b|x1b)]0;owned", result.output) is not None
    assert said or name == "machines", "no hostile text has come so far"
    assert is_text(CliRunner().invoke(main, [name, f"--{HOSTILE}"]).output)


@pytest.mark.parametrize("name", ["nodes", "what-if"])
def test_a_terminal_gets_colours_and_nothing_else(name: str, files: Path, hostile: str) -> None:
    """The styles are the program's own; those that a node asks for are text."""
    upper, lower = pty.openpty()
    args = [sys.executable, "-m", "extender", name, *_runs(name, files)[0], "--server", hostile]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200"}
    environment.pop("NO_COLOR", None)
    child = subprocess.Popen(args, stdout=lower, stderr=lower, stdin=subprocess.DEVNULL, env=environment)
    os.close(lower)
    printed = b""
    while part := _read(upper):
        printed += part
    os.close(upper)
    assert child.wait() == 0, printed
    text = printed.decode()
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text.replace("\r\n", "\n"))
    assert is_text(plain), plain
    assert plain != text.replace("\r\n", "\n"), "no colours"
    assert "\\u001b" in plain
    assert "[red]" in plain


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other side is closed
        return b""


def test_json_stays_the_same_document(hostile: str) -> None:
    printed = CliRunner().invoke(main, ["nodes", "--server", hostile, "-o", "json"]).stdout

    assert HOSTILE in json.loads(printed)[0]["name"]


def test_only_one_file_makes_consoles_and_every_program_begins_with_visible_output() -> None:
    root = Path(__file__).parents[2]
    makers = {
        str(file.relative_to(root))
        for folder in ("extender", "node_exporter")
        for file in (root / folder).rglob("*.py")
        if re.search(r"\bConsole\(|click\.style|secho|__stdout__|__stderr__", file.read_text())
    }
    assert not makers
    entries = re.findall(r'^\S+ = "(\w+)\.__main__:main"', (root / "pyproject.toml").read_text(), re.MULTILINE)
    assert set(entries) == {"extender", "node_exporter"}
    for each in entries:
        assert "VisibleGroup" in Path(importlib.import_module(f"{each}.__main__").__file__ or "").read_text()


def test_the_exporter_prints_text(tmp_path: Path) -> None:
    (tmp_path / "var/log/pods" / f"ns_{HOSTILE.replace(chr(0), '')}_uid").mkdir(parents=True)
    result = CliRunner().invoke(
        exporter, ["report", "--root", str(tmp_path), "--node-name", HOSTILE, "--kubelet-version", HOSTILE]
    )
    assert is_text(result.output)
    assert "\\u001b" in result.output
    for args in (["report", f"--{HOSTILE}"], ["run", "--push", HOSTILE, "--once"], ["run", "--listen", HOSTILE]):
        assert is_text(CliRunner().invoke(exporter, args).output)


def test_an_exception_that_ends_the_program_is_text() -> None:
    program = (
        "from node_exporter.visible import visible_output\n"
        "with visible_output():\n    raise ValueError('\\x1b[2J\\u202e')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "ValueError: \\u001b[2J\\u202e" in ended.stderr
    assert is_text(ended.stderr)


def test_bytes_and_parts_of_characters_are_made_visible(capfd: pytest.CaptureFixture[str]) -> None:
    with visible_output():
        for each in "ä\u202e\U000e0041".encode() + b"\xff\x1b\n":
            sys.stdout.buffer.write(bytes([each]))
        print("\x9b", file=sys.stderr)

    assert capfd.readouterr() == ("ä\\u202e\\udb40\\udc41\\xff\\u001b\n", "\\u009b\n")


def test_visible_text_is_unchanged() -> None:
    assert visible("") == ""
    assert visible("Grüße, 世界 ✓ …\nnext") == "Grüße, 世界 ✓ …\nnext"


@pytest.mark.parametrize(
    "formatter", [TextFormatter(), JSONFormatter(), ExporterTextFormatter(), ExporterLogFormatter()], ids=type
)
def test_a_log_record_is_text_and_begins_no_line_of_its_own(formatter: logging.Formatter) -> None:
    forged = f"{HOSTILE}\nERROR root forged"
    failed = ValueError, ValueError(forged), None
    for raised in (None, failed):
        line = formatter.format(logging.LogRecord(forged, logging.WARNING, "f", 1, "said %s", (forged,), raised))
        assert is_text(line), line
        assert not any(each.startswith("ERROR") for each in line.splitlines())
        if isinstance(formatter, JSONFormatter | ExporterLogFormatter):
            assert json.loads(line)["message"] == f"said {forged}"


def test_every_handler_of_log_records_has_one_of_these_formatters() -> None:
    root = Path(__file__).parents[2]
    files = (file for folder in ("extender", "node_exporter") for file in (root / folder).rglob("*.py"))
    words = re.compile(r"Handler\(\)|Handler\(sys|basicConfig|\.addHandler|dictConfig")
    assert {str(file.relative_to(root)) for file in files if words.search(file.read_text())} == {
        "extender/observability/logs.py",
        "node_exporter/visible.py",
    }
