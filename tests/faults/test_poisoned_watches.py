"""Objects that a tenant may create must not blind the extender: the real program, against a real HTTP server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fakes.apiserver import FakeApiServer
from tests.faults.parts import Extender, Reporter, kubeconfig
from tests.faults.takeover import knows
from tests.plain_http import HTTP
from tests.reports import args_of, pod_of, sample
from tests.waiting import until

DEEP = b'{"f:a":' * 1100 + b"1" + b"}" * 1100
NODE = sample("n1")


@contextmanager
def running(directory: Path, server: FakeApiServer, **settings: object) -> Iterator[Extender]:
    extender = Extender(directory / "extender.log", kubeconfig=kubeconfig(directory, server.url), **settings)
    with extender, Reporter([NODE], [extender.url], interval=0.1):
        until(extender.is_ready, "readiness")
        until(lambda: knows(extender) == 1, "an exact node")
        yield extender


def on_node(name: str, cpu: int = 14, **spec: object) -> dict[str, Any]:
    made = pod_of(cpu, name=name)
    made["spec"] |= {"nodeName": "n1", **spec}
    return made


def deep_pod(name: str) -> dict[str, Any]:
    made = on_node(name, 1)
    made["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": "@deep@"}]
    return made


def takes(extender: Extender, cpu: int = 14) -> bool:
    answer = extender.post("/scheduler/filter", args_of(pod_of(cpu, name="asked"), "n1"))
    assert answer is not None
    assert answer["Error"] == ""
    return bool(answer["NodeNames"])


def unreadable(extender: Extender) -> dict[str, int]:
    reply = extender.get("/readyz")
    assert reply is not None
    found: dict[str, int] = reply.json()["unreadable_objects"]
    return found


def test_deep_objects_keep_no_pod_of_others_from_being_known(tmp_path: Path) -> None:
    """Their managed fields are nested 1,100 deep: the whole list, and every later event, could not be read."""
    with FakeApiServer(bookmark_seconds=0.2) as server:
        server.store.verbatim[b'"@deep@"'] = DEEP
        server.nodes.create({"metadata": {"name": "n1"}})
        server.pods.create(deep_pod("deep-before"))
        claim = {"spec": {"devices": {"config": [{"opaque": {"driver": "d", "parameters": "@deep@"}}]}}}
        server.claims.create({"metadata": {"name": "deep-claim", "namespace": "default"}, **claim})
        with running(tmp_path, server, dra="on") as extender:
            assert takes(extender)
            server.pods.create(deep_pod("deep-after"))
            bad = on_node("unhashable", 1, tolerations=[{"key": ["a"]}])
            server.pods.create(bad)
            server.pods.create(on_node("honest-1"))
            server.pods.create(on_node("honest-2"))
            until(lambda: not takes(extender), "the pods of others")
            until(lambda: unreadable(extender) == {"pods": 1})
            assert extender.metric('numa_extender_unreadable_objects{watch="pods"}') == 1
            assert extender.metric('numa_extender_unreadable_objects{watch="resource claims"}') == 0


def test_a_node_with_a_pod_that_cannot_be_read_is_not_exact_while_it_may_be_in_flight(tmp_path: Path) -> None:
    with FakeApiServer(bookmark_seconds=0.2) as server:
        server.nodes.create({"metadata": {"name": "n1"}})
        with running(tmp_path, server) as extender:
            wide = on_node("wide", 1)
            wide["spec"]["containers"][0]["resources"]["limits"] |= {f"example.com/r{i}": "0" for i in range(300)}
            server.pods.create(wide)
            until(lambda: knows(extender) == 0, "the doubt")
            detail = HTTP.get(f"{extender.url}/v1/nodes/n1").json()
            assert detail["certainty"] == "stale"
            (problem,) = detail["problem_list"]
            assert "uid-wide" in problem["reason"]
            assert detail["problems"] == 1
            until(lambda: unreadable(extender) == {"pods": 1})

            server.pods.delete("wide")
            until(lambda: knows(extender) == 1, "the end of the doubt")
            until(lambda: unreadable(extender) == {})


def test_bytes_without_progress_make_the_service_unready_and_nodes_stale(tmp_path: Path) -> None:
    with FakeApiServer(bookmark_seconds=0.2) as server:
        server.nodes.create({"metadata": {"name": "n1"}})
        with running(tmp_path, server, watch_silent_seconds=1.5) as extender:
            server.faults.trickle_delay, server.faults.trickle_bytes = 0.03, 1
            server.pods.create(on_node("slow"))
            until(lambda: not extender.is_ready(), "the end of readiness")
            reply = extender.get("/readyz")
            assert reply is not None
            assert "has made no progress for" in reply.text
            assert knows(extender) == 0
            server.faults.trickle_bytes = 0
            server.break_streams()
            until(extender.is_ready, "readiness")
            until(lambda: knows(extender) == 1, "an exact node")
