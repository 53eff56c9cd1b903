"""Parsing of JSON: types, and values that are nested too deep."""

from typing import Any

import orjson
import pytest

from extender.wire.errors import NotJSONError
from extender.wire.parsing import MAX_DEPTH, load_deep_json
from extender.wire.preemption import parse_preemption
from extender.wire.scheduler import parse_args
from tests.reports import args_of, pod_of

DEEP = b'{"f:a":' * 1100 + b"{}" + b"}" * 1100


def deep(pod: dict[str, Any]) -> dict[str, Any]:
    pod["metadata"]["managedFields"] = [{"manager": "m", "fieldsV1": "@deep@"}]
    return pod


def body_of(document: object) -> bytes:
    return orjson.dumps(document).replace(b'"@deep@"', DEEP)


def test_a_pod_with_deep_managed_fields_is_judged() -> None:
    args = parse_args(body_of(args_of(deep(pod_of(4, name="p")), "a", "b")))

    assert args.pod == parse_args(body_of(args_of(pod_of(4, name="p"), "a", "b"))).pod
    assert list(args.names) == ["a", "b"]


def test_a_deep_victim_keeps_no_preemption_from_being_answered() -> None:
    """Seen red: with whole victims, one pod with such fields made the whole request unreadable."""
    victims = {"a": {"Pods": [deep(pod_of(2, name="v"))], "NumPDBViolations": 0}}

    args = parse_preemption(body_of({"Pod": pod_of(4, name="p"), "NodeNameToVictims": victims}))

    plain = {"a": {"Pods": [pod_of(2, name="v")], "NumPDBViolations": 0}}
    assert args == parse_preemption(body_of({"Pod": pod_of(4, name="p"), "NodeNameToVictims": plain}))


@pytest.mark.parametrize("body", [b"[" * 5000, b'{"managedFields":[' * 2000, b'{"a":1', b'"managedFields":['])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(NotJSONError):
        load_deep_json(body)


def test_what_is_deep_is_null() -> None:
    levels = MAX_DEPTH + 10
    body = b'{"managedFields":[' + b"[" * 1100 + b"]" * 1100 + b'],"b":' + b"[" * levels + b"]" * levels + b"}"

    found = load_deep_json(body)

    assert isinstance(found, dict)
    assert found["managedFields"] is None
    for _ in range(MAX_DEPTH - 1):
        (found,) = found if isinstance(found, list) else (found["b"],)
    assert found == [None]
