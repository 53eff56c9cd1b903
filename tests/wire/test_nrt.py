"""Objects of NodeResourceTopology: what ours carry, what those of others tell, and what is refused."""

import base64
import contextlib
import gzip
import lzma
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from extender.kubelet.rules import NEWEST_MINOR
from extender.replay.counts import ZoneCounts
from extender.wire.errors import WireError
from extender.wire.nrt import OURS, REPORT, Published, counted, published_from_json, unpack_report
from extender.wire.reports import read_report
from node_exporter.report import NodeReport, ReportedContainer, ReportedPod
from node_exporter.sinks.nrt import LEFT_OUT, SPARED, to_nrt
from tests.reports import report_of, sample

GPU = "vendor.example/gpu"
BODY = orjson.dumps(report_of(sample(devices={GPU: [0, 1]})))
OF_OURS: NodeReport = TypeAdapter(NodeReport).validate_json(BODY)


def zone(name: str, kind: str = "Node", **available: object) -> dict[str, Any]:
    resources = [
        {"name": resource.replace("__", "/"), "capacity": "8", "allocatable": 8, "available": amount}
        for resource, amount in available.items()
    ]
    return {"name": name, "type": kind, "resources": resources}


def theirs(*zones: dict[str, Any], manager: str = "nfd-master", **attributes: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "n1", "managedFields": [{"manager": manager}]},
        "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
        "zones": list(zones),
    }


def unknown(_name: str) -> str:
    return ""


def test_our_object_is_the_report() -> None:
    published = published_from_json(to_nrt(OF_OURS))

    read = read_report(unpack_report(published, 1 << 20))
    pushed = read_report(BODY)
    assert read.kubelet is not None
    assert pushed.kubelet is not None
    assert read.kubelet.identity == pushed.kubelet.identity
    assert read.state == pushed.state
    assert (published.node_name, published.zones) == ("node-a", ())


def test_a_large_report_is_carried_without_what_the_replay_does_not_read() -> None:
    pods = [
        ReportedPod(
            namespace="d",
            name=f"p{i}",
            uid=f"u{i}",
            counted=True,
            containers=[ReportedContainer(name=f"c{i}", cpus=[i])],
        )
        for i in range(200)
    ]
    large = replace(OF_OURS, pods=pods)
    size = len(to_nrt(large)["metadata"]["annotations"][REPORT])  # type: ignore[index]
    content: dict[str, Any] = to_nrt(large, max_carried_chars=size - 1)

    read = read_report(unpack_report(published_from_json(content), 1 << 20))
    assert content["metadata"]["annotations"][LEFT_OUT] == SPARED
    assert read.state == read_report(BODY).state
    assert read.facts.pods is not None
    assert [pod.uid for pod in read.facts.pods] == [pod.uid for pod in pods]


def test_our_object_without_the_report_is_counts() -> None:
    published = published_from_json(to_nrt(OF_OURS, max_carried_chars=10) | {"zones": [zone("node-0", cpu="3")]})

    counts = counted(published, lambda _name: "v1.30.1").counts
    assert (counts.policy, counts.scope, counts.cpu_static) == ("single-numa-node", "container", True)
    assert counts.rules.minor == 30
    assert counts.zones == (ZoneCounts(numa=(0,), cpus=3),)


def test_zones_of_others_are_read_in_any_order_and_notation() -> None:
    content = theirs(
        zone("node-10", cpu=4, memory="1Gi", vendor__gpu=2),
        zone("balloon-1", "balloon", cpu="99"),
        zone("numa-node-0", cpu="99"),
        zone("node-2", cpu="2000m"),
        zone("node-2-10", "NodeGroup", vendor__gpu="1"),
        topologyManagerPolicy="single-numa-node",
        topologyManagerScope="pod",
    )

    told = counted(published_from_json(content), unknown)

    assert told.counts.zones == (
        ZoneCounts(numa=(2,), cpus=2),
        ZoneCounts(numa=(2, 10), devices=(("vendor/gpu", 1),)),
        ZoneCounts(numa=(10,), cpus=4, devices=(("vendor/gpu", 2),)),
    )
    assert (told.counts.publisher, told.counts.devices_current, told.counts.cpu_static) == ("nfd-master", False, True)
    assert told.counts.rules.minor == NEWEST_MINOR
    assert orjson.dumps(told.facts)


def test_devices_of_our_own_counts_are_current() -> None:
    assert counted(published_from_json(theirs(zone("node-0", cpu=1), manager=OURS)), unknown).counts.devices_current


def test_no_allocatable_cpu_means_that_none_are_given_out() -> None:
    idle = zone("node-0", cpu=0)
    idle["resources"][0]["allocatable"] = "0"

    assert not counted(published_from_json(theirs(idle)), unknown).counts.cpu_static
    assert counted(published_from_json(theirs(idle, cpuManagerPolicy="static")), unknown).counts.cpu_static


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ({"metadata": {"name": "n1"}}, "zones"),
        (theirs(zone("node-0", cpu="-1")), "not a quantity"),
        (theirs(zone("node-0", cpu="lots")), "not a quantity"),
        (theirs(zone("node-0", cpu=1), zone("node-0", cpu=1)), "duplicate"),
        (theirs(zone("node-64", cpu=1)), "above 63"),
        (theirs(zone("node-0", cpu=1.5)), "available"),
    ],
)
def test_half_an_object_is_none(content: dict[str, Any], fault: str) -> None:
    with pytest.raises(WireError, match=fault):
        published_from_json(content)


def test_an_object_without_numa_nodes_tells_nothing() -> None:
    published = published_from_json(theirs(zone("reserved", "balloon", cpu="4"), manager="nri-resource-policy"))

    with pytest.raises(WireError, match="none is a NUMA node"):
        counted(published, unknown)


def carrying(text: str) -> Published:
    return published_from_json({"metadata": {"name": "n1", "annotations": {REPORT: text}}, "zones": []})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("%%%", "not gzip or xz in base64"),
        (base64.b64encode(b"plain").decode(), "not gzip or xz"),
        (base64.b64encode(gzip.compress(bytes(8 << 20))).decode(), "unpacks to more than 1048576 bytes"),
        (base64.b64encode(gzip.compress(BODY)[:-4]).decode(), "truncated"),
        (base64.b64encode(gzip.compress(BODY) * 2).decode(), "trailing bytes"),
        (base64.b64encode(lzma.compress(bytes(8 << 20), preset=1)).decode(), "unpacks to more than 1048576 bytes"),
        (base64.b64encode(lzma.compress(BODY)[:-4]).decode(), "truncated"),
        (base64.b64encode(lzma.compress(BODY, preset=9)).decode(), "[Mm]emory"),
    ],
)
def test_a_carried_report_is_somebody_elses_input(text: str, fault: str) -> None:
    with pytest.raises(WireError, match=fault):
        unpack_report(carrying(text), 1 << 20)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "annotations", "name", "type", "zones", "resources", "value", "available",
                             "allocatable", "attributes", "managedFields", "manager", "fieldsV1", REPORT]),
            below | st.sampled_from(["node-0", "Node", "NodeGroup", "cpu", "1", "node-0-1"]),
            max_size=5,
        )
    ),
    max_leaves=24,
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(content=st.dictionaries(st.sampled_from(["metadata", "zones", "attributes"]), JSON))
def test_any_object_is_read_or_refused(content: dict[str, Any]) -> None:
    with contextlib.suppress(WireError):
        published = published_from_json(content)
        if published.carried:
            unpack_report(published, 1000)
        else:
            counted(published, unknown)
