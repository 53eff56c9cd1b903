"""A kubelet that does not answer for longer than a restart takes, or that ends at every start: over real sockets.

Seen with a real kubelet 1.36.2, killed between the two writes of its memory manager: it refused its own state file at
117 starts, and its node stayed `exact`.
"""

from pathlib import Path
from typing import Any

from extender.samples.nodes import Workload
from tests.contract.live import Client, cluster
from tests.reports import pod_of, report_of, sample

NODES = ("node-a", "node-b")
SILENT = "the node's kubelet does not answer and may not start again"
STARTING = "the node's kubelet is starting and has not released the resources of ended pods yet"
PATH = "/v1/nodes/node-a"


class Reports:
    """Those of node-a, one after another."""

    def __init__(self, client: Client, **kubelet: Any) -> None:
        self.client, self.sequence = client, 0
        self.node = sample("node-a", workloads=[Workload(name="w", resources={"cpu": 4, "memory": "2Gi"})], **kubelet)

    def send(self, *, available: bool, seconds: float, state: dict[str, Any] | None = None, **more: Any) -> None:
        """The kubelet has answered, or not, for *seconds*. *state*: its files; None: those of the sample."""
        self.sequence += 1
        report = report_of(self.node, sequence=self.sequence)
        report["podresources"] = {
            "available": available,
            "since": report["observed_at"] - seconds,
            "certain": True,
        } | more
        self.client.report(report if state is None else {**report, "state": state})

    @property
    def certainty(self) -> str:
        """As people see it."""
        return str(self.client.call("GET", PATH)[1]["certainty"])


def test_a_silent_kubelet_gets_no_pod_at_filter_and_bind_and_people_see_why(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES) as (server, _service, client):
        client.report(report_of(sample("node-b")))
        reports = Reports(client)
        reports.send(available=True, seconds=600)
        pod = server.pods.create(pod_of(4, name="p"))
        assert client.filter(pod, *NODES)["NodeNames"] == list(NODES)

        reports.send(available=False, seconds=5)
        assert reports.certainty == "exact", "an ordinary restart"
        assert client.filter(pod, "node-a")["Error"].startswith(f"numa-extender: {STARTING}")

        reports.send(available=False, seconds=312)
        reply = client.filter(pod, *NODES)
        assert (reply["NodeNames"], reply["FailedAndUnresolvableNodes"]) == (["node-b"], {"node-a": SILENT})
        alone = client.filter(pod, "node-a")
        assert (alone["NodeNames"], alone["Error"]) == ([], ""), "an error would be tried again for ever"
        assert SILENT in client.bind(pod, "node-a")
        detail = client.call("GET", PATH)[1]
        assert (detail["certainty"], detail["problems"]) == ("stale", 1)
        assert detail["problem_list"][0]["reason"] == (
            "the kubelet has not answered for 312 s: the node counts as stale, and gets no pod that needs alignment; "
            "its log says why. If it runs, restart the exporter: it may have an old socket"
        )
        assert b'numa_extender_nodes{certainty="stale"} 1.0' in client.call("GET", "/metrics")[1]
        small = pod_of("100m", name="small")
        small["status"]["qosClass"] = "Burstable"
        small["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
        assert client.filter(small, "node-a")["NodeNames"] == ["node-a"], "no manager has a part in it"

        reports.send(available=True, seconds=600)
        assert (reports.certainty, client.bind(pod, "node-a")) == ("exact", "")


def test_a_silent_kubelet_that_aligns_nothing_gets_pods(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES) as (_server, _service, client):
        client.report(report_of(sample("node-b")))
        plain = {"cpuManagerPolicy": "none", "topologyManagerPolicy": "none", "memoryManagerPolicy": "None"}
        reports = Reports(client, **plain)
        reports.send(available=False, seconds=312)
        assert reports.certainty == "stale"
        assert client.filter(pod_of(4), *NODES)["NodeNames"] == list(NODES)


def test_exporters_and_extenders_of_different_versions_refuse_no_good_node(tmp_path: Path) -> None:
    """An exporter older than `certain` also says that the kubelet is stopped if it may not connect to its socket."""
    with cluster(tmp_path, *NODES) as (_server, _service, client):
        reports = Reports(client)
        reports.send(available=False, seconds=20, certain=False)
        assert client.filter(pod_of(4), "node-a")["Error"].startswith(f"numa-extender: {STARTING}")
        reports.send(available=False, seconds=312, certain=False)
        assert reports.certainty == "exact"
        assert client.filter(pod_of(4), "node-a")["NodeNames"] == ["node-a"]

        reports.send(available=True, seconds=312, of_a_newer_exporter={"x": 1})
        assert reports.certainty == "exact"


def test_a_kubelet_that_ends_at_every_start_is_silent_since_its_first_stop(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES) as (_server, _service, client):
        reports = Reports(client)
        reports.send(available=False, seconds=60)
        for _ in range(3):
            reports.send(available=True, seconds=1)
            assert reports.certainty == "stale"
            assert client.filter(pod_of(4), "node-a")["FailedAndUnresolvableNodes"] == {"node-a": SILENT}
            reports.send(available=False, seconds=0)
            assert reports.certainty == "stale"
        assert client.filter(pod_of(4), "node-a")["FailedAndUnresolvableNodes"] == {"node-a": SILENT}

        reports.send(available=True, seconds=11)
        assert reports.certainty == "exact"
        assert client.filter(pod_of(4), "node-a")["NodeNames"] == ["node-a"]
        reports.send(available=False, seconds=0)
        assert reports.certainty == "exact", "it had started: this is another restart"


def test_a_file_with_which_the_kubelet_would_not_start_is_named_with_the_remedy_and_no_verdict_changes(
    tmp_path: Path,
) -> None:
    """With the feature gate, a running kubelet writes such counts, and goes on from what it holds in memory."""
    with cluster(tmp_path, *NODES) as (_server, _service, client):
        reports = Reports(client, featureGates={"PodLevelResources": True, "PodLevelResourceManagers": True})
        state = report_of(reports.node)["state"]
        state["memory_manager_state"]["machineState"]["0"]["numberOfAssignments"] += 1

        reports.send(available=True, seconds=600, state=state)

        detail = client.call("GET", PATH)[1]
        assert (detail["certainty"], detail["problems"]) == ("exact", 1)
        (problem,) = detail["problem_list"]
        assert problem["path"] == "state.memory_manager_state.machineState.0.numberOfAssignments"
        assert problem["reason"] == (
            "2, but 1 blocks use the node: the kubelet does not start with this file; before its next start, drain the "
            "node and delete the file"
        )
        assert client.filter(pod_of(4), "node-a")["NodeNames"] == ["node-a"]


def test_a_node_whose_files_contradict_themselves_is_not_exact(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES) as (_server, _service, client):
        reports = Reports(client)
        state = report_of(reports.node)["state"]
        state["memory_manager_state"]["machineState"]["0"]["numberOfAssignments"] += 1
        reports.send(available=True, seconds=600, state=state)

        assert reports.certainty == "possible"
        assert b'numa_extender_nodes{certainty="possible"} 1.0' in client.call("GET", "/metrics")[1]
        (refusal,) = client.filter(pod_of(4), "node-a")["FailedAndUnresolvableNodes"].values()
        assert refusal.startswith("the node's state files contradict themselves")
