"""Snapshots of the cluster, and the numbers of its nodes."""

from dataclasses import replace

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from extender.cluster.name_table import NO_SLOT, NameTable
from extender.cluster.node_class import AWAITED, UNKNOWN, NodeClass
from extender.cluster.snapshot import PART, ClassIndex
from extender.wire.node_names import NodeNames

ONE, OTHER = (replace(UNKNOWN, id=i) for i in (1, 2))


def _at(index: ClassIndex, *names: str) -> list[NodeClass]:
    return index.snapshot().at(index.names.find_each(names))


def test_a_snapshot_never_changes() -> None:
    index = ClassIndex(AWAITED)
    index.put("a", ONE)
    before, slots = index.snapshot(), index.names.find_each(["b", "a"])

    index.put("a", OTHER)
    index.put("b", ONE)
    index.set_unknown(UNKNOWN)

    assert before.at(slots) == [AWAITED, ONE]
    assert _at(index, "c", "b", "a") == [UNKNOWN, ONE, OTHER]
    assert index.names.get("c") == NO_SLOT


def test_one_snapshot_is_shared_until_a_node_changes_its_class() -> None:
    index = ClassIndex()
    index.put("a", ONE)
    snapshot = index.snapshot()

    assert index.put("a", ONE) is ONE
    assert index.snapshot() is snapshot


def test_a_snapshot_after_one_change_copies_the_part_of_one_node_only() -> None:
    index = ClassIndex()
    for i in range(5 * PART):
        index.put(f"n{i}", ONE)
    before = index.snapshot()

    index.put("n7", OTHER)

    parts = zip(before.parts, index.snapshot().parts, strict=True)
    assert [one is other for one, other in parts] == [False, True, True, True, True]


_names = st.text(st.characters(codec="ascii"), min_size=1, max_size=20)
_events = st.lists(st.tuples(st.sampled_from(["put", "drop", "read"]), st.integers(0, 30)), max_size=80)


@given(
    st.lists(st.one_of(_names, st.sampled_from([f"node-{i}" for i in range(20)])), min_size=31, unique=True), _events
)
def test_the_index_is_a_dictionary_of_classes_whatever_happens(names: list[str], events: list[tuple[str, int]]) -> None:
    index, expected = ClassIndex(AWAITED), dict[str, NodeClass]()
    for number, (what, which) in enumerate(events, 1):
        name = names[which]
        if what == "put":
            expected[name] = replace(UNKNOWN, id=number)
            index.put(name, expected[name])
        elif what == "drop" and name in expected:
            assert index.remove(name) is expected.pop(name)
        request = NodeNames.proven(orjson.dumps(names)) or NodeNames.of(names)
        slots = _slots(index.names, request)
        classes = [expected.get(each, AWAITED) for each in names]
        assert index.snapshot().at(slots) == classes == _at(index, *names)
        assert index.ids[slots].tolist() == [each.id for each in classes]


def _slots(table: NameTable, names: NodeNames) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return table.find_each(names) if names.spans is None else table.find(names.packed, *names.spans)


def test_thousands_of_names_are_found_and_no_other_ones() -> None:
    table = NameTable()
    names = [f"ip-10-{i // 250}-{i % 250}.example" for i in range(20_000)]
    slots = [table.add(name) for name in names]
    strangers = [*(f"ip-10-{i // 250}-{i % 250}.exampl" for i in range(5_000)), "a" * 300]
    request = NodeNames.proven(orjson.dumps([*names, *strangers]))
    assert request is not None

    found = _slots(table, request).tolist()

    assert found == slots + [NO_SLOT] * len(strangers)
    assert table.names_at(np.array(slots[::-1])) == names[::-1]


def test_a_table_whose_names_come_and_go_stays_small() -> None:
    table = NameTable()
    for i in range(20_000):
        table.add(f"n{i}")
        assert _slots(table, NodeNames.proven(orjson.dumps([f"n{i}"]))).tolist() == [0]  # type: ignore[arg-type]
        table.remove(f"n{i}")

    assert table.capacity == 1
