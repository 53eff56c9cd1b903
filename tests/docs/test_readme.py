"""The examples in README and docs are what the commands print, on the sample cluster of the demo.

A console block below the comment `<!-- run by tests -->` is run line by line: `$ ` begins a command, what follows is
its output. A line `…` stands for any lines, `…` in a line for any text.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from click.testing import CliRunner
from rich.console import Console

from extender.__main__ import main
from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.run import PODS, WIDTH
from extender.demo.serving import serving
from extender.demo.story import ask
from extender.demo.table import render
from extender.samples.nodes import make_pod, sample_cluster
from tests.reports import report_of
from tests.waiting import A_DAY, PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
FILES = ("README.md", "docs/asking.md", "docs/advice.md")
_BLOCK = re.compile(r"<!-- run by tests -->\n```console\n(.*?)```", re.DOTALL)
ANY = "…"
CELL_WIDTH = 17
"""Of one CPU in the picture, in its units."""


class Example(NamedTuple):
    """One command of a document, and what it prints according to it."""

    file: str
    command: str
    printed: list[str]


def _examples() -> Iterator[Example]:
    for file in FILES:
        for block in _BLOCK.findall((ROOT / file).read_text()):
            for part in block.split("\n$ "):
                command, _, printed = part.removeprefix("$ ").partition("\n")
                yield Example(file, command, [line.rstrip() for line in printed.rstrip("\n").splitlines()])


EXAMPLES = list(_examples())


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The sample cluster after the questions of the demo."""
    patient = Settings(
        port=0, question_seconds=600, question_wait_seconds=600, answer_seconds=2000, stale_after_seconds=A_DAY
    )  # as below
    with serving(make_service(patient)) as url:
        nodes = sample_cluster()
        with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as client:
            for node in nodes:
                client.put(f"/v1/nodes/{node.name}/report", json=report_of(node)).raise_for_status()
            for pod in PODS:
                ask(client, nodes, make_pod(pod.name, f"{pod.name}-0", pod))
        yield url


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.command)
def test_the_documents_show_what_commands_print(example: Example, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    program, *args = shlex.split(example.command)
    assert program == "numa-extender"

    result = CliRunner().invoke(main, args, env={"NUMA_EXTENDER_SERVER": server}, catch_exceptions=False)

    printed = [line.rstrip() for line in result.output.rstrip("\n").splitlines()]
    assert _matches(example.printed, printed), f"{example.file}: {example.command}\n{result.output}"


def _matches(expected: list[str], printed: list[str]) -> bool:
    """Whether *printed* is *expected*, as the rules of this file say."""
    lines = (r"(?:[^\n]*\n)*" if line == ANY else _escaped(line) for line in expected)
    return re.fullmatch("".join(lines), "".join(f"{line}\n" for line in printed)) is not None


def _escaped(line: str) -> str:
    return r"[^\n]*".join(map(re.escape, line.split(ANY))) + r"\n"


@pytest.mark.parametrize("name", ["resize-check", "restart-check"])
def test_examples_of_the_api_are_answered_on_the_sample_cluster(server: str, name: str) -> None:
    with httpx.Client(base_url=server, timeout=PATIENCE_SECONDS) as client:
        document = client.get("/openapi.json").json()
        body = document["paths"][f"/v1/advice/{name}"]["post"]["requestBody"]["content"]["application/json"]
        (example,) = document["components"]["schemas"][body["schema"]["$ref"].rpartition("/")[2]]["examples"]

        reply = client.post(f"/v1/advice/{name}", json=example)

    assert reply.status_code == 200, reply.text


def test_the_picture_has_the_numbers_of_the_sample_node(server: str) -> None:
    picture = (ROOT / "docs/images/scheduler-and-kubelet.svg").read_text()
    nodes = httpx.get(f"{server}/v1/nodes", timeout=PATIENCE_SECONDS).raise_for_status().json()["nodes"]
    (node,) = (node for node in nodes if node["name"] == "epyc-nps4-b")

    assert f"{node['free_cpus']} CPUs free in total" in picture
    for zone in node["numa"]:
        gib = zone["free_memory_bytes"] >> 30
        label = f"NUMA {zone['id']} (socket {zone['socket']}): {zone['free_cpus']} CPUs, {gib} GiB free"
        assert label in picture
        (drawn,) = re.findall(rf'<g id="numa-{zone["id"]}">(.*?)</g>', picture, re.DOTALL)
        cells = sum(int(width) for width in re.findall(r'class="free"[^/]*width="(\d+)"', drawn)) // CELL_WIDTH
        assert cells == zone["free_cpus"]
    assert len(re.findall(r'<g id="numa-', picture)) == len(node["numa"])


def test_the_readme_shows_what_the_demo_prints() -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    nodes, solver = sample_cluster(), PODS[0]
    patient = Settings(port=0, question_workers=0, stale_after_seconds=A_DAY)
    with serving(make_service(patient)) as url, httpx.Client(base_url=url, timeout=60) as client:
        for node in nodes:
            client.put(f"/v1/nodes/{node.name}/report", json=report_of(node)).raise_for_status()
        console = Console(file=StringIO(), width=WIDTH)
        console.print(render(ask(client, nodes, make_pod(solver.name, f"{solver.name}-0", solver)), WIDTH))
        assert isinstance(console.file, StringIO)
        printed = [line.rstrip() for line in console.file.getvalue().splitlines()]

    assert _matches([ANY, *shown.splitlines(), ANY], printed), "\n".join(printed)


def _program_of(page: str) -> tuple[str, str]:
    """The only program of a page that tests run, and what the page says that it prints."""
    text = (ROOT / page).read_text()
    ((program, printed),) = re.findall(
        r"<!-- run by tests -->\n```python\n(.*?)```\n\n```text\n(.*?)```", text, re.DOTALL
    )
    return program, printed


def test_the_program_on_the_page_of_theory_prints_what_the_page_shows() -> None:
    program, printed = _program_of("docs/theory.md")

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout == printed


def test_the_kubelet_admits_as_its_readme_shows_with_nothing_else_installed(tmp_path: Path) -> None:
    program, printed = _program_of("extender/kubelet/README.md")
    shutil.copytree(ROOT / "extender/kubelet", tmp_path / "extender/kubelet")
    alone = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{program}"

    done = subprocess.run([sys.executable, "-I", "-S", "-c", alone], capture_output=True, text=True, check=True)

    assert done.stdout == printed


def test_there_are_examples_and_each_says_something() -> None:
    assert len(EXAMPLES) > 5
    for example in EXAMPLES:
        assert any(line != ANY for line in example.printed), example.command


def test_what_differs_is_noticed() -> None:
    assert _matches(["a", ANY, "c"], ["a", "b", "b", "c"])
    assert _matches(["a", ANY], ["a"])
    assert _matches(["a … ago"], ["a 3 s ago"])
    assert not _matches(["a", "c"], ["a", "b", "c"])
    assert not _matches(["a", ANY, "d"], ["a", "b", "c"])
