"""What the page is shown: the demo's sample cluster as its exporters would report it, and clusters of any size."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx

from extender.api.service import Service
from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.identity import EVERYTHING
from extender.questions.node_context import NodeContext
from extender.samples.nodes import SampleNode, sample_cluster
from tests.reports import report_of, sample
from tests.waiting import A_DAY, PATIENCE_SECONDS
from tests.world.exporters import report_all

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
"""A name that would take over a page that puts names into HTML."""


@contextmanager
def demo_cluster() -> Iterator[str]:
    """The URL of an extender that holds the sample cluster."""
    service = _service()
    with serving(service) as url:
        report(url, *map(report_of, sample_cluster()))
        yield url


@contextmanager
def large_cluster(size: int) -> Iterator[str]:
    """The same nodes again and again under other names, *size* in all; they are not reported one by one.

    Each node has the label of a pool, but those like `plain-a` have none.
    """
    service = _service()
    service.surroundings.use(_Labels())
    with serving(service) as url:
        report(url, *map(report_of, sample_cluster()))
        shapes = [record.observation for record in service.known.nodes]
        for number in range(size - len(shapes)):
            shape = shapes[number % len(shapes)]
            name = f"rack{number // 40:03}-{shape.node_name}-{number:05}"
            service.known.nodes.observe(replace(shape, node_name=name), service.clock())
        yield url


@contextmanager
def hostile_cluster() -> Iterator[str]:
    """One node whose pods, containers and problems have names that are markup; two report too little, or no state."""
    with serving(_service()) as url:
        lost = {**report_of(sample("lost")), "state": {}}
        report(url, _hostile(sample("hostile", version="v1.36.2")), _bare(sample("bare")), lost)
        yield url


def report(url: str, *documents: Mapping[str, Any]) -> None:
    """Send reports as exporters do."""
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS) as client:
        report_all(client, *documents)


def _hostile(node: SampleNode) -> Mapping[str, Any]:
    document = report_of(node)
    uid = HOSTILE
    document["state"]["cpu_manager_state"]["entries"] = {uid: {HOSTILE: "2-3"}}
    document["state"]["cpu_manager_state"]["defaultCpuSet"] = "0-1,4-31"
    document["pods"] = [{"namespace": HOSTILE, "name": HOSTILE, "uid": uid, "counted": True, "containers": []}]
    document["problems"] = [{"source": HOSTILE, "path": HOSTILE, "reason": HOSTILE, "severity": "warning"}]
    return document


def _bare(node: SampleNode) -> Mapping[str, Any]:
    cpus = {"capacity": 16, "allocatable": 15, "free": 7}
    zone = {"name": "node-0", "type": "Node", "numa": [0], "costs": {"node-0": 10}, "resources": {"cpu": cpus}}
    return {**report_of(node), "kubelet_version": None, "zones": [zone]}


class _Labels:
    """Node pools, as a watch of the API server's nodes would know them."""

    def __call__(self, name: str) -> NodeContext:
        pool = name.split("-")[1 if name.startswith("rack") else 0]
        return NodeContext(labels={"karpenter.sh/nodepool": pool} if pool != "plain" else {})

    def finished(self, _name: str, _uids: Collection[str]) -> Mapping[str, int]:
        return {}


def _service() -> Service:
    return make_service(Settings(port=0, loopback_scopes=EVERYTHING, stale_after_seconds=A_DAY))
