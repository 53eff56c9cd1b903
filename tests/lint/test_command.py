"""`numa-extender lint` as it is called."""

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner, Result

from extender.__main__ import main
from extender.app import make_app, make_service
from extender.cli.lint import PROBES, VERBS
from extender.config.settings import Settings
from tests.lint.building import GONE, extender, kubelet, scheduler

OURS = {"bindVerb": GONE, "preemptVerb": GONE}
"""Whether the service has these verbs is not what is tested here."""


def _run(*arguments: str, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(main, ["lint", *arguments], input=stdin)


def test_sound_input_exits_0() -> None:
    result = _run(stdin=scheduler(extender(**OURS)))
    assert result.exit_code == 0, result.output
    assert "0 errors" in result.stderr


def test_an_error_exits_1_and_tells_file_line_rule_why_and_fix(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text("# one\n" + scheduler(extender(httpTimeout="5")))
    line = file.read_text().splitlines().index("  httpTimeout: '5'") + 1
    result = _run(str(file))
    assert result.exit_code == 1
    assert f"{file}:{line}: error [timeout-invalid] extenders[0].httpTimeout: " in result.output
    assert "fix: write a duration" in result.output


def test_warnings_alone_exit_0() -> None:
    result = _run(stdin=scheduler(extender(httpTimeout=GONE, **OURS)))
    assert "[timeout-unset]" in result.stdout
    assert result.exit_code == 0


def test_json() -> None:
    result = _run("-o", "json", "-", stdin=scheduler(extender(weight=1.5, **OURS)))
    report = orjson.loads(result.stdout)
    (finding,) = [f for f in report["findings"] if f["severity"] == "error"]
    assert finding.keys() == {"file", "line", "path", "rule", "severity", "why", "fix"}
    assert (finding["file"], finding["rule"], finding["path"]) == ("-", "weight-invalid", "extenders[0].weight")
    assert report["count"]["error"] == 1
    assert result.exit_code == 1


def test_versions_decide() -> None:
    text = kubelet(topologyManagerPolicyOptions={"max-allowable-numa-nodes": "16"})
    assert _run("--kubelet-version", "v1.30.1", stdin=text).exit_code == 1
    assert _run("--kubelet-version", "v1.31.1", stdin=text).exit_code == 0
    beta = scheduler(extender(**OURS), apiVersion="kubescheduler.config.k8s.io/v1beta3")
    assert _run("--kube-version", "1.28", stdin=beta).exit_code == 0
    assert _run("--kube-version", "1.29", stdin=beta).exit_code == 1
    assert "is not" in _run("--kube-version", "new", stdin=beta).output


def test_directories_and_environment_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/kubelet.yml").write_text(kubelet(topologyManagerPolicy="all"))
    (tmp_path / "patch.yaml").write_text("- op: add\n")
    (tmp_path / "notes.txt").write_text("kind: [")
    (tmp_path / "service.env").write_text("# ours\nexport NUMA_EXTENDER_PORT=9600\nNUMA_EXTENDER_PROT=1\n\nPATH=/bin\n")
    result = _run(str(tmp_path), str(tmp_path / "service.env"))
    assert result.output.count(" error [") == 2
    assert f"{tmp_path / 'service.env'}:3: error [setting-unknown]" in result.output
    assert "write NUMA_EXTENDER_PORT" in result.output


def test_files_inside_config_maps_keep_their_lines() -> None:
    inner = scheduler(extender(weight=0)).replace("\n", "\n    ")
    text = f"kind: ConfigMap\ndata:\n  config.yaml: |\n    {inner}"
    result = _run(stdin=text)
    line = next(n for n, words in enumerate(text.splitlines(), start=1) if "weight" in words)
    assert f"-:{line}: error [weight-missing]" in result.output


def test_a_list_is_opened() -> None:
    text = "kind: List\nitems:\n- " + kubelet(topologyManagerPolicy="all").replace("\n", "\n  ")
    assert "[kubelet-does-not-start]" in _run(stdin=text).output


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a: b: c", b"{", b"[" * 5000, b"kind: !!python/object:x {}\n"])
def test_what_is_no_yaml_is_named_with_its_line(content: bytes) -> None:
    result = _run(stdin=content)
    assert result.exit_code in (0, 1)
    assert isinstance(result.exception, SystemExit | None)
    assert "-:1: " in result.output


def test_missing_files_are_named() -> None:
    result = _run("no-such-file.yaml")
    assert result.exit_code == 1
    assert "no-such-file.yaml:0: error [unreadable]" in result.output
    assert "No such file" in result.output


def test_the_linter_knows_the_routes_of_the_service() -> None:
    paths = make_app(make_service(Settings())).openapi()["paths"]

    assert {path for path in paths if path.startswith("/scheduler/")} == VERBS
    assert paths.keys() >= PROBES


def test_the_linter_does_not_load_the_service() -> None:
    """It runs before each commit."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, extender.cli.lint; print('fastapi' in sys.modules, 'extender.app' in sys.modules)",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False"]
