"""`numa-extender doctor`: whether a cluster or a node has the problem that this product solves.

Rules of this file
- It only reads: files of a node, or GET requests that `kubectl get --raw` sends with the user's own kubeconfig.
- It needs no extender, and nothing in the cluster.
- Every read of a cluster has a limit. What was not read is said.
"""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import click
import msgspec
import orjson

from extender.api.nodes.models import NodeDetail
from extender.cli.client import ExtenderClient, offline, report_option
from extender.cli.kubectl import kubectl_get
from extender.cli.output import console_for
from extender.kube.pods import PodDecoder, PodRecord
from extender.kubelet.rules import NEWEST_MINOR
from extender.kubelet.verdict import MANAGERS_REASONS
from extender.lint import RULES
from extender.lint.documents import read_documents
from extender.lint.kubelet import lint_kubelet
from extender.questions.words import plural
from extender.wire.errors import WireError
from node_exporter.node import NodeReader, NodeSettings

PAGE: Final = 500
MAX_PAGES: Final = 20
"""At most 10,000 failed pods and as many events of each reason are read."""
MAX_CONFIGS: Final = 50
"""The kubelet's configuration is read from at most this many nodes, in one request each."""
MAX_FAULTS: Final = 3
"""After this many of these requests have failed, no further one is sent: each can take a minute."""
REFUSING: Final = ("restricted", "single-numa-node")
"""Policies of the Topology Manager with which a kubelet refuses pods."""
REFUSING_RULES: Final = ("best-effort-refuses", "full-pcpus-only", "memory-without-topology")
"""Rules of the linter whose finding is a setting with which a kubelet refuses pods, whatever that policy is."""
_SHOWN: Final = 5
_WIDTH: Final = 14
Read = Callable[[str], Any]
"""From the path of a GET request to the JSON reply. Raises ClickException."""


@dataclass(frozen=True, slots=True)
class Findings:
    """What was read of a cluster.

    `versions`: of kubelets -> nodes. `configs`: the configurations of kubelets that could be read. `refused`: pods that
    a resource manager of their kubelet refused. `events`: reason -> occurrences. `is_cut`: whether there was more than
    the limits allow. `fault`: why the first configuration that was not read was not; empty: all of them were.
    """

    versions: Counter[str]
    configs: Sequence[Mapping[str, Any]]
    refused: tuple[PodRecord, ...]
    events: Counter[str]
    is_cut: bool
    fault: str


@click.command()
@click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False), help="Default: the one that kubectl uses.")
@click.option("--context", "context_name", default="", help="Context of the kubeconfig. Default: the current one.")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read the files of one node below this directory in place of a cluster: / on the node itself, as root.",
)
@report_option
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
        lines = _of_files(reports) if reports else _of_cluster(kubeconfig, context_name)
        console_for().print(*lines, sep="\n")


def _of_cluster(kubeconfig: str | None, context_name: str) -> Iterator[str]:
    """The diagnosis of the cluster that kubectl reads."""
    chosen = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    chosen += [f"--context={context_name}"] if context_name else []
    try:
        return diagnosis(examine(partial(kubectl_get, *chosen, "--raw")))
    except click.ClickException as error:
        raise click.ClickException(f"{error.message}. --root and --report need no kubectl.") from None


