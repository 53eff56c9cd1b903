"""Token and access reviews: what is asked, what is believed, what is remembered."""

import pytest

from extender.kube.client import KubeClient
from extender.kube.errors import KubeError
from extender.kube.reviews import NODE_NAME, Identity, Reviews, TokenRejected
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.k8s.access import Call
from tests.world.clock import Clock

ASKED = Call("system:anonymous", "create", "authentication.k8s.io/tokenreviews", "")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reviews(server: FakeApiServer, client: KubeClient, clock: Clock) -> Reviews:
    server.access.reviews["good"] = {
        "authenticated": True,
        "audiences": ["numa-extender", "other"],
        "user": {
            "username": "system:serviceaccount:numa:exporter",
            "uid": "1",
            "groups": ["system:authenticated"],
            "extra": {NODE_NAME: ["node-a"]},
        },
    }
    return Reviews(client, clock=clock)


def test_a_bound_token_names_its_node(reviews: Reviews) -> None:
    identity = reviews.authenticate("good", audience="numa-extender")

    assert isinstance(identity, Identity)
    assert (identity.username, identity.node_name) == ("system:serviceaccount:numa:exporter", "node-a")


def test_a_token_for_somebody_else_is_rejected(reviews: Reviews) -> None:
    assert reviews.authenticate("good", audience="vault") == TokenRejected("invalid bearer token")


def test_an_authenticator_that_ignores_audiences_is_not_believed(server: FakeApiServer, reviews: Reviews) -> None:
    server.access.reviews["plain"] = {"authenticated": True, "user": {"username": "somebody"}}

    assert reviews.authenticate("plain", audience="numa-extender") == TokenRejected(
        "the token is not for audience numa-extender"
    )


@pytest.mark.parametrize("token", ["", "x" * 20_000])
def test_what_cannot_be_a_token_is_not_sent(server: FakeApiServer, reviews: Reviews, token: str) -> None:
    assert isinstance(reviews.authenticate(token), TokenRejected)
    assert server.access.calls[ASKED] == 0


def test_answers_are_remembered_for_their_time(server: FakeApiServer, reviews: Reviews, clock: Clock) -> None:
    for _ in range(5):
        reviews.authenticate("good")
        reviews.authenticate("bad")
    assert server.access.calls[ASKED] == 2

    clock.now += 11.0
    reviews.authenticate("good")
    reviews.authenticate("bad")
    assert server.access.calls[ASKED] == 3

    del server.access.reviews["good"]
    clock.now += 60.0
    assert isinstance(reviews.authenticate("good"), TokenRejected)


def test_a_server_that_cannot_be_asked_is_neither_yes_nor_remembered(server: FakeApiServer, reviews: Reviews) -> None:
    server.faults.fail(1, 500)
    with pytest.raises(KubeError):
        reviews.authenticate("good")

    assert isinstance(reviews.authenticate("good"), Identity)


def test_memory_is_bounded(reviews: Reviews) -> None:
    for i in range(50):
        reviews._rejected.put((b"%d" % i, ""), TokenRejected("x"), 60.0)
    reviews._rejected._entries.size = 10
    reviews.authenticate("bad")

    assert len(reviews._rejected) == 10


def test_access_is_what_the_server_grants(server: FakeApiServer, reviews: Reviews, clock: Clock) -> None:
    identity = reviews.authenticate("good")
    assert isinstance(identity, Identity)
    assert not reviews.allowed(identity, verb="get", path="/v1/nodes")

    server.access.permissions.add((identity.username, "get", "/v1/nodes"))
    assert not reviews.allowed(identity, verb="get", path="/v1/nodes")
    clock.now += 11.0
    assert reviews.allowed(identity, verb="get", path="/v1/nodes")
    assert not reviews.allowed(identity, verb="post", path="/v1/nodes")
