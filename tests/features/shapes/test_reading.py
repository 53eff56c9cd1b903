"""Each entry of the ConfigMap is read by itself, whatever the others are."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from extender.kube.shapes import decode_shapes
from extender.questions.shapes import MAX_ENTRY_CHARACTERS, MAX_SHAPES, read_shapes

EXAMPLE = Path(__file__).parents[3] / "docs/examples/shapes/configmap.yaml"
GOOD = "requests: {cpu: 16, memory: 32Gi}"
STRANGE = st.one_of(st.text(), st.integers(), st.none(), st.from_regex(r"[{\[&*:a ]+"))


def test_an_entry_has_everything_that_a_pod_of_it_has() -> None:
    text = """
      requests: {cpu: 28, memory: 128Gi, vendor.example/gpu: 4}
      copies: 2
      nodeSelector: {pool: gpu}
      tolerations: [{key: gpu, operator: Exists}]
      priority: 100
      hard: true
    """
    shape = read_shapes({"train": text}).shapes["train"]

    assert (shape.copies, shape.priority, shape.is_hard) == (2, 100, True)
    assert shape.node_selector == {"pool": "gpu"}
    assert shape.requests_milli == {"cpu": 28_000, "memory": 128 * 2**30 * 1000, "vendor.example/gpu": 4_000}
    assert shape.document["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("requests: {cpu: many}", "cpu"),
        ("requests: {}", "requests"),
        ("requests: {cpu: 0}", "no resource"),
        ("request: {cpu: 1}", "request"),
        ("requests: {cpu: 1}\ncopies: 0", "copies"),
        ("requests: {cpu: 1}\nhard: maybe", "hard"),
        ("- 1", "object"),
        ("", "one document"),
        ("a: b\n---\na: b", "one document"),
        ("{", "YAML"),
        ("x" * (MAX_ENTRY_CHARACTERS + 1), "characters"),
        (7, "text"),
        ("a: &a [*a]", ""),
    ],
)
def test_an_entry_that_cannot_be_read_is_named_with_its_reason_and_harms_no_other(text: object, why: str) -> None:
    found = read_shapes({"a": text, "b": GOOD})

    assert list(found.shapes) == ["b"]
    assert list(found.unread) == ["a"]
    assert why in found.unread["a"]


def test_of_too_many_entries_the_first_are_read_and_the_others_named() -> None:
    found = read_shapes({f"shape-{i:03}": GOOD for i in range(500)})

    assert len(found.shapes) == MAX_SHAPES
    assert "shape-000" in found.shapes
    assert 0 < len(found.unread) <= MAX_SHAPES


@given(st.dictionaries(st.text(max_size=80), STRANGE, max_size=20))
def test_no_entry_makes_the_watch_fail(data: dict[str, object]) -> None:
    decoded = decode_shapes({"metadata": {"name": "numa-extender-shapes"}, "data": {**data, "good-one": GOOD}})

    assert decoded is not None
    assert decoded[1].shapes.keys() | decoded[1].unread.keys() == data.keys() | {"good-one"}


def test_the_example_of_the_documentation_can_be_read() -> None:
    found = read_shapes(yaml.safe_load(EXAMPLE.read_text())["data"])

    assert (list(found.shapes), found.unread) == (["solver", "train-4"], {})
