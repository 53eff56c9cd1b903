"""Replies to kube-scheduler, whatever nodes are called."""

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.wire.errors import WireError
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs, filter_reply, parse_args, scores_reply
from tests.reports import args_of, pod_of

POD = pod_from_json(pod_of())
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.lists(st.tuples(_texts, st.integers(0, 10))))
@example([("node-1", 3), ("node-2", 10)])
@example([('quote"', 0), ("back\\slash", 1), ("line\n", 2), ("ü", 3)])
@example([('","Score":9},{"Host":"', 1)])
@example([("", 5)])
def test_every_name_gets_its_score_and_nothing_else(scored: list[tuple[str, int]]) -> None:
    names = [name for name, _ in scored]

    reply = scores_reply(names, np.array([score for _, score in scored], np.uint8))

    assert orjson.loads(reply) == [{"Host": name, "Score": score} for name, score in scored]


@given(st.lists(_texts))
def test_names_that_all_pass_come_back_as_they_were_asked(names: list[str]) -> None:
    args = SchedulerArgs(pod=POD, names=names, nodes=None)

    assert orjson.loads(filter_reply(args, args.names, {}, {}))["NodeNames"] == names


_printable = st.text(st.characters(codec="ascii"), max_size=8)


@given(st.lists(st.one_of(_printable, _texts)))
@example(["node-1", "node-2"])
@example(['a","b', "c"])
@example(["a]", "],"])
@example(["\x00", "tab\t", "\x7f"])
def test_names_are_read_as_they_were_written(names: list[str]) -> None:
    body = orjson.dumps(args_of(pod_of(), *names))

    assert parse_args(body).names == names


@given(st.binary(max_size=6), st.integers(0, 40))
@example(b'"],"', 3)
@example(b'"]', 20)
@example(b"\x01", 20)
def test_damaged_names_are_read_as_a_json_parser_reads_them_or_not_at_all(damage: bytes, at: int) -> None:
    body = orjson.dumps(args_of(pod_of(), "node-1", "node-2", "node-3"))
    at = len(body) - at
    body = body[:at] + damage + body[at + 1 :]
    try:
        document = orjson.loads(body)
        expected = document["NodeNames"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        expected = None
    try:
        read = list(parse_args(body).names)
    except WireError:
        return
    assert read == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"Pod":%s,"Nodes":null,"a\\"NodeNames":["n"]}',
        '{"Pod":%s,"Nodes":{"items":[]},"NodeNames":null,"More":{"NodeNames":["n"]}}',
        '{"Pod":%s,"NodeNames":["m"],"NodeNames":["n"]}',
        '{"Pod":%s,"NodeNames":["n"],"Other":["m"]}',
        '{"Pod":%s,"Other":["NodeNames",["n"]]}',
    ],
)
def test_a_key_that_only_looks_like_the_names_is_not_read_as_them(text: str) -> None:
    body = (text % orjson.dumps(pod_of()).decode()).encode()
    expected = orjson.loads(body).get("NodeNames")

    try:
        read = list(parse_args(body).names)
    except WireError:
        assert expected is None
    else:
        assert read == (expected or [])


_wrong = st.one_of(st.none(), st.integers(-9, 9), st.booleans(), st.just([]), st.just({}), st.just(["n"]))


@given(st.lists(_texts), _wrong, st.lists(st.one_of(_texts, _wrong)))
@example(["", "a"], 1, [])
@example([], [], [])
def test_the_first_name_that_is_no_text_is_told(before: list[str], wrong: object, after: list[object]) -> None:
    body = orjson.dumps({**args_of(pod_of()), "NodeNames": [*before, wrong, *after]})

    with pytest.raises(WireError, match=rf"^NodeNames\[{len(before)}\]"):
        parse_args(body)


def test_priority_and_nominated_node_are_read() -> None:
    pod = pod_of()
    assert (parse_args(orjson.dumps(args_of(pod))).priority, parse_args(orjson.dumps(args_of(pod))).nominated_node) == (
        0,
        "",
    )

    pod["spec"]["priority"], pod["status"]["nominatedNodeName"] = 1000, "node-1"

    args = parse_args(orjson.dumps(args_of(pod)))
    assert (args.priority, args.nominated_node) == (1000, "node-1")


@pytest.mark.parametrize(
    ("part", "key", "wrong"),
    [("spec", "priority", "high"), ("spec", "priority", True), ("status", "nominatedNodeName", 1)],
)
def test_a_wrong_priority_or_nominated_node_is_named(part: str, key: str, wrong: object) -> None:
    pod = pod_of()
    pod[part][key] = wrong

    with pytest.raises(WireError, match=rf"^Pod\.{part}\.{key}: "):
        parse_args(orjson.dumps(args_of(pod)))
