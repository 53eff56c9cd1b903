"""Tokens against a real (fake) API server: what is asked, what is remembered, what happens while it is away."""

import asyncio
import base64
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import orjson
import pytest

from extender.api.access.authority import LateAuthority
from extender.app import make_service
from extender.config.settings import Settings
from extender.identity import AccessScope, Means, NotAllowedError, Principal
from extender.kube.access import plain
from extender.kube.authority import GRANTS, MAX_WAITING, TokenAuthority
from extender.kube.client import KubeClient
from extender.kube.reviews import MAX_TOKENS_OF_A_POD
from extender.observability.metrics import Metrics
from extender.runtime.api_server import connected
from extender.runtime.server import ACCEPTED_SECONDS, make_authority
from tests.fakes.apiserver import FakeApiServer
from tests.security.running import EXPORTER, token_status
from tests.waiting import until
from tests.world.clock import Clock

ACCOUNT = "system:serviceaccount:ns:exporter"


@contextmanager
def refused(status: HTTPStatus, match: str | None = None) -> Iterator[None]:
    with pytest.raises(NotAllowedError, match=match) as raised:
        yield
    assert raised.value.status is status


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as running:
        running.access.permissions |= {(who, *GRANTS[AccessScope.REPORT]) for who in (EXPORTER, ACCOUNT)}
        running.access.reviews["good"] = token_status(EXPORTER, node="node-a")
        yield running


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def authority(server: FakeApiServer, clock: Clock, metrics: Metrics) -> Iterator[TokenAuthority]:
    client = KubeClient(plain(server.url), connect_seconds=2.0)
    made = make_authority(client, Settings(review_grace_seconds=600.0, read_audiences=("api",)), metrics, clock)
    yield made
    made.close()
    client.close()


def admit(authority: TokenAuthority, token: str, scope: AccessScope = AccessScope.REPORT) -> Principal:
    return asyncio.run(authority.admit(token, scope))


def asked(server: FakeApiServer) -> int:
    return sum(count for call, count in server.access.calls.items() if call.resource.endswith("reviews"))


def jwt(**claims: float) -> str:
    payload = base64.urlsafe_b64encode(orjson.dumps(claims)).rstrip(b"=").decode()
    return f"e30.{payload}.c2ln"


def test_what_was_learned_is_known_at_once(server: FakeApiServer, authority: TokenAuthority) -> None:
    assert authority.known("good", AccessScope.REPORT) is None
    principal = admit(authority, "good")

    assert (principal.means, principal.node_name) == (Means.TOKEN, "node-a")
    assert authority.known("good", AccessScope.REPORT) == principal
    assert asked(server) == 2


def test_equal_questions_at_the_same_time_are_one(server: FakeApiServer, authority: TokenAuthority) -> None:
    server.faults.latency = 0.2

    async def many() -> list[Principal]:
        return await asyncio.gather(*(authority.admit("good", AccessScope.REPORT) for _ in range(100)))

    assert len(set(asyncio.run(many()))) == 1
    assert asked(server) == 2


def test_a_token_of_before_1_30_is_tied_to_the_node_of_its_pod(
    server: FakeApiServer, authority: TokenAuthority
) -> None:
    pod = server.pods.create({"metadata": {"name": "e-1", "namespace": "ns"}, "spec": {"nodeName": "node-c"}})
    uid = pod["metadata"]["uid"]
    server.access.reviews["old"] = token_status(ACCOUNT, pod_name="e-1", pod_uid=uid)
    server.access.reviews["of a pod that is gone"] = token_status(ACCOUNT, pod_name="e-0", pod_uid="u")
    server.access.reviews["of its namesake"] = token_status(ACCOUNT, pod_name="e-1", pod_uid="another")
    server.access.reviews["of no service account"] = token_status(EXPORTER, pod_name="e-1", pod_uid=uid)

    assert admit(authority, "old").node_name == "node-c"
    assert authority.known("old", AccessScope.REPORT) == admit(authority, "old")
    for token in ("of a pod that is gone", "of its namesake", "of no service account"):
        assert admit(authority, token).node_name not in (None, "node-c"), token


