"""Selectors of labels as text, as kubectl writes them."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.wire.errors import WireError
from extender.wire.selectors import parse_selector

LABELS = {"pool": "gpu", "zone": "b", "example.org/size": "40", "empty": ""}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("", True),
        ("pool=gpu", True),
        ("pool == gpu , zone!=a", True),
        ("pool=gpu,zone=a", False),
        ("pool in (cpu, gpu)", True),
        ("pool notin (cpu,gpu)", False),
        ("pool notin (cpu)", True),
        ("absent!=x", True),
        ("pool", True),
        ("absent", False),
        ("!absent", True),
        ("! pool", False),
        ("example.org/size>39", True),
        ("example.org/size<40", False),
        ("empty=", True),
        ("pool=", False),
        ("empty in ()", True),
        ("in=x", False),
    ],
)
def test_it_means_what_it_means_to_kubectl(text: str, holds: bool) -> None:  # noqa: FBT001 - a case
    selects = parse_selector(text, "l")
    assert selects(LABELS) is holds
    assert selects(None) is (not text), "labels that are not known meet nothing"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("pool in gpu", "pool in gpu"),
        ("a=b,,c", ",c"),
        ("a=b c", "a=b c"),
        ("!a=b", "!a=b"),
        ("a,(b)", "(b)"),
        ("=b", "=b"),
    ],
)
def test_what_is_none_is_named(text: str, rest: str) -> None:
    with pytest.raises(WireError) as caught:
        parse_selector(text, "query.label_selector")
    assert str(caught.value) == f"query.label_selector: {rest!r} is not a label selector"


@given(st.text(alphabet="ab=!<>(), innot", max_size=40))
def test_any_text_is_a_selector_or_an_error(text: str) -> None:
    with contextlib.suppress(WireError):
        parse_selector(text, "l")
