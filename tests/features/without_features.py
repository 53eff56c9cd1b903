"""Filter, prioritize, bind and reports of a service without any feature; `test_listed` runs it in a copy."""

from fastapi.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.features.listed import LISTED
from tests.reports import args_of, pod_of, report_of, sample
from tests.world.cluster import Answers, gate
from tests.world.exporters import report_all
from tests.world.scheduler import binding_of

NODES = ("a", "b")


def test_pods_are_filtered_scored_and_bound() -> None:
    assert not LISTED
    api, service = Answers(), make_service(Settings(port=0, bind_wait_seconds=0.0))
    service.known.link.binder = gate(api)
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        report_all(client, *(report_of(sample(name)) for name in NODES))
        for number in range(7):
            pod = pod_of(14, name=f"p{number}")
            reply = client.post("/scheduler/filter", json=args_of(pod, *NODES)).json()
            fitting = reply["NodeNames"]
            if not fitting:
                break
            scores = client.post("/scheduler/prioritize", json=args_of(pod, *fitting)).json()
            assert {each["Host"] for each in scores} == set(fitting)
            assert client.post("/scheduler/bind", json=binding_of(pod, fitting[0])).json() == {"Error": ""}
    assert len(api.bindings) == 4
    assert set(reply["FailedNodes"]) | set(reply["FailedAndUnresolvableNodes"] or ()) == set(NODES)


def test_no_objector_is_asked() -> None:
    assert make_service(Settings(port=0)).scheduling.objectors == []
