"""YAML and JSON of people: what is read, and how what cannot be read is told."""

import time

import orjson
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.wire.documents import MAX_DEPTH, NotYAMLError, read_documents, read_yaml_documents
from extender.wire.errors import NotJSONError, WireError

READ = {
    "a: &x [1, 2]\nb: *x": {"a": [1, 2], "b": [1, 2]},
    "a: 2026-01-02": {"a": "2026-01-02"},
    "a: yes\nb: 'yes'\nc: 1.5\nd: ~\ne: =": {"a": True, "b": "yes", "c": 1.5, "d": None, "e": "="},
    "1: a\ntrue: b": {"1": "a", "true": "b"},
    "---\n---\na: 1\n---\n": {"a": 1},
    "\ufeffa: 1": {"a": 1},
    "a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}": {"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 3}},
    "a: {'<<': 1}": {"a": {"<<": 1}},
    "<<: [{a: 1}, {a: 2, b: 3}]": {"a": 1, "b": 3},
    "text": "text",
    "[]": [],
    "a: |\n  one\n  two\n": {"a": "one\ntwo\n"},
}


@pytest.mark.parametrize("text", READ)
def test_yaml_is_read_as_kubernetes_reads_it(text: str) -> None:
    assert read_yaml_documents(text.encode()) == [READ[text]]


def test_an_integer_beyond_64_bits_is_read_as_in_json() -> None:
    values = [
        *read_yaml_documents(b"20000000000000000000"),
        *read_documents(b"20000000000000000000", "application/json"),
    ]
    assert [repr(value) for value in values] == ["2e+19", "2e+19"]


FAULTS = {
    b"a: [": ("", "not YAML"),
    b"a: &a [*a]": ("a[0]", "is not defined"),
    b"a:\n  b: 1\n  b: 2": ("a", "line 3: the key 'b' is a duplicate"),
    b"a: !!python/object:os.system x": ("a", "tag"),
    b"a: !!binary aaaa": ("a", "tag"),
    b"<<: 1": ("", "a merge key needs a map"),
    b"a: !<tag:yaml.org,2002:merge> 1\nb: !x 1": ("b", "tag"),
    b"a: " + b"1" * 400: ("a", "cannot be read"),
    b"\xff": ("", "byte 0 is not UTF-8"),
    b"a:\n- .nan": ("a[0]", "line 2: '.nan'"),
    b"? [a]\n: 1": ("", "cannot be a key"),
    b"a: *x": ("a", "is not defined"),
    b"a: " + b"9" * 5000: ("a", "cannot be read"),
    b"\x00": ("", "not YAML"),
    b"- " * 100: ("[0]", f"more than {MAX_DEPTH} deep"),
    b"[" * 100_000: ("[0]", f"more than {MAX_DEPTH} deep"),
    b"{a: " * 100_000: ("a.a", f"more than {MAX_DEPTH} deep"),
}


@pytest.mark.parametrize("body", FAULTS, ids=lambda body: repr(body[:20]))
def test_what_is_wrong_is_told_with_its_place(body: bytes) -> None:
    field, reason = FAULTS[body]

    with pytest.raises(WireError) as fault:
        read_yaml_documents(body)

    assert fault.value.field.startswith(field)
    assert reason in fault.value.reason


def test_aliases_cannot_blow_a_document_up() -> None:
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]" for i in range(9)]
    deep = ["a0: &a0 [1]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 100))]
    started = time.monotonic()

    for text, reason in (("\n".join(lines), "values"), ("\n".join(deep), "deep")):
        with pytest.raises(WireError, match=reason):
            read_yaml_documents(text.encode())

    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("media_type", "body", "value"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}),
        ("application/yaml; charset=utf-8", b"a: 1", {"a": 1}),
        ("text/yaml", b'{"a": 1}', {"a": 1}),
        ("", b'{"a": 1}', {"a": 1}),
        ("", b"a: 1", {"a": 1}),
        ("application/x-www-form-urlencoded", b"a: 1", {"a": 1}),
    ],
)
def test_the_declared_form_counts_and_else_the_one_that_fits(media_type: str, body: bytes, value: object) -> None:
    assert read_documents(body, media_type) == [value]


def test_json_that_is_none_is_not_taken_for_yaml() -> None:
    for media_type, body in (("application/json", b"a: 1"), ("application/geo+json", b"a: 1"), ("", b'{"a": 1,}')):
        with pytest.raises(NotJSONError):
            read_documents(body, media_type)
    with pytest.raises(NotYAMLError):
        read_documents(b"a: [", "application/yaml")


@settings(max_examples=200, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_bytes_are_a_value_or_a_fault(body: bytes) -> None:
    try:
        values = read_documents(body, "application/yaml")
    except WireError:
        return
    assert orjson.loads(orjson.dumps(values)) == values


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@settings(max_examples=100, deadline=None)
@given(JSON_VALUES.filter(lambda value: value is not None))
def test_what_pyyaml_writes_is_read_back(value: object) -> None:
    assert read_yaml_documents(yaml.safe_dump(value).encode()) == [value]
