"""Groups of pods through the scheduler's protocol, with an API server: sizes, the gate at bind, and a restart."""

import threading
from pathlib import Path
from typing import Any

from extender.api.service import Service
from extender.wire.groups import group_of
from tests.contract.live import Client, cluster
from tests.fakes.apiserver import FakeApiServer
from tests.features.groups.gang_world import gangs_of
from tests.reports import pod_of, report_of, sample
from tests.waiting import until

Json = dict[str, Any]
NODES = ("node-a", "node-b", "node-c")
LABEL = "scheduling.x-k8s.io/pod-group"
API = "scheduling.x-k8s.io/v1alpha1"


def _members(server: FakeApiServer, group: str, count: int, cpus: int = 14) -> list[Json]:
    made = []
    for i in range(count):
        pod = pod_of(cpus, name=f"{group}-{i}")
        pod["metadata"]["labels"] = {LABEL: group}
        made.append(server.pods.create(pod))
    return made


def _group(client: Client, name: str) -> Json:
    groups = client.call("GET", "/v1/groups")[1]["groups"]
    return next((each for each in groups if each["name"] == name), {})


def _size(service: Service, pod: Json) -> int:
    """The size of the pod's group that the next filter call will see."""
    gangs, group = gangs_of(service), group_of(pod)
    assert group is not None
    return gangs.groups._within_limit(gangs.groups._stated_size(group))


def _report(client: Client, *names: str) -> None:
    for name in names:
        client.report(report_of(sample(name)))


def test_a_group_whose_size_is_in_its_object_is_bound_when_its_last_pod_has_come(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES, gangs="on", gang_apis=API) as (server, service, client):
        _report(client, *NODES)
        server.coscheduling.create({"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 3}})
        pods = _members(server, "g", 3)
        until(lambda: _size(service, pods[0]) == 3)

        (node,) = client.filter(pods[0], *NODES)["NodeNames"]
        errors: list[str] = []
        waiting = threading.Thread(target=lambda: errors.append(client.bind(pods[0], node)))
        waiting.start()
        places = [client.filter(pod, *NODES)["NodeNames"] for pod in pods[1:]]
        assert _group(client, "g")["state"] in ("holding", "open")
        waiting.join()
        assert errors == [""], "the call has waited for the others"
        assert [client.bind(pod, place) for pod, (place,) in zip(pods[1:], places, strict=True)] == ["", ""]
        until(lambda: _group(client, "g")["state"] == "placed")
        assert b'numa_extender_groups{state="placed"} 1.0' in client.call("GET", "/metrics")[1]


def test_the_answer_says_how_many_pods_fit_and_why(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", gangs="on", gang_apis=API, bind_wait_seconds=0) as (server, service, client):
        _report(client, "node-a")
        server.coscheduling.create({"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 3}})
        (pod, *_) = _members(server, "g", 3)
        until(lambda: _size(service, pod) == 3)

        reply = client.filter(pod, "node-a")

        text = "the pods of the group do not fit together now: 2 of 3 pods fit"
        assert (reply["NodeNames"], reply["FailedAndUnresolvableNodes"]) == ([], {"node-a": text})
        group = _group(client, "g")
        assert (group["state"], group["fit"], group["places"]) == ("waiting", 2, [])
        assert group["why"] == {"NUMA alignment is not possible on the node now": 1}
        (decision, *_) = client.call("GET", "/v1/decisions?pod=g-0")[1]["decisions"]
        assert "do not fit together" in str(decision)


def test_after_a_restart_the_bound_pods_of_a_group_are_known(tmp_path: Path) -> None:
    size = {"numa-extender.io/group-size": "3"}
    with cluster(tmp_path, *NODES) as (server, _, client):
        _report(client, *NODES)
        pods = _members(server, "g", 3)
        for pod in pods:
            server.pods.patch(pod["metadata"]["name"], {"metadata": {"annotations": size}})
        server.pods.bind("g-0", "node-a")
        server.pods.bind("g-1", "node-b")
        before = server.pods.list()
    with cluster(tmp_path, *NODES, gangs="on") as (server, _service, client):
        for pod in before:
            server.pods.create(pod)
        _report(client, *NODES)
        until(lambda: len(_group(client, "g").get("places", [])) == 2)
        last = next(pod for pod in before if pod["metadata"]["name"] == "g-2")

        assert _group(client, "g")["state"] == "open"
        (node, *_) = client.filter(last, *NODES)["NodeNames"]
        assert client.bind(last, node) == "", "it is not planned as the first pod of a new group"
        until(lambda: _group(client, "g")["state"] == "placed")


def test_two_groups_race_over_http_and_one_is_placed(tmp_path: Path) -> None:
    """Room for 6 pods; two threads bring groups of 4, and try again until one of them is placed."""
    settings = {"gangs": "on", "gang_apis": API, "bind_wait_seconds": 3.0}
    with cluster(tmp_path, *NODES, **settings) as (server, service, client):
        _report(client, *NODES)
        for name in "xy":
            server.coscheduling.create({"metadata": {"name": name, "namespace": "default"}, "spec": {"minMember": 4}})
        pods = {name: _members(server, name, 4) for name in "xy"}
        until(lambda: all(_size(service, pods[name][0]) == 4 for name in "xy"))
        bound: dict[str, list[str]] = {"x": [], "y": []}

        def bring(name: str) -> None:
            offered = [client.filter(pod, *NODES)["NodeNames"] for pod in pods[name]]
            bound[name] = [client.bind(pod, names[0]) for pod, names in zip(pods[name], offered, strict=True) if names]

        threads = [threading.Thread(target=bring, args=(name,)) for name in "xy"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        placed = sorted(sum(not error for error in errors) for errors in bound.values())
        assert placed == [0, 4], bound
        assert sorted(_group(client, name)["state"] for name in "xy") == ["placed", "waiting"]


def test_the_first_pod_of_a_job_set_is_planned_with_the_templates_of_the_others(tmp_path: Path) -> None:
    """A driver of 16 CPUs and three workers of 6: copies of the driver do not fit."""
    with cluster(tmp_path, *NODES, gangs="on", gang_apis="jobset.x-k8s.io/v1alpha2") as (server, service, client):
        _report(client, "node-a", "node-b")
        jobs = [
            {"name": name, "replicas": count, "template": {"spec": {"template": {"spec": pod_of(cpus)["spec"]}}}}
            for name, count, cpus in (("driver", 1, 16), ("workers", 3, 6))
        ]
        document = {"metadata": {"name": "j", "namespace": "default"}, "spec": {"replicatedJobs": jobs}}
        server.job_sets.create(document)
        pod = pod_of(16, name="j-driver-0")
        pod["metadata"]["labels"] = {
            "jobset.sigs.k8s.io/jobset-name": "j", "jobset.sigs.k8s.io/replicatedjob-name": "driver"
        }  # fmt: skip
        pod = server.pods.create(pod)
        until(lambda: _size(service, pod) == 4)

        assert len(client.filter(pod, "node-a", "node-b")["NodeNames"]) == 1
        assert _group(client, "j")["held"] == 4
