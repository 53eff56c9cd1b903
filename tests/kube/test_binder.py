"""Every way in which a binding can end."""

import asyncio
import threading
from dataclasses import replace

import pytest

from extender.kube.access import plain
from extender.kube.binder import AsyncBinder, Binder
from extender.kube.client import KubeClient
from extender.scheduling.binder import BindFailure, Binding, BindOutcome, MaybeBound, NotBound, PodBound
from tests.fakes.apiserver import FakeApiServer
from tests.kube.watching import pod


@pytest.fixture
def binder(client: KubeClient) -> Binder:
    return Binder(client, timeout_seconds=10.0)


def waiting(server: FakeApiServer, name: str = "app-0", node: str = "node-a") -> Binding:
    """A pod that waits, and its binding."""
    uid = server.pods.create(pod(name))["metadata"]["uid"]
    return Binding(namespace="default", name=name, uid=uid, node_name=node)


def node_of(server: FakeApiServer, name: str = "app-0") -> str:
    found = server.pods.get(name)
    assert found is not None
    return str(found["spec"].get("nodeName", ""))


def test_binds(server: FakeApiServer, binder: Binder) -> None:
    assert binder.bind(waiting(server)) == PodBound()
    assert node_of(server) == "node-a"


def test_annotations_of_a_binding_join_those_of_the_pod(server: FakeApiServer, binder: Binder) -> None:
    binding = replace(waiting(server), annotations={"a": "new", "c": "1"})
    server.pods.patch("app-0", {"metadata": {"annotations": {"a": "old", "b": "kept"}}})

    assert binder.bind(binding) == PodBound()
    found = server.pods.get("app-0")
    assert found is not None
    assert found["metadata"]["annotations"] == {"a": "new", "b": "kept", "c": "1"}


def test_a_second_binding_to_the_same_node_is_bound(server: FakeApiServer, binder: Binder) -> None:
    binding = waiting(server)
    binder.bind(binding)

    assert binder.bind(binding) == PodBound()


def test_a_pod_on_another_node_is_a_conflict(server: FakeApiServer, binder: Binder) -> None:
    binding = waiting(server)
    server.pods.bind("app-0", "node-b")

    assert binder.bind(binding) == NotBound("the pod is on node node-b", BindFailure.CONFLICT)
    assert node_of(server) == "node-b"


def test_a_pod_made_anew_is_never_bound(server: FakeApiServer, binder: Binder) -> None:
    binding = waiting(server)
    server.pods.delete("app-0")
    again = waiting(server)

    assert binder.bind(binding) == NotBound(f"the pod has another UID: {again.uid}", BindFailure.CONFLICT)
    assert node_of(server) == ""


def test_a_pod_being_deleted_is_a_conflict(server: FakeApiServer, binder: Binder) -> None:
    binding = waiting(server)
    server.pods.patch("app-0", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})

    outcome = binder.bind(binding)

    assert isinstance(outcome, NotBound)
    assert outcome.failure is BindFailure.CONFLICT
    assert "is being deleted" in outcome.reason


def test_a_pod_that_is_gone_is_not_found(server: FakeApiServer, binder: Binder) -> None:
    binding = waiting(server)
    server.pods.delete("app-0")

    assert binder.bind(binding) == NotBound("there is no such pod", BindFailure.NOT_FOUND)


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again(server: FakeApiServer, binder: Binder, status: int) -> None:
    binding = waiting(server)
    server.faults.fail(2, status, verb="create")

    assert binder.bind(binding) == PodBound()


def test_a_server_busy_for_longer_than_we_have_is_a_retriable_failure(server: FakeApiServer, binder: Binder) -> None:
    binding = waiting(server)
    server.faults.fail(1, 429, verb="create", retry_after=30)
    binder = Binder(KubeClient(plain(server.url)), timeout_seconds=0.5)

    outcome = binder.bind(binding)

    assert isinstance(outcome, NotBound)
    assert outcome.failure is BindFailure.FAILED