def examine(read: Read) -> Findings:
    """Read a cluster. Raises ClickException if nodes, pods or events cannot be read; a configuration may be missing."""
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
    configs, fault = _configs(read, names[:MAX_CONFIGS])
    return Findings(
        Counter(str(_field(node, "status", "nodeInfo", "kubeletVersion") or "unknown") for node in nodes),
        configs,
        tuple(record for record in records if record.is_rejected and record.refusal in MANAGERS_REASONS),
        +events,
        is_cut or more,
        fault,
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


def _configs(read: Read, names: Sequence[str]) -> tuple[list[Mapping[str, Any]], str]:
    """The configurations of these nodes' kubelets, and the first error, "" if there was none."""
    found: list[Mapping[str, Any]] = []
    faults: list[str] = []
    for name in names:
        try:
            config = _field(read(f"/api/v1/nodes/{name}/proxy/configz"), "kubeletconfig")
        except click.ClickException as error:
            faults.append(error.message)
            if len(faults) == MAX_FAULTS:
                break
            continue
        found += [config] if isinstance(config, Mapping) and config else []
    return found, next(iter(faults), "")


def causes_of(config: Mapping[str, Any]) -> set[str]:
    """Why a kubelet with these fields of KubeletConfiguration can refuse a bound pod; sentences. Empty: it cannot."""
    from extender.cli.lint import make_context  # noqa: PLC0415 - a quarter of a second that --help does not need

    context = make_context(click.Group(), kube_minor=NEWEST_MINOR, kubelet_version=f"v1.{NEWEST_MINOR}.0")
    try:
        (document,) = read_documents(orjson.dumps(config), "kubelet")
        rules = {finding.rule for finding in lint_kubelet(document, context)}
    except WireError:
        rules = set()
    policy = config.get("topologyManagerPolicy")
    by_policy = {f"The policy {policy} refuses pods that it cannot align."} if policy in REFUSING else set()
    return by_policy | {RULES[rule].problem for rule in rules.intersection(REFUSING_RULES)}


def diagnosis(found: Findings) -> Iterator[str]:
    """What was seen, what it means, and what this product would have changed, one line each."""
    yield _row("nodes", f"{found.versions.total()}: {_counts(found.versions)}" if found.versions else "none")
    policies = Counter(str(config.get("topologyManagerPolicy") or "none") for config in found.configs)
    unread = found.versions.total() - len(found.configs)
    text = _counts(policies) or "none could be read"
    yield _row("policies", text + (f"; of {plural(unread, 'node')} not read" if unread and policies else ""))
    if found.fault:
        yield _row("", found.fault)
    causes = list(map(causes_of, found.configs))
    for cause, count in sorted(Counter(chain.from_iterable(causes)).items()):
        yield _row("", f"{plural(count, 'node')}: {cause}")
    yield _row("refused pods", _counts(Counter(pod.refusal for pod in found.refused)) or "none")
    places = Counter((pod.namespace, pod.node_name) for pod in found.refused)
    for (namespace, node), count in places.most_common(_SHOWN):
        yield _row("", f"{count} of namespace {namespace} on node {node}")
    yield _row("events", _counts(found.events) or "none (the API server keeps them for an hour by default)")
    if found.is_cut:
        yield _row("", "there are more nodes, failed pods or events than this command reads")
    yield ""
    yield from _meaning(found, sum(map(bool, causes)), unread)


def _meaning(found: Findings, can_refuse: int, unread: int) -> Iterator[str]:
    """*can_refuse*: nodes whose configuration is a cause of refusals. *unread*: nodes without a known one."""
    if found.refused or found.events.total():
        yield "This cluster has the problem: kubelets refused pods that kube-scheduler had bound to them."
        yield "With numa-extender, filter leaves out each node whose kubelet would refuse the pod. These pods would"
        yield "be on nodes that accept them, or would wait as Pending with the reason of each node."
        yield "Not changed: refusals by what it does not replay, such as errors of device plugins (docs/limits.md)."
    elif can_refuse:
        yield f"This cluster can have the problem: {can_refuse} kubelets can refuse a bound pod. None is seen."
        yield "Failed pods go with their owners, and events after an hour: run this again after a refusal."
    elif not found.versions:
        yield "Not known: the cluster has no nodes."
    elif unread:
        yield "Not known: no refused pod is seen, and the policy of some kubelets could not be read."
        yield "Run `numa-extender doctor --root /` on a node."
    else:
        yield f"This cluster does not have the problem: no policy is {' or '.join(REFUSING)}, and no setting refuses."
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
        for node in client.get("/v1/nodes")["nodes"]:
            detail = client.get(f"/v1/nodes/{quote(node['name'], safe='')}")
            yield from _of_node(client, msgspec.convert(detail, NodeDetail))


def _of_node(client: ExtenderClient, node: NodeDetail) -> Iterator[str]:
    free = [each.free_cpus for each in node.numa]
    yield _row("node", f"{node.name}: kubelet {node.kubelet_version or 'unknown'}, {len(free) or 'unknown'} NUMA nodes")
    if free and node.topology_policy is not None:
        yield _row("policies", f"{node.topology_policy}, scope {node.topology_scope}; CPU manager {node.cpu_policy}")
        yield _row("free CPUs", f"{node.free_cpus} for exclusive use: {' + '.join(map(str, free))}")
    shown = [problem for problem in node.problem_list if problem.severity != "info"]
    yield from (_row("problem", f"{problem.path}: {problem.reason}") for problem in shown)
    settings = {"cpuManagerPolicy": node.cpu_policy, "cpuManagerPolicyOptions": node.cpu_options}
    policy = node.topology_policy if node.numa_nodes > 1 else "none"
    causes = causes_of(settings | {"topologyManagerPolicy": policy, "memoryManagerPolicy": node.memory_policy})
    yield from (_row("", cause) for cause in sorted(causes))
    yield ""
    if node.topology_policy is None or not node.numa_nodes:
        yield "Not known: the machine, the kubelet's version (--kubelet-version) or its configuration is missing."
    elif not causes:
        yield f"This node does not have the problem: policy {node.topology_policy}, no setting that refuses pods."
    elif refusal := _refusal(client, node.name, node.free_cpus):
        yield f"This node has the problem: {node.free_cpus} CPUs are free, and the kubelet refuses a pod of so many:"
        yield refusal
        if not _refusal(client, node.name, max(free)):
            yield f"A pod of {max(free)} CPUs is accepted. numa-extender lets kube-scheduler know the difference."
    else:
        yield "This node can have the problem: its kubelet refuses pods that it cannot align, or for the causes above."
        yield "Now its free exclusive CPUs fit into one pod, or there are none."


def _refusal(client: ExtenderClient, node: str, cpus: int) -> str:
    """Why the kubelet refuses a pod of so many exclusive CPUs. Empty if it does not, and for 0 CPUs."""
    if not cpus:
        return ""
    container = {"name": "a", "resources": {"limits": {"cpu": str(cpus), "memory": "64Mi"}}}
    pod = {"kind": "Pod", "metadata": {"name": "doctor"}, "spec": {"containers": [container]}}
    (reply,) = client.lines("/v1/what-if", {"pod": pod, "nodes": [node]})
    verdict = reply["nodes"][0]["verdict"]
    return "" if verdict is None or verdict["admit"] else f"{verdict['reason']}: {verdict['message']}"
