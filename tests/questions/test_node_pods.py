"""The pods of a node, for advice: each knows the group that filter and bind would see."""

from dataclasses import replace
from typing import Any

import pytest

from extender.questions.node_pods import pods_of
from extender.wire.groups import CONVENTIONS, GROUP, group_of
from tests.reports import pod_of, sample
from tests.subjects import subject_of, watched

Json = dict[str, Any]
KEYS: list[tuple[Json, Json, Json]] = [
    ({}, {GROUP: "g"}, {}),
    ({}, {}, {"schedulingGroup": {"podGroupName": "g"}}),
    ({}, {}, {"workloadRef": {"name": "g", "podGroup": "p"}}),
    *(({key: "g"}, {each.only_with: "t"} if each.only_with else {}, {}) for each in CONVENTIONS for key in each.labels),
    *(({}, {key: "g", each.only_with or "other": "t"}, {}) for each in CONVENTIONS for key in each.annotations),
]
"""Labels, annotations and parts of the spec of one pod for each name of a group."""


@pytest.mark.parametrize(("labels", "annotations", "spec"), KEYS)
def test_advice_knows_every_group_that_scheduling_knows(labels: Json, annotations: Json, spec: Json) -> None:
    pod = pod_of(2, name="member")
    pod["metadata"] |= {"labels": labels, "annotations": annotations, "namespace": "ml"}
    pod["spec"] |= spec
    subject = subject_of(sample("n"))
    subject = replace(subject, around=replace(subject.around, pods=watched([pod])))

    (found,) = pods_of(subject)

    expected = group_of(pod)
    assert expected is not None
    assert found.group is not None
    assert found.group.key == expected.key
