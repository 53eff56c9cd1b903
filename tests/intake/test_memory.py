"""What a node takes in memory."""

import pickle
import tracemalloc
from itertools import islice

import orjson

from extender.cluster.events import PodSeen
from extender.cluster.store import NodeStore
from extender.intake import observation_of
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from tests.bench.states import own_states
from tests.reports import report_of

NODES = 100
MAX_BYTES = 24_000
"""A node with 24 pods. It was 37,000 bytes with a dict for each container and with lists of pods as objects."""
MAX_POD_BYTES = 500
"""Beside the record of the watch. Exceeded where the request of each pod stays after a report has shown the pod."""


def test_node_with_a_state_of_its_own_takes_little_memory() -> None:
    bodies = [
        orjson.dumps({**report_of(state), "node_name": f"n{i}"})
        for i, state in enumerate(islice(own_states(), NODES + 1))
    ]
    store = NodeStore(stale_after_seconds=60, max_nodes=1000)

    def put(body: bytes) -> None:
        store.observe(observation_of(read_report(body, known=store.kubelet_with), body), 0.0)

    put(bodies.pop())  # the hardware, which all nodes share
    tracemalloc.start()
    for body in bodies:
        put(body)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held / NODES < MAX_BYTES


def test_state_of_a_report_is_the_same_in_another_process() -> None:
    node = next(own_states())
    body = orjson.dumps(report_of(node))
    state = read_report(body).state
    assert state is not None
    copy = pickle.loads(pickle.dumps(state))
    assert copy == state
    assert copy.cpu.entries == node.state.cpu.entries
    assert copy.memory.entries == node.state.memory.entries


def test_watched_pods_that_a_report_shows_take_little_memory() -> None:
    nodes = list(islice(own_states(), NODES))
    store = NodeStore(stale_after_seconds=60, max_nodes=1000)
    for i, node in enumerate(nodes):
        body = orjson.dumps({**report_of(node), "node_name": f"n{i}"})
        store.observe(observation_of(read_report(body, known=store.kubelet_with), body), 0.0)
    store.classes_of(())
    pods = [(f"n{i}", pod_from_json(pod)) for i, node in enumerate(nodes) for pod in node.pods]
    tracemalloc.start()
    for name, pod in pods:
        store.apply(PodSeen(name, pod, started=True), now=1.0)
    store.classes_of(())
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert store.pods_in_flight == 0
    assert held / len(pods) < MAX_POD_BYTES
