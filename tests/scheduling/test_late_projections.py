"""Projections that take long are computed beside the event loop, and say what they would have said at once."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import orjson
import pytest

from extender.app import make_service
from extender.cluster import node_projection
from extender.cluster import store as stores
from extender.cluster.events import PodGone, PodSeen
from extender.cluster.node_class import NodeClass, key_of
from extender.cluster.steps import LOOP_STEPS, LOOP_STEPS_OF_ALL
from extender.cluster.store import NodeStore
from extender.config.settings import Settings
from extender.features.deferrals.left_out import AWAIT_SECONDS, CHANGING_SECONDS
from extender.intake import observation_of
from extender.nri import state as nri_state
from extender.nri.books import Books
from extender.scheduling.binder import BindFailure, NotBound, PodBound
from extender.scheduling.judgement import Action
from extender.scheduling.objections import Filtered
from extender.scheduling.reasons import RefusalReason
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from extender.wire.scheduler import SchedulerArgs
from tests.cluster.test_search_bounds import calls_of, waiting
from tests.nri_samples import nri_report
from tests.observations import observation_of as sample_observation
from tests.reports import pod_of, sample
from tests.scheduling.test_bind import failure_of
from tests.world.clock import Clock
from tests.world.cluster import World


class Gate:
    """Runs work off the event loop, projections once it is open. `meanwhile`: what happens before each of them."""

    def __init__(self, *, is_open: bool = True) -> None:
        self.is_open = asyncio.Event()
        self.asked = 0
        self.meanwhile: Callable[[], None] = lambda: None
        if is_open:
            self.is_open.set()

    async def __call__(self, work: Callable[..., Any], /, *args: Any) -> Any:  # noqa: ANN401
        if isinstance(work, partial) and work.func is node_projection._computed_late:
            self.asked += 1
            await self.is_open.wait()
            self.meanwhile()
        return await asyncio.to_thread(work, *args)


def report(store: NodeStore, name: str = "node-a") -> None:
    body = orjson.dumps(nri_report(name))
    store.observe(observation_of(read_report(body, lambda _name: "v1.36.2"), body), 1000.0)


def bind_four(store: NodeStore, name: str = "node-a") -> None:
    """Four unlike pods that wait for their images: every order of them is followed."""
    for number in range(4):
        store.apply(PodSeen(name, waiting(number), started=False), now=1000.0)


def at_once(*names: str, change: Callable[[NodeStore], None] = bind_four) -> list[NodeClass]:
    store = NodeStore(stale_after_seconds=1e6, max_nodes=9)
    for name in names:
        report(store, name)
    change(store)
    return store.classes_of(names)


def same(one: NodeClass, other: NodeClass) -> bool:
    return key_of(one.possible) == key_of(other.possible)


def run(story: Callable[[NodeStore, Gate, Any], Awaitable[None]], *, is_open: bool) -> None:
    async def told() -> None:
        gate = Gate(is_open=is_open)
        service = make_service(Settings(question_workers=0), Clock(), offload=gate)
        report(service.known.nodes)
        await story(service.known.nodes, gate, service.judging.projections)
        await service.judging.projections.aclose()

    asyncio.run(told())


def test_the_event_loop_does_not_wait_and_the_node_is_changing_until_it_is_done() -> None:
    async def story(store: NodeStore, gate: Gate, projections: Any) -> None:  # noqa: ANN401
        bind_four(store)
        node_class: list[NodeClass] = []
        assert calls_of(lambda: node_class.extend(store.classes_of(["node-a"]))) < 10 * LOOP_STEPS
        assert not node_class[0].complete
        assert store.is_changing("node-a")
        assert not store.is_admitted("node-a", waiting(0).uid), "nothing is certain"
        gate.is_open.set()

        assert await projections.settled("node-a", 60)

        assert same(store.classes_of(["node-a"])[0], at_once("node-a")[0])
        assert store.classes_of(["node-a"])[0].complete
        assert len(projections) == 0

    run(story, is_open=False)


def test_keys_of_states_are_computed_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key takes as long as there are grants of the NRI policy. A projection compares its states by their keys."""
    threads: list[threading.Thread] = []
    key_of_books = nri_state._key_of

    def noting(books: Books) -> object:
        threads.append(threading.current_thread())
        return key_of_books(books)

    async def story(store: NodeStore, gate: Gate, projections: Any) -> None:  # noqa: ANN401
        store.apply(PodSeen("node-a", waiting(0), started=False), now=1000.0)
        assert not store.classes_of(["node-a"])[0].complete
        monkeypatch.setattr(nri_state, "_key_of", noting)
        gate.is_open.set()
        assert await projections.settled("node-a", 60)
        assert store.classes_of(["node-a"])[0].complete

        assert threads
        assert threading.current_thread() not in threads

    monkeypatch.setattr(stores, "LOOP_STEPS", 100)  # every pod in flight is then too much
    run(story, is_open=False)


