"""Filter, prioritize, bind and reports of a service without any feature; `test_listed` runs it in a copy."""

from fastapi.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.features.listed import LISTED
from extender.scheduling.binder import Binding, BindOutcome, GatedBinder, PodBound, Unelected
from tests.reports import args_of, pod_of, report_of, sample

NODES = ("a", "b")


class _Api:
    def __init__(self) -> None:
        self.bound: list[str] = []

    async def bind(self, binding: Binding) -> BindOutcome:
        self.bound.append(f"{binding.name} on {binding.node_name}")
        return PodBound()


def test_pods_are_filtered_scored_and_bound() -> None:
    assert not LISTED
    api, service = _Api(), make_service(Settings(port=0, bind_wait_seconds=0.0))
    service.known.link.binder = GatedBinder(api, Unelected(), seconds=1.0)
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        for name in NODES:
            assert client.put(f"/v1/nodes/{name}/report", json=report_of(sample(name))).status_code < 300
        for number in range(7):
            pod = pod_of(14, name=f"p{number}")
            reply = client.post("/scheduler/filter", json=args_of(pod, *NODES)).json()
            fitting = reply["NodeNames"]
            if not fitting:
                break
            scores = client.post("/scheduler/prioritize", json=args_of(pod, *fitting)).json()
            assert {each["Host"] for each in scores} == set(fitting)
            metadata = pod["metadata"]
            asked = {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": metadata["uid"],
                "Node": fitting[0],
            }
            assert client.post("/scheduler/bind", json=asked).json() == {"Error": ""}
    assert len(api.bound) == 4
    assert set(reply["FailedNodes"]) | set(reply["FailedAndUnresolvableNodes"] or ()) == set(NODES)


def test_no_objector_is_asked() -> None:
    assert make_service(Settings(port=0)).scheduling.objectors == []
