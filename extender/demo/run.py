"""The demo from beginning to end."""

import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.podresources import serve_podresources
from extender.demo.publish import publish
from extender.demo.serving import serving
from extender.demo.story import ask
from extender.demo.table import render
from extender.identity import EVERYTHING
from extender.samples.files import write_node
from extender.samples.nodes import SampleNode, Workload, make_pod, sample_cluster

PODS = (
    Workload(name="solver", resources={"cpu": 16, "memory": "48Gi"}),
    Workload(name="finetune", resources={"cpu": 24, "memory": "200Gi", "vendor.example/gpu": 2}),
)
A_DAY = 86_400.0
WIDTH = 100
"""Columns of the tables, in terminals that have as many."""


def run_demo(console: Console, *, host: str, port: int, once: bool) -> None:
    """Show the sample cluster, ask, answer; unless *once*, serve on until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    nodes = sample_cluster()
    # The sample nodes report over loopback, and only once: that must not make them stale while somebody looks around.
    settings = Settings(host=host, port=port, stale_after_seconds=A_DAY, loopback_scopes=EVERYTHING)
    with ExitStack() as stack:
        root = Path(stack.enter_context(_short_directory()))
        url = stack.enter_context(serving(make_service(settings)))
        _write(console, nodes, root, stack)
        _publish(console, nodes, root, url)
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
            for wanted in PODS:
                pod = make_pod(wanted.name, f"{wanted.name}-0", wanted)
                console.print(render(ask(client, nodes, pod), min(WIDTH, console.width)))
        if not once:
            _stay(console, url)


@contextmanager
def _short_directory() -> Iterator[str]:
    """A directory with a short path: that of a unix socket may have 107 characters at most."""
    base = "/tmp" if Path("/tmp").is_dir() else None  # noqa: S108 - the name below it is random
    path = tempfile.mkdtemp(prefix="numa-", dir=base)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _write(console: Console, nodes: list[SampleNode], root: Path, stack: ExitStack) -> None:
    with console.status("Writing the files of the sample nodes"):
        for node in nodes:
            write_node(root / node.name, node)
            kubelet = serve_podresources(root / node.name, node)
            stack.callback(kubelet.stop, None)
    cpus = sum(node.kubelet.machine.num_cpus for node in nodes)
    console.print(
        f"A sample cluster: [bold]{len(nodes)} nodes[/], {cpus} CPUs, kubelets 1.29 to 1.36.", highlight=False
    )


def _publish(console: Console, nodes: list[SampleNode], root: Path, url: str) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Each node's exporter reads its files and reports", total=len(nodes))
        for _name in publish(nodes, root, url):
            progress.advance(task)
    console.print(f"Each node's exporter has reported to the extender at [bold]{url}[/].", highlight=False)


def _stay(console: Console, url: str) -> None:
    console.print("The extender goes on serving. Look around:", highlight=False)
    for path, what in (
        ("/", "the cluster as NUMA maps, and where a pod would land"),
        ("/docs", "the API, to try out"),
        ("/v1/nodes", "the nodes"),
        ("/v1/nodes/xeon-b", "the fragmented one in full"),
        ("/metrics", "metrics"),
    ):
        console.print(f"  {url}{path:<20} [dim]{what}[/]", highlight=False)
    console.print("Ctrl-C ends it.", highlight=False)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print()
