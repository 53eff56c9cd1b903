"""The pods of a Workload are read as Kueue will make them, in each form of domains, and faults name their field."""

from typing import Any

import pytest

from extender.features.kueue.objects import Flavor
from extender.features.kueue.workloads import MAX_PODS, read_pod_sets
from extender.wire.errors import WireError

TOLERATION = {"key": "dedicated", "operator": "Exists"}
FLAVORS = {"a": Flavor("a", {"pool": "a"}, [TOLERATION]), "fast": Flavor("fast", {"disk": "ssd"}, [])}


def workload(**assignment: Any) -> dict[str, Any]:
    """Six pods of one pod set."""
    spec = {"containers": [], "nodeSelector": {"own": "1"}, "tolerations": [{"key": "own"}]}
    return {
        "metadata": {"name": "w", "namespace": "team"},
        "spec": {"podSets": [{"name": "main", "count": 6, "template": {"spec": spec}}]},
        "status": {"admission": {"podSetAssignments": [{"name": "main", "flavors": {"cpu": "a"}, **assignment}]}},
    }


def selectors(**assignment: Any) -> list[tuple[dict[str, str], int]]:
    (found,) = read_pod_sets(workload(**assignment), FLAVORS)
    return [(pod["spec"]["nodeSelector"], count) for pod, count in found.parts]


def domains(levels: list[str], *slices: tuple[int, list[Any], Any]) -> dict[str, Any]:
    parts = [{"domainCount": n, "valuesPerLevel": values, "podCounts": counts} for n, values, counts in slices]
    return {"topologyAssignment": {"levels": levels, "slices": parts}}


def test_pods_get_the_labels_and_tolerations_of_their_flavors() -> None:
    (found,) = read_pod_sets(workload(flavors={"cpu": "a", "memory": "a", "storage": "fast"}), FLAVORS)
    ((pod, count),) = found.parts
    assert count == 6
    assert pod["spec"]["nodeSelector"] == {"own": "1", "pool": "a", "disk": "ssd"}
    assert pod["spec"]["tolerations"] == [{"key": "own"}, TOLERATION]
    assert found.labels == {"pool": "a", "disk": "ssd"}


def test_the_count_of_the_assignment_replaces_that_of_the_pod_set() -> None:
    assert selectors(count=2) == [({"own": "1", "pool": "a"}, 2)]
    assert read_pod_sets(workload(count=0), FLAVORS) == []


@pytest.mark.parametrize(
    ("rows", "blocks", "counts"),
    [
        ({"individual": {"roots": ["b1", "b1"]}}, {"individual": {"roots": ["r1", "r2"]}}, {"individual": [4, 2]}),
        ({"universal": "b1"}, {"individual": {"prefix": "r", "roots": ["1", "2"]}}, {"individual": [4, 2]}),
    ],
)
def test_domains_are_read_in_each_form(rows: Any, blocks: Any, counts: Any) -> None:  # noqa: ANN401
    found = selectors(**domains(["block", "rack"], (2, [rows, blocks], counts)))
    own = {"own": "1", "pool": "a", "block": "b1"}
    assert found == [({**own, "rack": "r1"}, 4), ({**own, "rack": "r2"}, 2)]


def test_slices_are_joined() -> None:
    first = (2, [{"individual": {"suffix": "-x", "roots": ["n1", "n2"]}}], {"universal": 2})
    second = (1, [{"universal": "n3"}], {"universal": 2})
    found = selectors(**domains(["host"], first, second))
    assert [(each["host"], count) for each, count in found] == [("n1-x", 2), ("n2-x", 2), ("n3", 2)]


@pytest.mark.parametrize(
    ("assignment", "field"),
    [
        ({"flavors": {"cpu": "gone"}}, "podSetAssignments[0].flavors.cpu: there is no ResourceFlavor 'gone'"),
        ({"name": "other"}, "there is none for the pod set 'main'"),
        ({"count": "6"}, "podSetAssignments[0].count: '6' is not an integer"),
        ({"count": -1}, "podSetAssignments[0].count: -1 is negative"),
        ({"count": MAX_PODS + 1}, "more than 1000 pods"),
        (domains(["host"], (2, [{"individual": {"roots": ["n1"]}}], {"universal": 1})), "has 1 values, expected 2"),
        (domains(["host"], (1, [], {"universal": 1})), "has 0 levels, expected 1"),
        (domains(["host"], (1, [{}], {"universal": 1})), "valuesPerLevel[0]: None is not a text"),
        (domains(["host"], (-1, [{"universal": "n"}], {"universal": 1})), "domainCount: -1 is negative"),
        (domains(["host"], (10**9, [{"universal": "n"}], {"universal": 1})), "more than 1000 topology domains"),
        (domains(["host"], (1, [{"universal": "n"}], 7)), "podCounts: 7 is not an object"),
        (domains(["host"], (1, [{"universal": "n"}], {"universal": -5})), "podCounts: -5 is negative"),
    ],
)
def test_a_fault_names_its_field(assignment: dict[str, Any], field: str) -> None:
    with pytest.raises(WireError) as caught:
        read_pod_sets(workload(**assignment), FLAVORS)
    assert field in str(caught.value)


@pytest.mark.parametrize("status", [None, 7, [], {}, {"admission": None}, {"admission": {"podSetAssignments": 7}}])
def test_a_workload_of_any_form_is_refused(status: object) -> None:
    with pytest.raises(WireError):
        read_pod_sets({**workload(), "status": status}, FLAVORS)
