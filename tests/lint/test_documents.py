"""YAML with lines, within bounds."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.lint.documents import MAX_BYTES, Located, nested, read_documents
from extender.wire.documents import MAX_DEPTH
from extender.wire.errors import WireError

TEXT = """\
first: 1
list:
  - a: x
    b: |
      k: v
      deep:
        key: yes
  - c
flow: {q: [1, 2.5, null, true]}
---
base: &base {one: 1, two: 2}
merged:
  <<: *base
  two: 3
quoted: "9"
date: 2024-01-01
first: 1
first: 2
"""


def test_values_lines_and_paths() -> None:
    one, two = read_documents(TEXT.encode(), "f")
    assert one.value == {
        "first": 1,
        "list": [{"a": "x", "b": "k: v\ndeep:\n  key: yes\n"}, "c"],
        "flow": {"q": [1, 2.5, None, True]},
    }
    assert [place.line for place in (one, one.near("list"), one.near("list", 0, "a"), one.near("list", 1))] == [
        1,
        2,
        3,
        8,
    ]
    assert one.near("list", 0, "b").path == "list[0].b"
    assert two.plain("merged") == {"one": 1, "two": 3}
    assert two.plain("quoted") == "9"
    assert two.plain("date") == "2024-01-01"
    assert two.duplicates == [("first", 18)]
    assert two.get("base", "three") is None
    assert two.near("base", "three").line == 11


def test_documents_inside_texts_keep_their_lines() -> None:
    one, _ = read_documents(TEXT.encode(), "f")
    text = one.get("list", 0, "b")
    assert text is not None
    (inner,) = nested(text)
    assert inner.near("deep", "key").line == 7
    assert inner.plain("deep", "key") is True
    first = one.get("first")
    assert first is not None
    assert nested(first) == ()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a: 1\nb: [", 2),
        (b"a: 1\nb: \xff", 2),
        (b"? [a]\n: 1", 1),
        (b"x: " + b"[" * (MAX_DEPTH + 5) + b"]" * (MAX_DEPTH + 5), 1),
        (b"[" * 300_000 + b"]" * 300_000, 1),
        (b"- " * 300_000 + b"a", 1),
        (b"#" * (MAX_BYTES + 1), 1),
        (b"a: !!binary aaaa", 1),
    ],
)
def test_faults_name_the_line(content: bytes, line: int) -> None:
    with pytest.raises(WireError) as caught:
        read_documents(content, "f")
    assert caught.value.field == f"f:{line}"


def test_references_cannot_blow_up() -> None:
    text = "a0: &a0 [1,1,1,1,1,1,1,1,1,1]\n"
    text += "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
    with pytest.raises(WireError, match="values"):
        read_documents(text.encode(), "f")


def test_a_reference_to_itself_ends() -> None:
    with pytest.raises(WireError, match="is not defined"):
        read_documents(b"a: &a [*a]", "f")


def everything_in(place: Located) -> Iterator[Located]:
    yield place
    for child in (*place.items(), *place.entries().values()):
        yield from everything_in(child)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text("ab:-[]{}&*!|>'\"#?,\n 1", max_size=60).map(str.encode)))
def test_whatever_comes_is_read_or_refused_cleanly(content: bytes) -> None:
    try:
        documents = read_documents(content, "f")
    except WireError:
        return
    for document in documents:
        assert all(place.line >= 1 for place in everything_in(document))
