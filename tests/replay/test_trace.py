"""The trace tells the whole story of one admission, as data, and costs nothing where nobody asks."""

from typing import Any

from extender.kubelet.admission import admit
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import (
    NO_TRACE,
    Allocated,
    HintRecord,
    HintsOffered,
    Merged,
    RecordingTrace,
    Rejected,
    TraceEvent,
)
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import devices_from_json, kubelet_config_from_json, machine_from_json


class _Deaf:
    """Fails when anything is told."""

    listening = False

    def record(self, event: TraceEvent) -> None:
        raise AssertionError(event)


def _node(**kubelet: Any) -> tuple[Kubelet, ManagerState]:
    machine = {
        "cpus": [[c, c, c // 4, c // 4, None] for c in range(8)],
        "numa": [{"id": i, "memory": 1 << 34, "hugepages": {}, "distances": []} for i in range(2)],
    }
    config = {"cpuManagerPolicy": "static", "reservation": {"cpu": "1"}, **kubelet}
    running = start(machine_from_json(machine), kubelet_config_from_json("1.36", config))
    gpus = [{"id": "gpu-0", "numa": [1], "healthy": True}, {"id": "gpu-1", "numa": [1], "healthy": True}]
    return running, initial_state(running, devices_from_json({"a.example/gpu": gpus}))


def _request(kubelet: Kubelet, **amounts: str) -> PodRequest:
    amounts = {"memory": "1Gi", **amounts}
    container = {"name": "app", "resources": {"requests": amounts, "limits": amounts}}
    return resolve(pod_from_json({"metadata": {"uid": "u"}, "spec": {"containers": [container]}}), kubelet.rules)


def test_an_admission_told_from_hints_to_allocation() -> None:
    kubelet, state = _node(topologyManagerPolicy="single-numa-node")
    trace = RecordingTrace()

    admit(kubelet, state, _request(kubelet, cpu="2", **{"a.example/gpu": "1"}), trace)

    assert trace.events == [
        HintsOffered(
            container="app",
            provider="device",
            resource="a.example/gpu",
            wanted=1,
            hints=(HintRecord(0b10, preferred=True),),
            minimum_width=1,
        ),
        HintsOffered(
            container="app",
            provider="cpu",
            resource="cpu",
            wanted=2,
            hints=(HintRecord(0b01, True), HintRecord(0b10, True), HintRecord(0b11, False)),  # noqa: FBT003
            minimum_width=1,
        ),
        Merged(
            container="app",
            policy="single-numa-node",
            affinity=0b10,
            preferred=True,
            admitted=True,
            why="preferred by all",
        ),
        Allocated(container="app", provider="device", taken="a.example/gpu: gpu-0"),
        Allocated(container="app", provider="cpu", taken="CPUs 4-5"),
    ]


def test_a_refusal_told_up_to_where_it_broke() -> None:
    kubelet, state = _node(topologyManagerPolicy="restricted", topologyManagerScope="pod")
    trace = RecordingTrace()

    verdict = admit(kubelet, state, _request(kubelet, cpu="4", **{"a.example/gpu": "3"}), trace).verdict

    assert isinstance(verdict, Rejected)
    assert (verdict.provider, verdict.resource, verdict.wanted) == ("device", "a.example/gpu", 3)
    offers = [e for e in trace.events if isinstance(e, HintsOffered)]
    assert [(e.container, e.resource, e.hints) for e in offers] == [
        (None, "a.example/gpu", ()),
        (None, "cpu", (HintRecord(0b10, True), HintRecord(0b11, False))),  # noqa: FBT003
    ]
    assert isinstance(trace.events[-1], Merged)
    assert not trace.events[-1].admitted


def test_nothing_is_told_to_those_who_do_not_listen() -> None:
    kubelet, state = _node(topologyManagerPolicy="best-effort")
    request = _request(kubelet, cpu="2", **{"a.example/gpu": "1"})

    told = admit(kubelet, state, request, _Deaf())  # type: ignore[arg-type]

    assert told == admit(kubelet, state, request, NO_TRACE)
