"""Which pods of a report the kubelet lists, and which hold something without being listed."""

from typing import Any

import orjson
import pytest

from extender.intake import observation_of
from extender.samples.nodes import Workload
from extender.wire.reports import read_report
from tests.reports import report_of, sample

LISTED = [{"name": "app", "cpus": [1], "memory": [], "devices": {}}]


def _observed(pods: list[dict[str, Any]] | None) -> list[bool]:
    """Whether the only pod that holds something is listed, has left, is unlisted."""
    document = report_of(sample(workloads=[Workload(name="w", resources={"cpu": 4, "memory": "1Gi"})]))
    (holder,) = document["pods"]
    document["pods"] = None if pods is None else [{**holder, **pod} for pod in pods]
    body = orjson.dumps(document)
    observation = observation_of(read_report(body), body)
    return [holder["uid"] in uids for uids in (observation.listed, observation.left, observation.unlisted)]


@pytest.mark.parametrize("pod", [{"counted": True}, {"counted": None, "containers": LISTED}])
def test_a_pod_that_the_kubelet_lists(pod: dict[str, Any]) -> None:
    assert _observed([pod]) == [True, False, False]


def test_a_pod_that_counts_no_more_has_left() -> None:
    assert _observed([{"counted": False}]) == [False, True, False]


@pytest.mark.parametrize("pods", [[{"counted": None, "name": "", "containers": []}], []])
def test_a_pod_that_only_the_state_files_know_is_unlisted(pods: list[dict[str, Any]]) -> None:
    assert _observed(pods) == [False, False, True]


@pytest.mark.parametrize("pods", [None, [{"uid": None, "counted": None, "containers": LISTED}]])
def test_where_the_list_or_a_uid_of_it_is_not_known_nothing_is_said(pods: list[dict[str, Any]] | None) -> None:
    assert _observed(pods) == [False, False, False]


def test_a_kubelet_that_starts_in_the_future_of_its_clock_has_just_started() -> None:
    """The node's clock was set back: the node would count as starting until the clock has come so far."""
    document = report_of(sample())
    document["podresources"] = {"available": True, "since": document["observed_at"] + 86_400}
    body = orjson.dumps(document)

    assert observation_of(read_report(body), body).kubelet_seconds == 0.0
