"""`doctor` says whether a cluster or a node has the problem, and changes nothing."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import orjson
import pytest
import yaml

from extender.cli.doctor import MAX_CONFIGS, MAX_FAULTS, MAX_PAGES, PAGE, diagnosis, examine
from extender.samples.files import write_node
from extender.samples.nodes import Workload
from tests.cli.conftest import BUSY, Run
from tests.fakes.apiserver import FakeApiServer
from tests.reports import pod_of, report_of, sample

REJECTED = "Pod was rejected: Resources cannot be allocated with Topology locality"
Json = dict[str, Any]


def _node(name: str) -> Json:
    return {"metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}}}


def _failed(name: str, *, reason: str = "TopologyAffinityError", message: str = REJECTED) -> Json:
    return {
        "metadata": {"name": name, "namespace": "team-a", "uid": name},
        "spec": {"nodeName": "n1", "containers": [{"name": "a"}]},
        "status": {"phase": "Failed", "reason": reason, "message": message},
    }


def _cluster(policies: Mapping[str, str], pods: list[Json], events: list[Json]) -> Callable[[str], Any]:
    """Answers the paths that `examine` asks for. A node without a policy does not allow nodes/proxy."""

    def read(path: str) -> Any:  # noqa: ANN401 - JSON
        if path.endswith("/configz"):
            policy = policies[path.split("/")[4]]
            if not policy:
                raise click.ClickException(f"kubectl says: nodes {path.split('/')[4]!r} is forbidden")
            return {"kubeletconfig": {"topologyManagerPolicy": policy}}
        if path.startswith("/api/v1/nodes?"):
            return {"metadata": {}, "items": [_node(name) for name in policies]}
        if path.startswith("/api/v1/pods?"):
            return {"metadata": {}, "items": pods}
        return {"metadata": {}, "items": [event for event in events if f"reason={event['reason']}" in path]}

    return read


def _text(read: Callable[[str], Any]) -> str:
    return "\n".join(diagnosis(examine(read)))


def test_refused_pods_are_the_problem_and_other_failures_are_not() -> None:
    pods = [
        _failed("a"),
        _failed("b"),
        _failed("evicted", reason="Evicted", message="The node was low on resource: memory."),
        _failed("device", reason="UnexpectedAdmissionError", message="Pod was rejected: not of a manager"),
    ]
    events = [{"reason": "TopologyAffinityError", "count": 7}]
    text = _text(_cluster({"n1": "single-numa-node", "n2": "none"}, pods, events))
    assert "nodes         2: v1.36.2 (2)" in text
    assert "policies      none (1), single-numa-node (1)" in text
    assert "refused pods  TopologyAffinityError (2)" in text
    assert "2 of namespace team-a on node n1" in text
    assert "events        TopologyAffinityError (7)" in text
    assert "This cluster has the problem" in text


def test_why_a_configuration_was_not_read_is_said_and_few_tries_fail() -> None:
    asked = []
    read = _cluster(dict.fromkeys((f"n{i}" for i in range(9)), "") | {"n0": "restricted"}, [], [])

    def counted(path: str) -> Any:  # noqa: ANN401 - JSON
        asked.append(path)
        return read(path)

    text = _text(counted)
    assert (
        "policies      restricted (1); of 8 nodes not read\n              kubectl says: nodes 'n1' is forbidden" in text
    )
    assert sum(path.endswith("/configz") for path in asked) == 1 + MAX_FAULTS


@pytest.mark.parametrize(
    ("policies", "sentence"),
    [
        ({"n1": "single-numa-node", "n2": "restricted", "n3": "none"}, "can have the problem: 2 kubelets can refuse"),
        ({"n1": "none", "n2": "best-effort"}, "does not have the problem"),
        ({"n1": "none", "n2": ""}, "Not known"),
        ({}, "Not known: the cluster has no nodes."),
    ],
)
def test_without_refused_pods_the_policies_decide(policies: Mapping[str, str], sentence: str) -> None:
    text = _text(_cluster(policies, [], []))
    assert sentence in text
    assert "has the problem" not in text


def test_reads_are_limited_and_what_is_left_out_is_said() -> None:
    asked: list[str] = []

    def endless(path: str) -> Any:  # noqa: ANN401 - JSON
        asked.append(path)
        if path.endswith("/configz"):
            return {"kubeletconfig": {"topologyManagerPolicy": "none"}}
        return {"metadata": {"continue": "more"}, "items": [_node(f"n{len(asked)}-{i}") for i in range(10)]}

    text = _text(endless)
    lists = [path for path in asked if "limit=" in path]
    assert len(lists) <= 6 * MAX_PAGES
    assert all(f"limit={PAGE}" in path for path in lists)
    assert len(asked) - len(lists) == MAX_CONFIGS
    assert "there are more nodes, failed pods or events" in text
    assert f"of {10 * MAX_PAGES - MAX_CONFIGS} nodes not read" in text


@pytest.mark.parametrize("junk", [[], None, 3, {"items": 3}, {"items": [3, {}, {"metadata": 1}], "metadata": []}])
def test_a_reply_of_another_form_is_no_traceback(junk: object) -> None:
    assert _text(lambda _: junk).startswith("nodes ")


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_cluster_is_read_with_kubectl_and_not_changed(run: Run, tmp_path: Path) -> None:
    with FakeApiServer() as server:
        server.nodes.create(_node("n1"))
        server.pods.create(_failed("a"))
        server.events.create({
            "metadata": {"name": "a.1", "namespace": "team-a"}, "reason": "TopologyAffinityError", "count": 3,
        })  # fmt: skip
        before = server.store.revision
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }  # fmt: skip
        (tmp_path / "config").write_text(yaml.safe_dump(config))
        text = run("doctor", "--kubeconfig", str(tmp_path / "config")).stdout
        assert server.store.revision == before
        refused = run("doctor", "--kubeconfig", str(tmp_path / "config"), "--context", "other", code=1)
    assert "refused pods  TopologyAffinityError (1)" in text
    assert "events        TopologyAffinityError (3)" in text
    assert "policies      none could be read" in text
    assert "This cluster has the problem" in text
    assert 'context "other" does not exist' in refused.output


def test_without_kubectl_it_says_what_needs_none(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "kubectl is not installed. --root and --report need no kubectl." in run("doctor", code=1).output


def test_the_files_of_a_node_say_the_same_as_its_report(run: Run, tmp_path: Path) -> None:
    root = tmp_path / "node-a"
    write_node(root, BUSY)
    (tmp_path / "report.json").write_bytes(orjson.dumps(report_of(BUSY)))
    from_files = run("doctor", "--root", str(root), "--kubelet-version", "v1.36.2").stdout
    from_report = run("doctor", "--report", str(tmp_path / "report.json")).stdout
    for text in (from_files, from_report):
        assert "free CPUs     14 for exclusive use: 6 + 8" in text
        assert "This node has the problem: 14 CPUs are free" in text
        assert "TopologyAffinityError" in text
        assert "A pod of 8 CPUs is accepted" in text
    unknown = run("doctor", "--root", str(root)).stdout
    assert "node          node-a: kubelet unknown, " in unknown
    assert "Not known" in unknown
    assert "None" not in unknown


@pytest.mark.parametrize(
    ("configuration", "workloads", "sentence"),
    [
        ({"topologyManagerPolicy": "best-effort", "memoryManagerPolicy": "None"}, [], "does not have the problem"),
        ({"topologyManagerPolicy": "none", "memoryManagerPolicy": "None"}, [], "does not have the problem"),
        ({"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicy": "none"}, [], "can have the problem"),
        ({}, [Workload(name="w", copies=2, resources={"cpu": 8, "memory": "2Gi"})], "has the problem"),
    ],
)
def test_the_policy_and_the_free_cpus_of_a_node_decide(
    run: Run, tmp_path: Path, configuration: dict[str, Any], workloads: list[Workload], sentence: str
) -> None:
    (tmp_path / "report.json").write_bytes(orjson.dumps(report_of(sample("n", workloads=workloads, **configuration))))
    assert sentence in run("doctor", "--report", str(tmp_path / "report.json")).stdout


WHOLE_CORES: dict[str, Any] = {
    "topologyManagerPolicy": "none", "memoryManagerPolicy": "None",
    "cpuManagerPolicyOptions": {"full-pcpus-only": "true"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("configuration", "pod", "cause"),
    [
        (WHOLE_CORES, pod_of(3), "2 nodes: CPU requests that are not a multiple"),
        ({"topologyManagerPolicy": "none"}, pod_of(2, "16Gi"), "2 nodes: Memory is pinned to NUMA nodes"),
        ({"topologyManagerPolicy": "best-effort"}, pod_of(2, "16Gi"), "2 nodes: best-effort refuses no pod, but"),
    ],
)
def test_a_setting_with_which_the_replay_refuses_a_pod_is_a_cause(
    run: Run, tmp_path: Path, configuration: dict[str, Any], pod: Json, cause: str
) -> None:
    workloads = [Workload(name="w", copies=2, resources={"cpu": 2, "memory": "20Gi"})]
    report = report_of(sample("n", workloads=workloads, **configuration))
    (tmp_path / "report.json").write_bytes(orjson.dumps(report))
    (tmp_path / "pod.json").write_bytes(orjson.dumps(pod))
    options = ("--report", str(tmp_path / "report.json"))

    def read(path: str) -> Any:  # noqa: ANN401 - JSON
        if path.endswith("/configz"):
            return {"kubeletconfig": report["kubelet"]}
        return {"items": [_node("n1"), _node("n2")] if path.startswith("/api/v1/nodes?") else []}

    assert "1 refused" in run("what-if", "-f", str(tmp_path / "pod.json"), *options).stdout
    cluster, node = _text(read), run("doctor", *options).stdout
    assert cause in cluster
    assert "This cluster can have the problem: 2 kubelets can refuse" in cluster
    assert cause.removeprefix("2 nodes: ") in node
    assert "This node can have the problem" in node


def test_a_configuration_that_is_nested_too_deep_is_no_traceback() -> None:
    deep: object = "none"
    for _ in range(200):
        deep = [deep]
    config = {"topologyManagerPolicy": "restricted", "cpuManagerPolicyOptions": deep}
    nodes = {"items": [_node("n1")]}
    text = _text(lambda path: {"kubeletconfig": config} if path.endswith("/configz") else nodes)
    assert "The policy restricted refuses pods that it cannot align." in text


def test_a_file_that_the_kubelet_would_refuse_is_named_with_the_remedy(run: Run, tmp_path: Path) -> None:
    report = report_of(BUSY)
    report["state"]["memory_manager_state"]["machineState"]["0"]["numberOfAssignments"] += 1
    report["problems"] = [{"source": "node", "path": "p", "reason": "good to know", "severity": "info"}]
    (tmp_path / "report.json").write_bytes(orjson.dumps(report))
    text = " ".join(run("doctor", "--report", str(tmp_path / "report.json")).stdout.split())
    assert "problem state.memory_manager_state.machineState.0.numberOfAssignments: " in text
    assert "before its next start, drain the node and delete the file" in text
    assert "good to know" not in text