def test_an_outage_does_not_lock_out_who_was_let_in(
    server: FakeApiServer, authority: TokenAuthority, clock: Clock, metrics: Metrics
) -> None:
    admit(authority, "good")
    server.faults.fail(10_000, 503)
    clock.now += ACCEPTED_SECONDS + 599

    assert admit(authority, "good").node_name == "node-a"
    with refused(HTTPStatus.SERVICE_UNAVAILABLE):
        admit(authority, "never seen")
    clock.now += 2
    with refused(HTTPStatus.SERVICE_UNAVAILABLE):
        admit(authority, "good")
    assert metrics.reviews.labels("token", "grace")._value.get() == 1


def test_a_right_that_was_taken_away_ends_when_the_memory_of_it_does(
    server: FakeApiServer, authority: TokenAuthority, clock: Clock
) -> None:
    admit(authority, "good")
    server.access.permissions.clear()
    assert authority.known("good", AccessScope.REPORT) is not None
    clock.now += ACCEPTED_SECONDS

    with refused(HTTPStatus.FORBIDDEN, match="may not put"):
        admit(authority, "good")


@pytest.mark.parametrize("down", [False, True])
def test_no_token_outlives_its_own_end(
    server: FakeApiServer, authority: TokenAuthority, clock: Clock, *, down: bool
) -> None:
    token = jwt(exp=time.time() + 60.0)
    server.access.reviews[token] = token_status(EXPORTER, node="node-a")
    admit(authority, token)
    assert authority.known(token, AccessScope.REPORT) is not None
    del server.access.reviews[token]
    if down:
        server.faults.fail(10_000, 503)
    clock.now += 61.0
    authority._reviews._wall = lambda: time.time() + 61.0

    assert authority.known(token, AccessScope.REPORT) is None
    with refused(HTTPStatus.SERVICE_UNAVAILABLE if down else HTTPStatus.UNAUTHORIZED):
        admit(authority, token)


@pytest.mark.parametrize("token", ["", "x" * 20_000, "a.b.c", "a.e30.c", "a.W10.c", jwt(exp=-1.0), "é" * 10, "\udcff"])
def test_what_is_no_token_is_refused_and_nothing_else(authority: TokenAuthority, token: str) -> None:
    with refused(HTTPStatus.UNAUTHORIZED):
        admit(authority, token)


def test_further_audiences_are_for_reading_only(server: FakeApiServer, authority: TokenAuthority) -> None:
    server.access.reviews["prometheus"] = token_status("prometheus", audience="api", node="node-a")
    server.access.permissions |= {("prometheus", *grant) for grant in GRANTS.values()}

    assert admit(authority, "prometheus", AccessScope.METRICS).name == "prometheus"
    for scope in (AccessScope.REPORT, AccessScope.SCHEDULE):
        with refused(HTTPStatus.UNAUTHORIZED):
            admit(authority, "prometheus", scope)


def test_a_server_that_hangs_holds_up_a_bounded_number(server: FakeApiServer, authority: TokenAuthority) -> None:
    server.faults.latency = 10.0

    async def first_answers() -> list[BaseException | None]:
        names = [f"token-{i}" for i in range(MAX_WAITING + 50)]
        calls = [asyncio.ensure_future(authority.admit(name, AccessScope.READ)) for name in names]
        while not calls[-1].done():  # noqa: ASYNC110 - it knows no events
            await asyncio.sleep(0)
        answered = [call.exception() for call in calls if call.done()]
        authority.close()
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        return answered

    assert [getattr(answer, "status", answer) for answer in asyncio.run(first_answers())] == [
        HTTPStatus.SERVICE_UNAVAILABLE
    ] * 50


