"""Runs the demo. The tables are made when the extender knows the state of every node of the demo."""

import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.exporters import publish, serve_podresources
from extender.demo.serving import serving
from extender.demo.story import Story, ask
from extender.demo.table import render
from extender.identity import EVERYTHING
from extender.samples.files import write_node
from extender.samples.nodes import SampleNode, Workload, make_pod, sample_cluster

PODS = (
    Workload(name="solver", resources={"cpu": 16, "memory": "48Gi"}),
    Workload(name="finetune", resources={"cpu": 24, "memory": "200Gi", "vendor.example/gpu": 2}),
)
A_DAY = 86_400.0
KNOWN_SECONDS = 30.0
EXAMPLE = Path("docs/examples/solver.yaml")
"""A pod for `what-if`, if the demo runs in a checkout."""
DEFAULT_SERVER = "http://127.0.0.1:9600"
"""The default server of the commands."""
WIDTH = 100
"""Largest width of the tables, in columns."""


def run_demo(console: Console, *, host: str, port: int, once: bool) -> None:
    """Show the sample cluster and the tables. Unless *once*, continue to serve until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    nodes = sample_cluster()
    # The sample nodes report over loopback, and only once: they must not become stale while the demo runs. Their
    # kubelets' sockets were made a moment ago, and do not show that a kubelet is starting.
    settings = Settings(
        host=host, port=port, stale_after_seconds=A_DAY, loopback_scopes=EVERYTHING, kubelet_start_seconds=0
    )
    with ExitStack() as stack:
        # short, because the path of a unix socket has at most 107 characters
        base = "/tmp" if Path("/tmp").is_dir() else None  # noqa: S108 - the name below it is random
        root = Path(stack.enter_context(TemporaryDirectory(prefix="numa-", dir=base, ignore_cleanup_errors=True)))
        url = stack.enter_context(serving(make_service(settings)))
        _write(console, nodes, root, stack)
        _publish(console, nodes, root, url)
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
            _wait_for(nodes, client)
            stories = [ask(client, nodes, make_pod(each.name, f"{each.name}-0", each)) for each in PODS]
        for story in stories:
            console.print(render(story, min(WIDTH, console.width)))
        if not once:
            _stay(console, url, stories[0])


def command_name() -> str:
    """The command to type in the current directory: the script beside this interpreter, if there is one."""
    script = Path(sys.executable).with_name("numa-extender")
    if not script.is_file():
        return f"{sys.executable} -m extender"
    return str(script.relative_to(Path.cwd())) if script.is_relative_to(Path.cwd()) else str(script)


def _write(console: Console, nodes: list[SampleNode], root: Path, stack: ExitStack) -> None:
    with console.status("Writing the files of the sample nodes"):
        for node in nodes:
            write_node(root / node.name, node)
            kubelet = serve_podresources(root / node.name, node)
            stack.callback(kubelet.stop, None)
    cpus = sum(node.kubelet.machine.num_cpus for node in nodes)
    minors = [node.kubelet.rules.minor for node in nodes]
    versions = f"kubelets 1.{min(minors)} to 1.{max(minors)}"
    console.print(f"A sample cluster: [bold]{len(nodes)} nodes[/], {cpus} CPUs, {versions}.", highlight=False)


def _publish(console: Console, nodes: list[SampleNode], root: Path, url: str) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("Each node's exporter reads its files and reports", total=len(nodes))
        for _name in publish(nodes, root, url):
            progress.advance(task)
    console.print(f"Each node's exporter has reported to the extender at [bold]{url}[/].", highlight=False)


def _wait_for(nodes: Sequence[SampleNode], client: httpx.Client) -> None:
    """Return when the extender knows the exact state of all *nodes*.

    Raises:
        RuntimeError: it does not after `KNOWN_SECONDS`.
    """
    names = {node.name for node in nodes}
    deadline = time.monotonic() + KNOWN_SECONDS
    while True:
        columns = client.get("/v1/map").raise_for_status().json()["nodes"]
        known = {name for name, sure in zip(columns["name"], columns["certainty"], strict=True) if sure == "exact"}
        if names <= known:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"the extender does not know these nodes yet: {', '.join(sorted(names - known))}")
        time.sleep(0.05)


def _stay(console: Console, url: str, story: Story) -> None:
    """Print what can be opened and run, and serve until Ctrl-C. The printed node names are from *story*."""
    by_totals, choice = story.choice_by_totals.node.name, story.choice.node.name if story.choice else None
    console.print("The extender is still serving. On the page:", highlight=False)
    for path, what in (
        ("/", "the cluster as NUMA maps, and where a pod would go"),
        (f"/#/nodes/{by_totals}", "the node that kube-scheduler would choose by totals alone"),
        *([(f"/#/nodes/{choice}", "the node that numa-extender chooses")] if choice else []),
        ("/docs", "the API, to try out"),
        ("/metrics", "metrics"),
    ):
        console.print(f"  {url}{path:<22} [dim]{what}[/]", highlight=False, soft_wrap=True)
    command = command_name()
    server = "" if url == DEFAULT_SERVER else f" --server {url}"
    console.print("In another terminal:", highlight=False)
    for words in ("nodes", f"map {by_totals}", *([f"what-if -f {EXAMPLE} --explain"] if EXAMPLE.is_file() else [])):
        console.print(f"  {command} {words}{server}", highlight=False, soft_wrap=True)
    console.print("Ctrl-C ends it.", highlight=False)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        console.print()
