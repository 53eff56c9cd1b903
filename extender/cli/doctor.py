"""`numa-extender doctor`: whether a cluster or a node has the problem that this product solves.

Rules of this file
- It only reads: files of a node, or GET requests that `kubectl get --raw` sends with the user's own kubeconfig.
- It needs no extender, and nothing in the cluster.
- Every read of a cluster has a limit. What was not read is said.
"""

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import orjson

from extender.api.nodes.models import NodeSummary
from extender.cli.client import ExtenderClient, offline
from extender.cli.output import console_for
from extender.kube.pods import PodDecoder, PodRecord
from extender.kubelet.verdict import MANAGERS_REASONS
from node_exporter.node import NodeReader, NodeSettings

PAGE: Final = 500
MAX_PAGES: Final = 20
"""At most 10,000 failed pods and as many events of each reason are read."""
MAX_CONFIGS: Final = 50
"""Of at most so many nodes the kubelet's configuration is read, one request each."""
READ_SECONDS: Final = 60.0
REFUSING: Final = ("restricted", "single-numa-node")
"""Policies of the Topology Manager with which a kubelet refuses pods."""
_SHOWN: Final = 5
_WIDTH: Final = 14
Read = Callable[[str], Any]
"""From the path of a GET request to the JSON reply. Raises ClickException."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What was read of a cluster.

    `policies`: topologyManagerPolicy -> nodes that have it; empty text: it could not be read. `refused`: pods that a
    resource manager of their kubelet refused. `events`: reason -> occurrences. `is_cut`: whether there was more than
    the limits allow.
    """

    versions: Counter[str]
    policies: Counter[str]
    refused: tuple[PodRecord, ...]
    events: Counter[str]
    is_cut: bool


@click.command(short_help="Say whether a cluster or a node has the problem.")
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Default: the one that kubectl uses.")
@click.option("--context", "context_name", default="", help="Context of the kubeconfig. Default: the current one.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read the files of one node below this directory in place of a cluster: / on the node itself, as root.",
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    help="Read a node from this file, as `numa-node-exporter report` prints it. Repeatable.",
)
@click.option("--kubelet-version", help="With --root: such as v1.36.2, as `kubectl get nodes` shows it.")
def doctor(
    *,
    kubeconfig: str | None,
    context_name: str,
    root: Path | None,
    reports: tuple[Path, ...],
    kubelet_version: str | None,
) -> None:
    """Say whether kubelets of a cluster refuse pods that kube-scheduler has bound, and what would have been different.

    Without --root and --report the cluster is read with kubectl: nodes, their kubelets' configuration, failed pods and
    events. Nothing is changed or installed.
    """
    with tempfile.TemporaryDirectory() as directory:
        if root is not None:
            file = Path(directory) / "report.json"
            file.write_bytes(_report_of(root, kubelet_version))
            reports = (*reports, file)
        lines = _of_files(reports) if reports else diagnosis(examine(kubectl(kubeconfig, context_name)))
        console = console_for()
        for line in lines:
            console.print(line)


