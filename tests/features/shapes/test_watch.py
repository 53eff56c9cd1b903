"""The ConfigMap is watched, and what it declares is on the page of metrics and in the answer."""

from pathlib import Path

from tests.contract.live import cluster
from tests.reports import report_of, sample
from tests.waiting import until


def test_shapes_follow_the_config_map(tmp_path: Path) -> None:
    settings = {"shapes": "on", "question_workers": 0}
    with cluster(tmp_path, "a", **settings) as (server, _service, client):
        client.report(report_of(sample("a")))
        metadata = {"name": "numa-extender-shapes", "namespace": "numa-extender"}
        data = {"large": "requests: {cpu: 14, memory: 4Gi}\ncopies: 3", "bad": "requests: 1"}
        server.config_maps.create({"metadata": metadata, "data": data})
        server.config_maps.create({"metadata": {**metadata, "name": "another"}, "data": {"x": data["large"]}})

        until(lambda: [each["fits"] for each in client.call("GET", "/v1/shapes")[1]["shapes"]] == [2])
        reply = client.call("GET", "/v1/shapes")[1]
        page = client.call("GET", "/metrics")[1].decode()
        assert [(each["name"], each["missing"]) for each in reply["shapes"]] == [("large", 1)]
        assert reply["unread"].keys() == {"bad"}
        assert "numa_extender_unreadable_shapes 1.0" in page

        server.config_maps.delete("numa-extender-shapes", "numa-extender")
        until(lambda: client.call("GET", "/v1/shapes")[1]["shapes"] == [])