def pods_token(server: FakeApiServer) -> str:
    """A pod with a node and a token; returns its UID. The token is `bound`."""
    pod = server.pods.create({"metadata": {"name": "e-1", "namespace": "ns"}, "spec": {"nodeName": "node-c"}})
    uid = str(pod["metadata"]["uid"])
    server.access.reviews["bound"] = token_status(ACCOUNT, node="node-c", pod_name="e-1", pod_uid=uid)
    return uid


@pytest.mark.parametrize("down", [False, True])
def test_the_token_of_a_pod_that_is_gone_is_asked_about_again(
    server: FakeApiServer, authority: TokenAuthority, *, down: bool
) -> None:
    """Also while the API server is away: the grace is for pods that exist."""
    uid = pods_token(server)
    admit(authority, "bound")
    admit(authority, "good")
    del server.access.reviews["bound"]
    if down:
        server.faults.fail(10_000, 503)
    authority.end_pods(["of another pod"])
    assert authority.known("bound", AccessScope.REPORT) is not None
    authority.end_pods([uid])

    assert authority.known("bound", AccessScope.REPORT) is None
    assert authority.known("good", AccessScope.REPORT) is not None
    with refused(HTTPStatus.SERVICE_UNAVAILABLE if down else HTTPStatus.UNAUTHORIZED):
        admit(authority, "bound")


def test_an_answer_under_way_when_the_pod_goes_is_not_remembered(
    server: FakeApiServer, authority: TokenAuthority
) -> None:
    uid = pods_token(server)
    server.faults.latency = 0.3

    async def race() -> None:
        under_way = asyncio.ensure_future(authority.admit("bound", AccessScope.REPORT))
        await asyncio.to_thread(until, lambda: asked(server))
        authority.end_pods([uid])
        await under_way

    asyncio.run(race())
    assert authority.known("bound", AccessScope.REPORT) is None


def test_so_many_answers_for_one_pod_are_remembered(server: FakeApiServer, authority: TokenAuthority) -> None:
    uid = pods_token(server)
    tokens = [f"bound-{i}" for i in range(MAX_TOKENS_OF_A_POD + 3)]
    for token in tokens:
        server.access.reviews[token] = server.access.reviews["bound"]
        admit(authority, token)
    assert [authority.known(token, AccessScope.REPORT) is None for token in tokens] == [True] * 3 + [False] * 16
    authority.end_pods([uid])
    assert all(authority.known(token, AccessScope.REPORT) is None for token in tokens)


def test_the_watch_of_pods_ends_the_token_of_a_deleted_pod(server: FakeApiServer) -> None:
    uid = pods_token(server)

    async def story() -> None:
        settings = Settings(kubernetes="on", port=0)
        service, access = make_service(settings), plain(server.url)
        async with connected(service, access):
            await asyncio.to_thread(until, lambda: service.known.pods.get(uid).bound_to == "node-c")
            await service.authority.admit("bound", AccessScope.REPORT)
            assert service.authority.known("bound", AccessScope.REPORT) is not None
            del server.access.reviews["bound"]
            server.pods.delete("e-1", "ns")
            await asyncio.to_thread(until, lambda: service.authority.known("bound", AccessScope.REPORT) is None)
            with refused(HTTPStatus.UNAUTHORIZED):
                await service.authority.admit("bound", AccessScope.REPORT)

    asyncio.run(story())


def test_without_an_api_server_no_token_is_good() -> None:
    nobody = LateAuthority()
    assert nobody.known("x", AccessScope.READ) is None
    with refused(HTTPStatus.UNAUTHORIZED):
        asyncio.run(nobody.admit("x", AccessScope.READ))


def test_a_storm_of_bad_tokens_pushes_no_good_one_out(authority: TokenAuthority) -> None:
    admit(authority, "good")
    reviews = authority._reviews
    reviews._rejected._entries.size = reviews._identities._entries.size = 10
    for i in range(50):
        with refused(HTTPStatus.UNAUTHORIZED):
            admit(authority, f"bad-{i}")

    assert authority.known("good", AccessScope.REPORT) is not None
    assert len(reviews._rejected) == 10