def test_a_refusal_for_good_is_not_retriable(server: FakeApiServer, binder: Binder) -> None:
    binding = waiting(server)
    server.faults.fail(1, 403, verb="create")

    outcome = binder.bind(binding)

    assert isinstance(outcome, NotBound)
    assert outcome.failure is BindFailure.FAILED


def test_a_server_error_after_which_nothing_was_done(server: FakeApiServer, binder: Binder) -> None:
    binding = waiting(server)
    server.faults.fail(1, 500, verb="create")

    outcome = binder.bind(binding)

    assert isinstance(outcome, NotBound)
    assert outcome.failure is BindFailure.FAILED


def test_a_lost_reply_after_binding_is_bound(server: FakeApiServer, binder: Binder) -> None:
    binding = waiting(server)
    server.faults.drop(1, "after", verb="create")

    assert binder.bind(binding) == PodBound()


def test_a_lost_request_may_still_be_carried_out(server: FakeApiServer, binder: Binder) -> None:
    binding = waiting(server)
    server.faults.drop(1, "before", verb="create")

    outcome = binder.bind(binding)

    assert isinstance(outcome, MaybeBound)


def test_a_server_that_vanishes_may_have_bound(server: FakeApiServer, binder: Binder) -> None:
    binding = waiting(server)
    server.faults.drop(1, "after", verb="create")
    server.faults.drop(2, "before", verb="get")

    outcome = binder.bind(binding)

    assert isinstance(outcome, MaybeBound)
    assert node_of(server) == "node-a"


def test_a_server_that_is_not_there_has_done_nothing() -> None:
    with FakeApiServer() as server:
        url = server.url
    client = KubeClient(plain(url))

    outcome = Binder(client).bind(Binding(namespace="default", name="a", uid="u", node_name="n"))

    assert isinstance(outcome, NotBound)
    assert outcome.failure is BindFailure.AWAY


def test_a_server_that_has_just_come_back_may_not_know_our_rights_yet(
    server: FakeApiServer, client: KubeClient
) -> None:
    """A kube-apiserver denies everything until it has read the RBAC rules."""
    now = [0.0]
    binder = Binder(client, clock=lambda: now[0])
    binding = waiting(server)
    server.faults.drop(1, "before", verb="create")
    assert isinstance(binder.bind(binding), MaybeBound)

    failures = []
    for seconds in (5.0, 20.0):
        now[0] = seconds
        server.faults.fail(1, 403, verb="create")
        outcome = binder.bind(binding)
        assert isinstance(outcome, NotBound)
        failures.append(outcome.failure)
    assert failures == [BindFailure.AWAY, BindFailure.FAILED]


def test_a_server_that_does_not_answer_in_time(server: FakeApiServer, client: KubeClient) -> None:
    binding = waiting(server)
    server.faults.latency = 2.0

    outcome = Binder(client, timeout_seconds=1.0).bind(binding)

    assert isinstance(outcome, PodBound | MaybeBound)


def test_of_many_racing_bindings_of_one_pod_one_node_wins(server: FakeApiServer, binder: Binder) -> None:
    first = waiting(server)
    bindings = [Binding(namespace="default", name="app-0", uid=first.uid, node_name=f"node-{i % 4}") for i in range(16)]
    outcomes: list[tuple[str, object]] = []
    threads = [threading.Thread(target=lambda b=b: outcomes.append((b.node_name, binder.bind(b)))) for b in bindings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    winner = node_of(server)
    assert all((outcome == PodBound()) == (node == winner) for node, outcome in outcomes)


def test_from_the_loop_with_a_bounded_number_of_threads(server: FakeApiServer, client: KubeClient) -> None:
    bindings = [waiting(server, f"app-{i}", f"node-{i % 5}") for i in range(100)]
    binder = AsyncBinder(Binder(client), workers=8)

    async def bind_all() -> list[BindOutcome]:
        return await asyncio.gather(*map(binder.bind, bindings))

    try:
        assert asyncio.run(bind_all()) == [PodBound()] * 100
    finally:
        binder.close()
    assert all(node_of(server, b.name) == b.node_name for b in bindings)
