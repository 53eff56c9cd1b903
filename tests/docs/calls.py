"""One call of each way through the extender, recorded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.identity import AccessScope
from tests.contract.live import kubeconfig
from tests.docs.tracing import Entries, Traced, tracing
from tests.fakes.apiserver import FakeApiServer
from tests.reports import args_of, pod_of, report_of, sample
from tests.waiting import until
from tests.world.scheduler import binding_of

NODE: Final = "node-a"


def record_calls(directory: Path) -> Mapping[str, Entries]:
    """Way -> what its call entered. One node, an API server, questions answered in the process.

    *directory*: for the kubeconfig.
    """
    found = {}
    with FakeApiServer(bookmark_seconds=0.2) as server:
        server.nodes.create({"metadata": {"name": NODE}})
        config = kubeconfig(directory, server.url)
        patient = Settings(
            port=0,
            question_workers=0,
            kubeconfig=config,
            filter_seconds=30,
            bind_seconds=30,
            loopback_scopes=frozenset(AccessScope),
        )
        app = Traced(make_app(make_service(patient)))
        with tracing(), TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1)) as client:
            until(lambda: client.get("/readyz").is_success)
            pod = server.pods.create(pod_of(4, "1Gi", name="solver-0"))
            for way, method, path, body in (
                ("Report", "PUT", f"/v1/nodes/{NODE}/report", report_of(sample(NODE))),
                ("Filter", "POST", "/scheduler/filter", args_of(pod, NODE)),
                ("What-if", "POST", "/v1/what-if", {"pod": pod}),
                ("Bind", "POST", "/scheduler/bind", binding_of(pod, NODE)),
            ):
                reply = client.request(method, path, json=body)
                assert reply.is_success, reply.text
                assert not reply.json().get("Error"), reply.text
                found[way] = app.entries
    return found
