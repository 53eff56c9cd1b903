"""Replies to kube-scheduler, whatever nodes are called."""

import numpy as np
import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from extender.wire.errors import WireError
from extender.wire.node_names import GroupedReasons, NodeNames
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import HostScores, SchedulerArgs, filter_reply, parse_args, unpack_names
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

    for read in (NodeNames.of(names), NodeNames.proven(orjson.dumps(names)) or NodeNames.of(names)):
        reply = HostScores(read, [score for _, score in scored]).packed

        assert orjson.loads(reply) == [{"Host": name, "Score": score} for name, score in scored]


@pytest.mark.parametrize("long", [252, 400, 5000])
def test_a_long_name_gets_its_score(long: int) -> None:
    names = ["a", "b" * long, "c"]
    read = NodeNames.proven(orjson.dumps(names))

    assert read is not None
    reply = HostScores(read, [1, 10, 0]).packed

    assert [(each["Host"], each["Score"]) for each in orjson.loads(reply)] == list(zip(names, (1, 10, 0), strict=True))
    assert len(reply) < 3 * long + 1000


@given(st.lists(st.tuples(st.text(st.characters(codec="ascii"), max_size=8), st.booleans()), min_size=1))
def test_a_part_of_the_names_is_as_go_would_write_it(marked: list[tuple[str, bool]]) -> None:
    names, kept = [name for name, _ in marked], [name for name, is_kept in marked if is_kept]
    read = NodeNames.proven(orjson.dumps(names))
    if read is None or not kept:
        return
    read.slots = (1, np.arange(len(names)))

    part = read.kept(np.array([is_kept for _, is_kept in marked]))

    assert part.packed == orjson.dumps(kept)
    proven = NodeNames.proven(part.packed)
    assert part.spans is not None
    assert proven is not None
    assert proven.spans is not None
    assert [each.tolist() for each in part.spans] == [each.tolist() for each in proven.spans]
    assert part.slots is not None
    assert [names[i] for i in part.slots[1]] == kept == list(part)


@given(st.lists(_texts))
def test_names_that_all_pass_come_back_as_they_were_asked(names: list[str]) -> None:
    args = SchedulerArgs(pod=POD, names=NodeNames.of(names), nodes=None)

    all_of_them, as_many = (orjson.loads(filter_reply(args, passed, {}, {})) for passed in (args.names, list(names)))

    assert all_of_them == as_many
    assert as_many["NodeNames"] == names == unpack_names(memoryview(args.names.packed))


_printable = st.text(st.characters(codec="ascii"), max_size=8)


@given(st.lists(st.one_of(_printable, _texts)))
@example(["node-1", "node-2"])
@example(['a","b', "c"])
@example(["a]", "],"])
@example(["\x00", "tab\t", "\x7f"])
def test_names_as_go_writes_them_are_the_names_that_a_json_parser_reads(names: list[str]) -> None:
    body = orjson.dumps(args_of(pod_of(), *names))

    read = parse_args(body).names

    assert list(read) == names
    assert len(read) == len(names)
    assert (
        read.spans is None
        or [read.packed[start : start + size].decode() for start, size in zip(*map(list, read.spans), strict=True)]
        == names
    )


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


@given(st.lists(st.text("abc-.0", max_size=9), min_size=40, max_size=60), st.sets(st.integers(0, 59), max_size=2))
def test_runs_of_names_are_as_go_would_write_them(names: list[str], left_out: set[int]) -> None:
    read = NodeNames.proven(orjson.dumps(names))
    assert read is not None
    is_kept = np.array([i not in left_out for i in range(len(names))])

    part = read.kept(is_kept)

    assert part.packed == orjson.dumps([name for name, is_in in zip(names, is_kept, strict=True) if is_in])
    assert part.spans is not None
    assert [part.packed[at : at + size].decode() for at, size in zip(*part.spans, strict=True)] == part.parsed


@given(st.dictionaries(_printable, st.integers(0, 2), min_size=1), st.sampled_from([0, 30, 400]))
def test_reasons_by_name_are_one_json_object(wanted: dict[str, int], longest: int) -> None:
    reasons = {name: f"reason {number}" for name, number in {**wanted, "x" * longest: 0}.items()}
    names = NodeNames.proven(orjson.dumps(list(reasons)))
    if names is None:
        return
    by_reason = {
        reason: [i for i, name in enumerate(reasons) if reasons[name] == reason] for reason in reasons.values()
    }

    grouped = GroupedReasons(names, {reason: np.array(found) for reason, found in by_reason.items()})

    assert orjson.loads(grouped.packed) == reasons == dict(grouped)
    assert len(grouped) == len(reasons)
    assert grouped.reasons == by_reason.keys()
