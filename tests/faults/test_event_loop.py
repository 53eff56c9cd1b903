"""While nodes of the NRI policy report and hold what takes long to follow, the liveness probe of the process passes."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import httpx
import orjson
import pytest

from tests.cluster.test_search_bounds import grants
from tests.fakes.apiserver import FakeApiServer
from tests.faults.parts import Extender, kubeconfig
from tests.nri_samples import EIGHT, nri_report, placed_pod
from tests.plain_http import HTTP
from tests.reports import args_of, pod_of, report_of, sample
from tests.waiting import A_DAY, until

PROBE_SECONDS = 5.0
"""A probe fails after this. Before there was a limit, each of the reports below blocked the process for minutes."""
PODS = 16


class Prober:
    """A kubelet that asks `/livez` all the time. `failed`: probes without an answer in time."""

    def __init__(self, url: str) -> None:
        self._url, self._stop = url, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.passed = self.failed = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            try:
                reply = HTTP.get(f"{self._url}/livez", timeout=PROBE_SECONDS)
                self.passed += reply.status_code == 200
            except httpx.TransportError:
                self.failed += 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[FakeApiServer, Extender]]:
    with ExitStack() as stack:
        server = stack.enter_context(FakeApiServer(bookmark_seconds=0.2))
        for name in ("honest", "many-grants", "waiting"):
            server.nodes.create({"metadata": {"name": name}})
        settings = {"kubeconfig": kubeconfig(tmp_path, server.url), "stale_after_seconds": A_DAY}
        extender = stack.enter_context(Extender(tmp_path / "log", **settings))
        until(extender.is_ready, "the extender")
        put(extender, report_of(sample("honest")))
        yield server, extender


def put(extender: Extender, report: dict[str, Any]) -> None:
    url = f"{extender.url}/v1/nodes/{report['node_name']}/report"
    body = orjson.dumps(report)
    assert HTTP.put(url, content=body).status_code == 200


def is_offered(extender: Extender, name: str, *others: str) -> bool:
    reply = extender.post("/scheduler/filter", args_of(pod_of(2, name=f"probe-{name}"), name, *others))
    return reply is not None and name in (reply["NodeNames"] or ())


def with_init(number: int) -> dict[str, Any]:
    """A pod unlike all others, on its node and without its image."""
    pod = placed_pod(f"p{number}", f"{200 + 10 * number}m", "64Mi")
    pod["spec"] |= {"nodeName": "waiting", "initContainers": [pod["spec"]["containers"][0] | {"name": "init"}]}
    return pod


def test_the_process_stays_alive_and_the_other_nodes_pods_are_placed(cluster: tuple[FakeApiServer, Extender]) -> None:
    server, extender = cluster
    hostile = nri_report("many-grants", hardware=EIGHT)
    hostile["nri"]["grants"] = grants(2500)
    with Prober(extender.url) as prober:
        put(extender, hostile | {"pods": []})
        assert is_offered(extender, "honest", "many-grants")
        put(extender, nri_report("waiting"))
        for number in range(PODS):
            server.pods.create(with_init(number))
        until(lambda: extender.metric("numa_extender_assumed_pods") >= PODS, "the pods in flight")
        assert is_offered(extender, "honest", "waiting", "many-grants")
        assert not is_offered(extender, "waiting", "honest"), "nothing is certain there"
        until(lambda: extender.metric("numa_extender_changing_nodes") == 0, "the end of the work beside the loop")

    assert prober.failed == 0
    assert prober.passed > 0
