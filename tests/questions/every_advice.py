"""Prints the answer of every piece of advice about a small cluster, for `test_hash_seeds`."""

import sys

import orjson
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.questions.answering import answer
from extender.questions.asked import Asked, QuestionKind
from extender.questions.snapshot import Snapshot
from extender.samples.machines import GPU
from extender.samples.nodes import SampleNode, Workload
from tests.reports import pod_of, report_of, sample
from tests.subjects import judge

WORK = [
    Workload(name="w", resources={"cpu": 5, "memory": "1Gi"}, copies=3),
    Workload(name="g", resources={"cpu": 2, "memory": "1Gi", GPU: 1}),
]
QUESTIONS = {
    QuestionKind.RESIZE_CHECK: {"pod": "demo/w-0", "cpu": "6"},
    QuestionKind.RESTART_CHECK: {"kubelet": {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}},
    QuestionKind.MAKE_ROOM: {"pod": pod_of(12, "1Gi")},
    QuestionKind.DEFRAGMENT: {"pod": pod_of(12, "1Gi"), "max_moves": 2},
    QuestionKind.TUNE: {"configurations": 8},
    QuestionKind.RIGHTSIZE: {},
}


def _nodes() -> list[SampleNode]:
    """Of several kubelets, with caveats of their own; on two of them all pods have the same name."""
    gpus = {GPU: [0, 0, 1, 1]}
    nodes = [
        sample(f"node-{version}", version=f"v1.{version}.0", devices=gpus, workloads=WORK) for version in (31, 34, 38)
    ]
    large = [Workload(name="large", resources={"cpu": 7, "memory": "1Gi"}, copies=2)]
    return [*nodes, sample("other", topologyManagerPolicy="restricted", workloads=large)]


def _report(node: SampleNode) -> dict[str, object]:
    report = report_of(node)
    alike = [{**pod, "name": "w-0"} for pod in report["pods"]]
    return {**report, "pods": alike if node.name > "node-31" else report["pods"]}


def main() -> None:
    """One line for each."""
    service = make_service(Settings(question_workers=0))
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        for node in _nodes():
            client.put(f"/v1/nodes/{node.name}/report", json=_report(node)).raise_for_status()
        snapshot = Snapshot.of(list(service.known.nodes), service.surroundings)
    for kind, question in QUESTIONS.items():
        asked = Asked(kind=kind, body=orjson.dumps(question), media_type="application/json")
        sys.stdout.buffer.write(b"".join(answer(asked, snapshot, judge())) + b"\n")


if __name__ == "__main__":
    main()