def test_a_read_computes_a_limited_amount_for_all_nodes_together() -> None:
    """Seen red: an author of pods on many nodes could make one call wait for a tenth of a second."""
    names = [f"node-{i}" for i in range(40)]

    async def story(store: NodeStore, _gate: Gate, _projections: Any) -> None:  # noqa: ANN401
        for name in names:
            report(store, name)
            for number in range(2):
                store.apply(PodSeen(name, waiting(number), started=False), now=1000.0)
        store.classes_of(names)
        done = [name for name in names if not store.is_changing(name)]
        steps = sum(store.pods_of(name).projection.steps.work for name in done)

        assert 0 < len(done) < len(names)
        assert steps <= LOOP_STEPS_OF_ALL <= 20_000, "20 ms"

    run(story, is_open=False)


def test_what_happens_meanwhile_is_not_lost() -> None:
    """Seen red: with a result that counts whatever has happened since."""

    def change(store: NodeStore) -> None:
        store.apply(PodSeen("node-a", waiting(7), started=False), PodGone("node-a", waiting(0).uid), now=1000.0)

    async def story(store: NodeStore, gate: Gate, projections: Any) -> None:  # noqa: ANN401
        bind_four(store)
        store.classes_of(["node-a"])
        await asyncio.sleep(0)
        assert gate.asked == 1
        change(store)
        gate.is_open.set()

        assert await projections.settled("node-a", 60)

        def all_of_it(other: NodeStore) -> None:
            bind_four(other)
            change(other)

        assert same(store.classes_of(["node-a"])[0], at_once("node-a", change=all_of_it)[0])

    run(story, is_open=False)


def test_a_new_report_meanwhile_is_not_lost() -> None:
    async def story(store: NodeStore, gate: Gate, projections: Any) -> None:  # noqa: ANN401
        bind_four(store)
        store.classes_of(["node-a"])
        await asyncio.sleep(0)
        body = orjson.dumps(nri_report("node-a") | {"sequence": 2})
        store.observe(observation_of(read_report(body, lambda _name: "v1.36.2"), body), 1000.0)
        gate.is_open.set()

        assert await projections.settled("node-a", 60)
        assert same(store.classes_of(["node-a"])[0], at_once("node-a")[0])

    run(story, is_open=False)


def test_a_deleted_node_ends_the_wait() -> None:
    async def story(store: NodeStore, gate: Gate, projections: Any) -> None:  # noqa: ANN401
        bind_four(store)
        store.classes_of(["node-a"])
        await asyncio.sleep(0)
        store.drop_node("node-a")
        gate.is_open.set()
        assert await projections.settled("node-a", 60)

    run(story, is_open=False)


def test_outside_an_event_loop_nothing_else_waits() -> None:
    service = make_service(Settings(question_workers=0), Clock())
    report(service.known.nodes)
    bind_four(service.known.nodes)

    assert same(service.known.nodes.classes_of(["node-a"])[0], at_once("node-a")[0])


def test_a_node_that_keeps_changing_delays_itself_and_not_the_others() -> None:
    async def story(store: NodeStore, gate: Gate, projections: Any) -> None:  # noqa: ANN401
        def change() -> None:
            store.apply(PodSeen("restless", waiting(10 + gate.asked), started=False), now=1000.0)

        gate.meanwhile = change  # whenever a result comes it is too late
        report(store, "restless")
        bind_four(store, "restless")
        store.classes_of(["restless"])
        bind_four(store)
        store.classes_of(["node-a"])

        assert await projections.settled("node-a", 60)

        assert gate.asked <= 3
        assert store.is_changing("restless")

    run(story, is_open=True)


