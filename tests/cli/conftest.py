"""Report files of sample nodes, and commands run against them or a server."""

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import orjson
import pytest
from click.testing import CliRunner, Result

from extender.__main__ import main
from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.samples.machines import GPU
from extender.samples.nodes import Workload
from tests.reports import report_of, sample
from tests.waiting import A_DAY, PATIENCE_SECONDS

MANIFEST = """
kind: Deployment
metadata: {name: solver}
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: app
          resources: {limits: {cpu: 12, memory: 2Gi}}
"""
BUSY = sample(
    "node-a",
    workloads=[Workload(name="w", copies=2, resources={"cpu": 8, "memory": "2Gi", GPU: 1})],
    devices={GPU: [0, 1]},
)
EMPTY = sample("node-b", devices={GPU: [0, 1]})
Run = Callable[..., Result]


@pytest.fixture
def manifest(tmp_path: Path) -> str:
    """The path of a manifest."""
    file = tmp_path / "pod.yaml"
    file.write_text(MANIFEST)
    return str(file)


@pytest.fixture
def reports(tmp_path: Path) -> list[str]:
    """Options that name report files of two nodes."""
    options = []
    for node in (BUSY, EMPTY):
        file = tmp_path / f"{node.name}.json"
        file.write_bytes(orjson.dumps(report_of(node)))
        options += ["--report", str(file)]
    return options


@pytest.fixture
def run() -> Run:
    """Run a command in this process."""

    def run(*args: str, code: int = 0, stdin: str | None = None) -> Result:
        result = CliRunner().invoke(main, args, input=stdin, catch_exceptions=False)
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a running extender that knows the same two nodes."""
    with serving(make_service(Settings(port=0, stale_after_seconds=A_DAY))) as url:
        with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as client:
            for node in (BUSY, EMPTY):
                client.put(f"/v1/nodes/{node.name}/report", json=report_of(node)).raise_for_status()
        yield url
