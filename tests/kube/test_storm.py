"""A storm of changes and faults together: when it is over, the watched store equals the server's truth exactly."""

from random import Random

import pytest

from extender.kube.client import KubeClient
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.k8s.store import Store
from tests.kube.watching import Consumer, followed, pod, truth
from tests.waiting import until

STEPS = 600


def change(server: FakeApiServer, random: Random, step: int) -> None:
    """One random change by a controller, a scheduler or a kubelet."""
    names = [p["metadata"]["name"] for p in server.pods.list()]
    if not names or random.random() < 0.45:
        server.pods.create(pod(f"pod-{step}", random.choice(["", "node-a", "node-b"]), cpu=str(random.randint(1, 4))))
        return
    name = random.choice(names)
    here = server.pods.get(name)
    assert here is not None
    match random.randrange(4):
        case 0:
            server.pods.delete(name, grace_seconds=random.choice([0, 30]))
        case 1 if not here["spec"].get("nodeName") and "deletionTimestamp" not in here["metadata"]:
            server.pods.bind(name, "node-c")
        case 2:
            server.pods.delete(name)
            server.pods.create(pod(name, "node-d"))
        case _:
            phase = random.choice(["Running", "Succeeded", "Failed"])
            server.pods.patch(name, {"status": {"phase": phase, "reason": random.choice([None, "Evicted"])}})


def harm(server: FakeApiServer, random: Random) -> None:
    """One random fault."""
    match random.randrange(8):
        case 0:
            server.break_streams()
        case 1:
            server.expire_streams()
        case 2:
            server.end_streams()
        case 3:
            server.compact()
            server.break_streams()
        case 4:
            server.restart()
        case 5:
            server.faults.fail(random.randint(1, 3), random.choice([429, 500, 503, 410, 401]))
        case 6:
            server.faults.drop(random.randint(1, 3), random.choice(["before", "after"]))
        case _:
            server.faults.trickle_bytes = random.choice([0, 7, 100])


@pytest.mark.parametrize("seed", range(4))
def test_the_store_equals_the_truth_after_a_storm(server: FakeApiServer, client: KubeClient, seed: int) -> None:
    random = Random(seed)
    server.faults.cut_chance = 0.03
    consumer = Consumer()

    with followed(client, consumer) as watch:
        for step in range(STEPS):
            change(server, random, step)
            if random.random() < 0.05:
                harm(server, random)
            if step % 50 == 49:  # on a fast machine the watch would not come to see the streams between
                seen = watch.status()
                server.expire_streams() if step % 200 == 199 else server.break_streams()
                until(lambda seen=seen: watch.status().streams > seen.streams)  # type: ignore[misc]
        server.faults.clear()
        until(lambda: consumer.pods == truth(server) and server.open_streams == 1)

        status = watch.status()
        assert status.objects == len(consumer.pods) > 0
        assert status.streams > 10
        assert status.lists > 2


def test_the_storm_with_lost_state(server: FakeApiServer, client: KubeClient) -> None:
    random = Random(99)
    consumer = Consumer()

    with followed(client, consumer) as watch:
        for round_ in range(4):
            for step in range(60):
                change(server, random, 1000 * round_ + step)
            if round_ % 2:
                until(lambda: watch.status().synced)
            server.restart(lose_state=True)
        for step in range(60):
            change(server, random, 9000 + step)
        until(lambda: consumer.pods == truth(server) and server.open_streams == 1)


def test_a_list_page_shows_the_snapshot_of_its_first_page() -> None:
    """The fake keeps its own promise: pages of one list are one moment, whatever happens in between."""
    with FakeApiServer() as server:
        for i in range(9):
            server.pods.create(pod(f"pod-{i}", "node-a"))
        before = server.pods.list()
        first, after, at, _ = page(server.store, "", None)
        server.pods.delete("pod-8")
        server.pods.create(pod("pod-5-more", "node-a"))
        server.pods.patch("pod-6", {"status": {"phase": "Failed"}})
        rest = []
        while after:
            items, after, _, _ = page(server.store, after, at)
            rest += items

        assert [*first, *rest] == [raw(p) for p in before]


def page(store: Store, after: str, at: int | None) -> tuple[list[bytes], str, int, int]:
    from tests.fakes.k8s.resources import PODS
    from tests.fakes.k8s.selectors import compile_selector

    return store.page(PODS, compile_selector("", "", ""), after=after, limit=4, at=at)


def raw(value: object) -> bytes:
    import orjson

    return orjson.dumps(value)