@pytest.mark.parametrize("is_open", [True, False])
def test_bind_waits_a_limited_time_and_for_this_node_only(
    is_open: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stores, "LOOP_STEPS", 100)  # every pod in flight is then too much

    async def story() -> None:
        gate = Gate(is_open=is_open)
        settings = Settings(bind_wait_seconds=0.0, filter_seconds=10.0 if is_open else 0.2, question_workers=0)
        world = World(settings=settings, offload=gate)
        store = world.service.known.nodes
        report(store)
        store.observe(sample_observation("node-b", sample("node-b")), world.clock())
        world.names = ("node-a", "node-b")
        await world.describe("here", 1)
        await world.describe("there", 1)
        outcome = await world.bind_named("here")
        assert gate.asked > 0
        if is_open:
            assert outcome == PodBound()
        else:
            assert failure_of(outcome) in (BindFailure.REFUSED, BindFailure.UNSETTLED)
            assert isinstance(outcome, NotBound)
            assert "try again" in outcome.reason
        if not is_open:
            assert store.pods_of("node-a").ledger.find("uid-here") is None, "its room is given back"
            gate.is_open.set()
        assert await world.bind_named("there", "node-b") == PodBound()

    asyncio.run(story())


def test_filter_says_that_a_node_is_changing_and_an_error_brings_the_pod_back_soon() -> None:
    """Seen red: the reason was that of pods which come or leave, and kube-scheduler could wait for five minutes."""

    async def story() -> None:
        gate = Gate(is_open=False)
        world = World(settings=Settings(question_workers=0), offload=gate)
        store = world.service.known.nodes
        report(store)
        bind_four(store)

        async def filtered(cpus: int, *names: str) -> Filtered:
            pod = pod_from_json(pod_of(cpus, name=f"pod-{cpus}"))
            return await world.service.scheduling.filter.filter(
                SchedulerArgs(pod=pod, names=("node-a", *names), nodes=None)
            )

        other = await filtered(2, "unknown")
        assert (list(other.feasible), other.error) == (["unknown"], ""), "nothing is awaited where a node is feasible"
        changing = await filtered(1)
        assert changing.refused == {"node-a": RefusalReason.CHANGING.text}
        assert changing.error.startswith(RefusalReason.CHANGING.text)
        never = await filtered(1000)
        assert never.refused == {"node-a": RefusalReason.NRI_CPUS_NEVER.text}
        assert not never.error

        world.clock.now += AWAIT_SECONDS
        assert not (await filtered(1)).error, "after a while it may preempt"

        gate.is_open.set()
        assert await world.service.judging.projections.settled("node-a", 60)
        assert RefusalReason.CHANGING.text not in (await filtered(1)).refused.values()
        await world.service.judging.projections.aclose()

    asyncio.run(story())


def test_a_node_that_never_settles_keeps_no_pod_from_preemption_on_other_nodes() -> None:
    """Seen red: each new pod got errors for 20 s because of one node, as long as that kept changing."""

    async def story() -> None:
        gate = Gate(is_open=False)
        settings = Settings(question_workers=0, unknown_nodes=Action.REFUSE)  # node-b refuses every pod
        world = World(settings=settings, offload=gate)
        store = world.service.known.nodes
        for name in ("node-a", "node-c"):
            report(store, name)
        bind_four(store)

        async def error(number: int, *names: str) -> str:
            pod = pod_from_json(pod_of(1, name=f"pod-{number}"))
            answer = await world.service.scheduling.filter.filter(SchedulerArgs(pod=pod, names=names, nodes=None))
            assert set(answer.refused) == set(names)
            return answer.error

        assert await error(0, "node-a", "node-b"), "most nodes take milliseconds"
        for number in range(1, int(2 * AWAIT_SECONDS)):
            world.clock.now += 1.0
            assert bool(await error(number, "node-a", "node-b")) is (number < CHANGING_SECONDS)
        bind_four(store, "node-c")
        assert await error(50, "node-b", "node-c"), "another node has its own time"
        assert not await error(51, "node-a", "node-b")
        gate.is_open.set()
        await world.service.judging.projections.aclose()

    asyncio.run(story())
