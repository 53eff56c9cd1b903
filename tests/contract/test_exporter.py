"""From a node's files, through the real exporter and real HTTP, to what filter answers."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from extender.api.service import Service
from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.exporters import PublishError, publish, serve_podresources
from extender.demo.serving import serving
from extender.kubelet.kubelet import config_identity
from extender.samples.files import write_node
from extender.samples.nodes import SampleNode, Workload
from tests.reports import args_of, pod_of, sample
from tests.waiting import PATIENCE_SECONDS

GPU = "vendor.example/gpu"
WORKLOADS = [Workload(name="a", copies=3, resources={"cpu": 4, "memory": "8Gi"}, gone=[1])]
NODES = [
    sample("plain", workloads=WORKLOADS),
    sample(
        "gpus",
        workloads=[Workload(name="g", resources={"cpu": 2, "memory": "1Gi", GPU: 1})],
        devices={GPU: [0, 0, 1]},
        topologyManagerScope="pod",
    ),
    sample("older", version="v1.29.14", memoryManagerPolicy="None"),
]


@pytest.fixture(scope="module")
def published() -> Iterator[tuple[Service, httpx.Client]]:
    """An extender that all sample nodes have reported to."""
    service = make_service(Settings(port=0))
    with ExitStack() as stack:
        root = Path(stack.enter_context(TemporaryDirectory(prefix="n-", dir="/tmp")))
        for node in NODES:
            write_node(root / node.name, node)
            stack.callback(serve_podresources(root / node.name, node).stop, None)
        url = stack.enter_context(serving(service))
        assert sorted(publish(NODES, root, url)) == sorted(node.name for node in NODES)
        yield service, stack.enter_context(httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS))


@pytest.mark.parametrize("node", NODES, ids=lambda node: node.name)
def test_the_extender_holds_exactly_the_node_that_was_written(
    published: tuple[Service, httpx.Client], node: SampleNode
) -> None:
    record = published[0].known.nodes.get(node.name)

    assert record is not None
    assert record.kubelet is not None
    assert record.state is not None
    assert record.kubelet.machine == node.kubelet.machine
    assert config_identity(record.kubelet.config) == config_identity(node.kubelet.config)
    assert record.state.key == node.state.key
    assert record.state.pod_uids == node.state.pod_uids
    assert record.observation.hidden == frozenset()


def test_nothing_is_wrong_with_a_whole_node(published: tuple[Service, httpx.Client]) -> None:
    nodes = published[1].get("/v1/nodes").raise_for_status().json()["nodes"]

    assert {node["name"]: (node["certainty"], node["problems"]) for node in nodes} == {
        node.name: ("exact", 0) for node in NODES
    }


def test_filter_goes_by_what_was_reported(published: tuple[Service, httpx.Client]) -> None:
    pod = pod_of(4, "4Gi", devices={GPU: 2})
    reply = published[1].post("/scheduler/filter", json=args_of(pod, "older", "gpus", "plain")).json()

    # `gpus` has its two free devices on different NUMA nodes; the other nodes have no such plugin at all.
    assert reply["NodeNames"] == ["older", "plain"]
    assert reply["FailedAndUnresolvableNodes"] == {"gpus": "NUMA alignment is not possible on the node now"}


def test_a_refused_report_is_told_by_the_exporter(published: tuple[Service, httpx.Client]) -> None:
    service, client = published
    with TemporaryDirectory(prefix="n-", dir="/tmp") as root:
        broken = sample("broken")
        write_node(Path(root) / broken.name, broken)
        state = Path(root) / broken.name / "var/lib/kubelet/cpu_manager_state"
        state.write_text(state.read_text().replace('"entries": {}', '"entries": {"u": 1}'))

        with pytest.raises(PublishError, match=r"cpu_manager_state\.entries"):
            list(publish([broken], Path(root), str(client.base_url)))

    assert service.known.nodes.get("broken") is None