def kubectl(kubeconfig: str | None, context_name: str) -> Read:
    """GET requests with kubectl, which knows every kind of credentials. Raises ClickException if it is missing."""
    program = shutil.which("kubectl")
    if program is None:
        raise click.ClickException("kubectl is not on PATH; --root and --report need none")
    command = [program, "get", f"--request-timeout={READ_SECONDS:.0f}s"]
    command += [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    command += [f"--context={context_name}"] if context_name else []

    def read(path: str) -> Any:  # noqa: ANN401 - JSON
        try:
            run = subprocess.run(  # noqa: S603 - kubectl of the user's own PATH, without a shell
                [*command, "--raw", path], capture_output=True, check=False, timeout=READ_SECONDS + 10
            )
        except subprocess.TimeoutExpired:
            raise click.ClickException(f"kubectl get --raw {path}: no reply within {READ_SECONDS:.0f} s") from None
        if run.returncode:
            raise click.ClickException(f"kubectl get --raw {path}: {run.stderr.decode(errors='replace').strip()}")
        try:
            return orjson.loads(run.stdout)
        except orjson.JSONDecodeError as error:
            raise click.ClickException(f"kubectl get --raw {path}: not JSON: {error}") from None

    return read


def examine(read: Read) -> Findings:
    """Read a cluster. Nodes have to be readable. A configuration, pods or events that are not are left out."""
    nodes, is_cut = _pages(read, "/api/v1/nodes", "")
    decode = PodDecoder()
    failed, more = _pages(read, "/api/v1/pods", "status.phase=Failed")
    records = [known[1] for pod in failed if (known := decode(pod)) is not None]
    events: Counter[str] = Counter()
    for reason in sorted(MANAGERS_REASONS):
        found, cut = _pages(read, "/api/v1/events", f"reason={reason}")
        more = more or cut
        events[reason] += sum(_occurrences(event) for event in found)
    names = [str(_field(node, "metadata", "name")) for node in nodes]
    policies = Counter(_policy(read, name) for name in names[:MAX_CONFIGS])
    policies[""] += len(names[MAX_CONFIGS:])
    return Findings(
        Counter(str(_field(node, "status", "nodeInfo", "kubeletVersion") or "unknown") for node in nodes),
        +policies,
        tuple(record for record in records if record.is_rejected and record.refusal in MANAGERS_REASONS),
        +events,
        is_cut or more,
    )


def _pages(read: Read, path: str, selector: str) -> tuple[list[Mapping[str, Any]], bool]:
    """The objects of a collection, and whether it has more than MAX_PAGES pages."""
    found: list[Mapping[str, Any]] = []
    after = ""
    for _ in range(MAX_PAGES):
        chosen = f"&fieldSelector={selector}" if selector else ""
        page = read(f"{path}?limit={PAGE}{chosen}" + (f"&continue={after}" if after else ""))
        items = _field(page, "items")
        found += [item for item in items if isinstance(item, Mapping)] if isinstance(items, list) else []
        after = str(_field(page, "metadata", "continue") or "")
        if not after:
            return found, False
    return found, True


def _field(value: object, *path: str) -> object:
    """A field of a JSON document. None if it, or what it is in, does not exist."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _occurrences(event: Mapping[str, Any]) -> int:
    count = _field(event, "series", "count") or _field(event, "count")
    return count if isinstance(count, int) and count > 0 else 1


def _policy(read: Read, name: str) -> str:
    """The policy of a node's Topology Manager. Empty if the kubelet's configuration cannot be read."""
    try:
        config = read(f"/api/v1/nodes/{name}/proxy/configz")
    except click.ClickException:
        return ""
    return str(_field(config, "kubeletconfig", "topologyManagerPolicy") or "")


def diagnosis(found: Findings) -> Iterator[str]:
    """What was seen, what it means, and what this product would have changed, one line each."""
    yield _row("nodes", f"{found.versions.total()}: {_counts(found.versions)}")
    known = Counter({name: count for name, count in found.policies.items() if name})
    unread = found.policies[""]
    text = _counts(known) if known else "none could be read"
    yield _row("policies", text + (f"; of {unread} nodes not read (nodes/proxy)" if unread and known else ""))
    yield _row("refused pods", _counts(Counter(pod.refusal for pod in found.refused)) or "none")
    for (namespace, node), count in Counter((pod.namespace, pod.node_name) for pod in found.refused).most_common(
        _SHOWN
    ):
        yield _row("", f"{count} of namespace {namespace} on node {node}")
    yield _row("events", _counts(found.events) or "none (the API server keeps them for an hour by default)")
    if found.is_cut:
        yield _row("", "there are more nodes, failed pods or events than this command reads")
    yield ""
    yield from _meaning(found, sum(known[name] for name in REFUSING), unread)


def _meaning(found: Findings, refusing: int, unread: int) -> Iterator[str]:
    """*refusing*: nodes whose policy refuses pods. *unread*: nodes whose policy is not known."""
    if found.refused or found.events.total():
        yield "This cluster has the problem: kubelets refused pods that kube-scheduler had bound to them."
        yield "With numa-extender, filter leaves out each node whose kubelet would refuse the pod. These pods would"
        yield "be on nodes that accept them, or would wait as Pending with the reason of each node."
        yield "Not changed: refusals by what it does not replay, such as errors of device plugins (docs/limits.md)."
    elif refusing:
        yield f"This cluster can have the problem: {refusing} nodes refuse pods that they cannot align. None is seen."
        yield "Failed pods go with their owners, and events after an hour: run this again after a refusal."
    elif unread:
        yield "Not known: no refused pod is seen, and the policy of some kubelets could not be read."
        yield "Run `numa-extender doctor --root /` on a node, or get the right `get` on nodes/proxy."
    else:
        yield f"This cluster does not have the problem: no kubelet has the policy {' or '.join(REFUSING)}."
        yield "Pods can still be split over NUMA nodes: docs/alignment.md tells how to demand alignment."


def _counts(counted: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(counted.items()))


def _row(name: str, text: str) -> str:
    return f"{name:{_WIDTH}}{text}"


def _report_of(root: Path, version: str | None) -> bytes:
    """What the exporter would report of the node whose files are below *root*."""
    name = os.uname().nodename if root == Path("/") else root.name
    try:
        settings = NodeSettings(root=root, node_name=name.lower(), kubelet_version=version)
        return orjson.dumps(NodeReader(settings).look(is_tick=True))
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is not installed: pip install 'numa-extender[exporter]'") from None


def _of_files(reports: tuple[Path, ...]) -> Iterator[str]:
    """The diagnosis of each node whose report is in a file."""
    with closing(offline(reports)) as http:
        client = ExtenderClient(http)
        for node in msgspec.convert(client.get("/v1/nodes")["nodes"], list[NodeSummary]):
            yield from _of_node(client, node)


def _of_node(client: ExtenderClient, node: NodeSummary) -> Iterator[str]:
    yield _row("node", f"{node.name}: kubelet {node.kubelet_version or 'unknown'}, {node.numa_nodes} NUMA nodes")
    yield _row("policies", f"{node.topology_policy}, scope {node.topology_scope}; CPU manager {node.cpu_policy}")
    free = [each.free_cpus for each in node.numa]
    yield _row("free CPUs", f"{node.free_cpus} for exclusive use: {' + '.join(map(str, free))}")
    if node.problems:
        yield _row("", f"{node.problems} problems: numa-extender nodes --report … -o json shows them")
    yield ""
    if node.topology_policy is None or not node.numa_nodes:
        yield "Not known: the machine, the kubelet's version (--kubelet-version) or its configuration is missing."
    elif node.numa_nodes == 1 or node.topology_policy not in REFUSING:
        yield f"This node does not have the problem: policy {node.topology_policy}, {node.numa_nodes} NUMA nodes."
    elif refusal := _refusal(client, node.name, node.free_cpus):
        yield f"This node has the problem: {node.free_cpus} CPUs are free, and the kubelet refuses a pod of so many:"
        yield refusal
        largest = max(free)
        if not _refusal(client, node.name, largest):
            yield f"A pod of {largest} CPUs is accepted. numa-extender lets kube-scheduler know the difference."
    else:
        yield "This node can have the problem: its kubelet refuses pods that it cannot align. Now its free exclusive"
        yield "CPUs fit into one pod, or there are none."


def _refusal(client: ExtenderClient, node: str, cpus: int) -> str:
    """Why the kubelet refuses a pod of so many exclusive CPUs. Empty if it does not, and for 0 CPUs."""
    if not cpus:
        return ""
    resources = {"limits": {"cpu": str(cpus), "memory": "64Mi"}}
    pod = {
        "kind": "Pod",
        "metadata": {"name": "doctor"},
        "spec": {"containers": [{"name": "a", "resources": resources}]},
    }
    (reply,) = client.lines("/v1/what-if", {"pod": pod, "nodes": [node]})
    (answer,) = reply["nodes"]
    verdict = answer["verdict"]
    return "" if verdict is None or verdict["admit"] else f"{verdict['reason']}: {verdict['message']}"
