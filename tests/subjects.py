"""Nodes of questions, for tests."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from extender.cluster.node import NodeRecord
from extender.cluster.node_class import ClassTable
from extender.kube.pods import PodDecoder
from extender.questions.node_context import LookUp, NodeContext, Subject, WatchedPod
from extender.questions.node_context import subject_of as subject_with
from extender.replay.possible_states import PossibleStates
from extender.samples.nodes import SampleNode
from extender.scheduling.judge import BoundedJudge, Judge
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.node_totals import node_allocatable
from extender.scheduling.ranking.strategies import Weights, make_strategy

CLASSES = ClassTable()


def watched(pods: Iterable[Mapping[str, Any]]) -> list[WatchedPod]:
    """Pods on a node as the API server has them, each a second younger than the one before."""
    found = []
    for second, pod in enumerate(pods, start=1):
        metadata = {"namespace": "default", "name": f"p{second}", **pod["metadata"]}
        decoded = PodDecoder()({**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": "n"}})
        assert decoded is not None
        uid, record = decoded
        found.append(
            WatchedPod(
                uid=uid,
                api_uid=uid,
                namespace=record.namespace,
                name=record.name,
                priority=record.priority,
                created_at=second,
                started_at=second,
                terminating=False,
                manifest=record.reduced,
            )
        )
    return found


def over_after(looks: int) -> Callable[[], float]:
    """A clock of a question: no time is spent for so many looks at it, and then all of it."""
    done = count()
    return lambda: float(next(done) >= looks)


def judge() -> Judge:
    """The judge of a service with the default settings."""
    return BoundedJudge(make_strategy("least-numa", Weights.parse("")), UncertaintyPolicy())


def subject_of(node: SampleNode, *, requested_milli: Mapping[str, int] | None = None) -> Subject:
    """The sample node as it stands."""
    return Subject(
        name=node.name,
        node_class=CLASSES.hold(node.kubelet, PossibleStates((node.state,)), frozenset(), stale=False),
        states=(node.state,),
        around=NodeContext(
            allocatable_milli=node_allocatable(node.kubelet, node.state.devices), requested_milli=requested_milli
        ),
        facts={
            "pods": [
                {"uid": p["metadata"]["uid"], "namespace": p["metadata"]["namespace"], "name": p["metadata"]["name"]}
                for p in node.pods
            ]
        },
    )


def live(record: NodeRecord, look_up: LookUp) -> Subject:
    """A live node in its current state."""
    subject = subject_with(record.name, record.node_class, record.state, look_up(record.name))
    return replace(subject, facts=record.observation.facts)
